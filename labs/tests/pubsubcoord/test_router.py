"""The emulated wide-area network: what it delays, loses and counts."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tocsin_labs.pubsubcoord import places
from tocsin_labs.pubsubcoord.overlay import FIRST, Leg, Paths, _sent, names_of, places_of, settings_of
from tocsin_labs.pubsubcoord.router import IDLE_S, Passed, Router, Weather


def packet(receiver: int, size: int = 40, version: int = 4) -> bytes:
    head = bytes((version << 4,)) + bytes(15) + socket.inet_aton(places.address(receiver))
    return head + bytes(size - len(head))


def test_a_packet_arrives_after_the_delay_of_its_pair() -> None:
    router = Router(3, seed=1)
    router.change([Weather(1, 2, 0.030), Weather(1, 3, 0.010)])
    router.take(1, packet(2), now_s=0.0)
    router.take(1, packet(3), now_s=0.0)
    assert router.next(0.009) is None
    assert router.wait_s(0.004) == pytest.approx(0.006)
    assert router.next(0.010) == (3, packet(3))
    assert router.next(0.029) is None
    assert router.next(0.031) == (2, packet(2))
    assert router.wait_s(0.031) == IDLE_S


def test_packets_of_a_pair_keep_their_order() -> None:
    router = Router(2, seed=1)
    for size in (40, 41, 42):
        router.take(1, packet(2, size), now_s=1.0)
    assert [len(found[1]) for _ in range(3) if (found := router.next(1.0))] == [40, 41, 42]


def test_so_many_are_lost_and_the_same_ones_with_the_same_seed() -> None:
    kept = []
    for _ in range(2):
        router = Router(2, seed=5)
        router.change([Weather(1, 2, 0.0, 0.01)])
        kept.append([router.pair(1, 2).takes(40) for _ in range(20_000)])
    assert kept[0] == kept[1]
    assert 150 < kept[0].count(False) < 250
    assert router.pair(1, 2).passed == Passed(20_000, 800_000, kept[0].count(False))


def test_a_cut_pair_passes_nothing_and_others_do() -> None:
    router = Router(3, seed=1)
    router.change([Weather(1, 2, 0.0, 1.0)])
    router.take(1, packet(2), 0.0)
    router.take(1, packet(3), 0.0)
    assert router.next(0.0) == (3, packet(3))
    assert router.next(0.0) is None


def test_strange_packets_are_left_alone() -> None:
    router = Router(2, seed=1)
    for strange in (packet(9), packet(2, version=6), b"\x45"):
        router.take(1, strange, 0.0)
    assert router.next(1.0) is None and router.counted() == []


def test_what_a_pair_sent_is_counted_by_link() -> None:
    one, other = places_of(1)
    stranger, hub, ground = FIRST, 2, 1
    counted = [
        (one, other, Passed(1, 100, 0)),
        (other, hub, Passed(2, 10, 1)),
        (hub, one, Passed(1, 1, 0)),
        (one, ground, Passed(9, 9_000, 0)),
        (stranger, one, Passed(9, 9_000, 9)),
    ]
    found = _sent(counted, 1)
    assert (found.direct, found.relayed, found.packets, found.lost, found.bytes) == (100, 11, 4, 1, 111)


def test_every_broker_of_the_overlay_has_an_address_of_its_own() -> None:
    settings = settings_of(3)
    assert [each.id for each in settings.brokers[1:3]] == list(names_of(0))
    assert len({each.advertise for each in settings.brokers}) == len(settings.brokers) == 7
    assert len({each.cluster for each in settings.brokers}) == 7
    assert settings.nats.host not in {each.advertise for each in settings.brokers}


def test_the_words_of_a_leg_have_its_delay_and_loss() -> None:
    leg = Leg(0.125, 0.01)
    assert leg.words == "125 ms 1 %" and Paths(leg, leg, leg).up == leg


def test_a_command_is_started_in_its_place() -> None:
    command = places.command("/proc/1/fd/2", ("/bin/true", "-x"))
    assert command[0] == sys.executable
    assert Path(command[3]).name == "places.py" and command[4:] == ("/proc/1/fd/2", "/bin/true", "-x")


def test_without_a_place_one_stays_where_one_is() -> None:
    with places.within(""):
        assert socket.if_nameindex()


@pytest.mark.skipif(bool(places.problem()), reason="no TUN device in a namespace of one's own here")
def test_a_socket_stays_in_the_place_in_which_it_was_made() -> None:
    command = (
        "import os, socket\n"
        "from tocsin_labs.pubsubcoord import places\n"
        "here = os.open(places.OWN, os.O_RDONLY)\n"
        "made = places.make(7)\n"
        "places.enter(places.path(os.getpid(), here))\n"
        "with places.within(places.path(os.getpid(), made.space)):\n"
        "    listening = socket.create_server((places.address(7), 0))\n"
        "print('wan0' in dict(map(reversed, socket.if_nameindex())), listening.getsockname()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["False", places.address(7)], done.stderr
