"""Ports: checked where they are given, chosen where they are not, kept across lives."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from tocsin.config import Broker, Door, Feeds, Nats, Pipeline, Settings
from tocsin.errors import OperatorError, PortTaken
from tocsin.runtime.network.directory import BrokerAddress, DoorAddress, FeederAddress, NetworkFile
from tocsin.runtime.network.ports import CHOSEN_BELOW, CHOSEN_FROM, is_free, settle


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def network(*ports: int, nats_port: int = 0, servers: int = 1) -> Settings:
    brokers = tuple(Broker(id=f"b{n}", cluster="c", port=port) for n, port in enumerate(ports))
    nats = Nats(port=nats_port, servers=3 if servers == 3 else 1)
    return Settings(brokers=brokers, nats=nats, door=Door(port=0))


def test_ports_that_are_left_open_are_chosen_and_differ() -> None:
    settled = settle(network(*[0] * 20, servers=3))
    ports = [broker.port for broker in settled.brokers] + [settled.nats.port + n for n in range(3)]
    assert len(set(ports)) == 23
    assert all(CHOSEN_FROM <= port < CHOSEN_BELOW for port in ports)


CHOOSES = """
import sys
from tocsin.config import Broker, Settings
from tocsin.runtime.network import ports as listening
listening.CHOSEN_FROM = int(sys.argv[1])
listening.CHOSEN_BELOW = listening.CHOSEN_FROM + 17
brokers = tuple(Broker(id=f"b{n}", cluster="c", port=0) for n in range(3))
settled = listening.settle(Settings(brokers=brokers), auto=True)
ports = [port for broker in settled.brokers for port in broker.ports().values()]
print(settled.nats.port, settled.door.port, *ports, flush=True)
sys.stdin.read()
"""


def test_two_networks_that_start_together_have_different_ports() -> None:
    chosen: list[str] = []
    with contextlib.ExitStack() as stack:
        for _ in range(2):  # sixteen of sixteen ports, and nobody listens on any
            command = [sys.executable, "-c", CHOOSES, str(CHOSEN_FROM - 500)]  # where nobody else chooses any
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            assert process.stdout is not None
            chosen += process.stdout.readline().split()
    assert len(chosen) == len(set(chosen)) == 16


def test_a_taken_port_of_the_door_is_refused_or_chosen_anew(taken: int) -> None:
    settings = msgspec.structs.replace(network(0), door=Door(port=taken))
    with pytest.raises(PortTaken, match="the coordinators' door") as caught:
        settle(settings)
    assert "door.port" in caught.value.remedy
    first = settle(settings, auto=True)
    assert first.door.port != taken
    file = NetworkFile("n", 1, (), (), door=DoorAddress.of(first.door))
    assert settle(network(0), previous=file).door.port == first.door.port
    assert settle(msgspec.structs.replace(settings, door=Door(port=-1)), auto=True).door.port == -1


def test_a_taken_port_is_refused_with_its_setting(taken: int) -> None:
    with pytest.raises(PortTaken) as caught:
        settle(network(0, taken))
    assert "broker b1" in caught.value.problem and f":{taken}" in caught.value.problem
    assert "brokers[1].port" in caught.value.remedy and "--auto-ports" in caught.value.remedy
    with pytest.raises(PortTaken) as caught:
        settle(network(0, nats_port=taken))
    assert "nats.port" in caught.value.remedy


def test_with_auto_a_taken_port_does_not_matter(taken: int) -> None:
    settled = settle(network(taken, nats_port=taken), auto=True)
    assert settled.brokers[0].port != taken != settled.nats.port


def test_servers_that_run_elsewhere_need_no_port(taken: int) -> None:
    settings = msgspec.structs.replace(network(0), nats=Nats(urls=("nats://a:1",), port=taken))
    assert settle(settings).nats == settings.nats


def test_chosen_ports_are_kept_across_lives_if_they_are_free(taken: int) -> None:
    first = settle(network(0, 0, 0))
    known = [BrokerAddress.of(broker) for broker in first.brokers]
    known[1] = msgspec.structs.replace(known[1], port=taken)
    previous = NetworkFile(
        "tocsin",
        1,
        (f"nats://127.0.0.1:{first.nats.port}",),
        tuple(known),
    )
    second = settle(network(0, 0, 0), previous=previous)
    assert second.nats.port == first.nats.port
    assert second.brokers[0] == first.brokers[0] and second.brokers[2] == first.brokers[2]
    assert second.brokers[1].port not in (taken, 0)


def test_an_address_of_another_machine_is_refused() -> None:
    elsewhere = "192.0.2.1"  # TEST-NET-1: on no machine
    brokers = (Broker(id="a", cluster="c", host=elsewhere, port=1883),)
    with pytest.raises(OperatorError) as caught:
        settle(Settings(brokers=brokers, nats=Nats(port=0)))
    assert "brokers[0].host" in caught.value.remedy
    with pytest.raises(OperatorError):
        is_free(elsewhere, 1883)


def test_only_configured_listeners_of_a_broker_get_a_port(taken: int) -> None:
    brokers = (Broker(id="a", cluster="c", port=0, tls_port=0, ws_port=taken), Broker(id="b", cluster="c"))
    settings = Settings(brokers=brokers, nats=Nats(port=0))
    with pytest.raises(PortTaken) as caught:
        settle(settings)
    assert "brokers[0].ws_port" in caught.value.remedy
    first, second = settle(settings, auto=True).brokers
    assert len({first.port, first.tls_port, first.ws_port, second.port, taken}) == 5
    assert min(first.port, first.tls_port, first.ws_port, second.port) >= CHOSEN_FROM
    assert first.wss_port == second.tls_port == second.ws_port == second.wss_port == -1


def test_a_chosen_tls_port_is_kept_across_lives() -> None:
    settings = Settings(brokers=(Broker(id="a", cluster="c", tls_port=0),), nats=Nats(port=0))
    first = settle(settings).brokers[0]
    before = NetworkFile("n", 1, (), (BrokerAddress.of(first),))
    assert settle(settings, previous=before).brokers[0] == first
    without = NetworkFile("n", 1, (), (BrokerAddress("a", "c", "edge", "127.0.0.1", first.port),))
    assert settle(settings, previous=without).brokers[0].tls_port >= CHOSEN_FROM


def test_the_feeder_gets_ports_only_where_it_is_started(taken: int) -> None:
    feeds = Feeds(http_port=taken, https_port=0)
    settings = msgspec.structs.replace(network(0), feeds=feeds, pipeline=Pipeline(enabled="always"))
    with pytest.raises(PortTaken) as caught:
        settle(settings)
    assert "the feeder" in caught.value.problem and "feeds.http_port" in caught.value.remedy
    settled = settle(settings, auto=True).feeds
    assert (
        settled.http_port != settled.https_port and min(settled.http_port, settled.https_port) >= CHOSEN_FROM
    )
    previous = NetworkFile("n", 1, (), (), FeederAddress("127.0.0.1", settled.http_port, settled.https_port))
    assert settle(settings, auto=True, previous=previous).feeds == settled
    without = msgspec.structs.replace(settings, pipeline=Pipeline(enabled="never"))
    assert settle(without).feeds == feeds
    with pytest.raises(PortTaken, match="metrics"):
        measured = Pipeline(enabled="always", metrics_port=taken)
        settle(msgspec.structs.replace(network(0), feeds=Feeds(http_port=-1), pipeline=measured))
    chosen = settle(msgspec.structs.replace(network(0), pipeline=measured), auto=True).pipeline
    assert chosen.metrics_port != taken and chosen.metrics_port >= CHOSEN_FROM
    with pytest.raises(PortTaken, match="the feeder's metrics"):
        feeding = Feeds(http_port=-1, metrics_port=taken)
        settle(msgspec.structs.replace(settings, feeds=feeding))
    both = msgspec.structs.replace(settings, feeds=Feeds(metrics_port=0), pipeline=measured)
    ports = settle(both, auto=True)
    assert ports.feeds.metrics_port != ports.pipeline.metrics_port >= CHOSEN_FROM
    closed = msgspec.structs.replace(settings, feeds=Feeds(http_port=-1))
    assert settle(closed, auto=True).feeds == closed.feeds
