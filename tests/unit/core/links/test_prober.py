"""Whom a broker measures, when, and what it makes of that."""

from __future__ import annotations

import pytest

from tocsin.core.links import incoming, prober
from tocsin.core.links.prober import (
    AGAIN_US,
    BULK_MAX_BYTES,
    GAP_US,
    LARGE_BYTES,
    PINGS,
    PROBE_US,
    RETRY_US,
    SMALL_BYTES,
    VALID_US,
    WANTED_MAX,
    Answered,
    EndProbe,
    OpenProbe,
    ProbeLost,
    ProbeOpened,
    Prober,
    ProberTimer,
    SendBulk,
    Wanted,
)
from tocsin.core.machine import Effect, Event, SetTimer, TimerFired
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.summaries import UNMEASURED

TAKES = incoming.PROBE_MAX_BYTES


def peer(name: str, port: int = 1) -> BrokerInfo:
    return BrokerInfo(name, "north", Role.EDGE, "127.0.0.1", port)


class Bench:
    """A prober, and a link whose delay and bandwidth are known."""

    def __init__(self, delay_us: int = 2_000, bytes_a_us: float = 1.0) -> None:
        self.machine = Prober("spare")
        self.now_us = 0
        self.delay_us = delay_us
        self.bytes_a_us = bytes_a_us
        self.timers: dict[str, int] = {}
        self.sizes: list[int] = []
        self.opened: list[str] = []
        self.ended = 0

    def handle(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event, self.now_us)
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.name] = self.now_us + effect.delay_us
            elif isinstance(effect, OpenProbe):
                self.opened.append(effect.peer.id)
            elif isinstance(effect, SendBulk):
                self.sizes.append(effect.size)
            elif isinstance(effect, EndProbe):
                self.ended += 1
        return effects

    def want(self, *names: str) -> None:
        self.handle(Wanted(peers=tuple(peer(name) for name in names)))

    def begin(self) -> None:
        """The next one's turn comes."""
        self.now_us = self.timers.pop(ProberTimer.NEXT)
        self.handle(TimerFired(name=ProberTimer.NEXT))

    def finish(self, takes: int = TAKES) -> None:
        """The peer answers everything."""
        self.handle(ProbeOpened(takes=takes))
        ended = self.ended
        while self.ended == ended:
            self.now_us += self.delay_us + round(self.sizes[-1] / self.bytes_a_us)
            self.handle(Answered())

    def known(self) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
        return self.machine.known(self.now_us)


def test_a_probe_finds_the_delay_and_the_bandwidth_and_ends() -> None:
    bench = Bench(delay_us=2_000, bytes_a_us=1.25)  # 10 Mbit/s
    bench.want("a")
    assert bench.known() == ({}, {"a": UNMEASURED})
    bench.begin()
    bench.finish()
    probes, unknown = bench.known()
    assert bench.opened == ["a"] and bench.ended == 1 and unknown == {}
    assert probes["a"][0] == 2_000 and probes["a"][1] == pytest.approx(10_000, rel=0.01)
    assert bench.sizes == [0] * PINGS + [SMALL_BYTES, LARGE_BYTES]
    assert bench.machine.sent_bytes == BULK_MAX_BYTES <= TAKES, "and the peer takes as much"
    assert bench.machine.state == "idle" and bench.machine.made == 1


def test_a_slow_link_gets_the_small_bulk_only() -> None:
    bench = Bench(bytes_a_us=0.03)  # 240 kbit/s: the large one would take three seconds
    bench.want("a")
    bench.begin()
    bench.finish()
    assert bench.sizes[-1] == SMALL_BYTES
    assert bench.known()[0]["a"][1] == pytest.approx(240, rel=0.05)


def test_a_peer_of_an_earlier_release_is_measured_by_delay_alone() -> None:
    bench = Bench()
    bench.want("a")
    bench.begin()
    bench.finish(takes=0)
    probes, unknown = bench.known()
    assert bench.sizes == [0] * PINGS and probes == {"a": (2_000, 0)}
    assert "earlier release" in unknown["a"]


def test_peers_are_measured_one_by_one_with_gaps_by_name() -> None:
    bench = Bench()
    bench.want("a", "b")
    waits = []
    for _ in range(2):
        waits.append(bench.timers[ProberTimer.NEXT] - bench.now_us)
        bench.begin()
        bench.finish()
    assert bench.opened == ["a", "b"] and ProberTimer.NEXT not in bench.timers
    assert all(GAP_US <= each < 2 * GAP_US for each in waits) and waits[0] != waits[1]
    other = Prober("another")
    (timer,) = other.handle(Wanted(peers=(peer("a"),)), 0)
    assert isinstance(timer, SetTimer) and timer.delay_us != waits[0], "standbys do not come at the same time"


def test_an_old_measurement_is_repeated_when_somebody_asks() -> None:
    bench = Bench()
    bench.want("a")
    bench.begin()
    bench.finish()
    done_us = bench.now_us
    bench.now_us = done_us + AGAIN_US - 1
    bench.want("a")
    assert ProberTimer.NEXT not in bench.timers
    bench.now_us = done_us + AGAIN_US
    bench.want("a")
    assert ProberTimer.NEXT in bench.timers and "a" in bench.known()[0], "the old value counts until then"
    bench.now_us = done_us + VALID_US
    assert bench.known() == ({}, {"a": UNMEASURED})


def test_who_cannot_be_measured_is_tried_again_later_and_says_why() -> None:
    bench = Bench()
    bench.want("a", "b")
    bench.begin()
    bench.handle(ProbeLost(reason="refused"))
    assert bench.machine.failed == 1 and bench.ended == 1
    assert bench.known()[1]["a"] == "cannot be measured: refused"
    failed_us = bench.now_us
    bench.begin()
    bench.finish()
    assert bench.opened == ["a", "b"], "the other one is not held up"
    bench.now_us = failed_us + RETRY_US
    bench.want("a")
    bench.begin()
    assert bench.opened[-1] == "a"


def test_a_probe_that_takes_too_long_ends() -> None:
    bench = Bench()
    bench.want("a")
    bench.begin()
    bench.handle(ProbeOpened(takes=TAKES))
    bench.now_us += 7_000
    bench.handle(Answered())
    bench.now_us = bench.timers[ProberTimer.DEADLINE]
    bench.handle(TimerFired(name=ProberTimer.DEADLINE))
    assert bench.ended == 1 and bench.known()[0] == {"a": (7_000, 0)}
    assert f"{PROBE_US // 1_000_000} s" in bench.known()[1]["a"]
    assert PROBE_US < incoming.PROBE_US, "the peer waits for longer"


def test_what_is_wanted_is_bounded_and_the_newest_comes_first() -> None:
    bench = Bench()
    bench.want(*(f"old{number}" for number in range(WANTED_MAX)))
    bench.want("new")
    bench.begin()
    assert bench.opened == ["new"]
    assert len(bench.known()[1]) == WANTED_MAX


def test_a_peer_that_moved_is_measured_anew() -> None:
    bench = Bench()
    bench.want("a")
    bench.begin()
    bench.finish()
    bench.handle(Wanted(peers=(peer("a", port=2),)))
    assert bench.known() == ({}, {"a": UNMEASURED})


def test_a_late_word_of_a_probe_that_has_ended_changes_nothing() -> None:
    bench = Bench()
    bench.want("a")
    assert bench.handle(ProbeLost(reason="late")) == []
    assert prober.Prober("x").handle(TimerFired(name=ProberTimer.DEADLINE), 0) == []
