"""Three coordinators under ``tocsin up``: the leader is killed, or frozen past its lease, and is soon replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.integration.running import DEADLINE_S, until, up
from tests.integration.test_first_message import Address, PahoClient

GAP_S = 20.0  # within which somebody else leads; two to three seconds where the machine is idle


class Network:
    """A network with three coordinators."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.brokers: dict[str, Address] = {b["id"]: (b["host"], b["port"]) for b in ready["brokers"]}
        self._ready = ready

    def status(self) -> list[dict[str, Any]]:
        """What ``tocsin coordinator status --json`` says."""
        port = self._ready["nats"][0].rpartition(":")[2]
        state = self._ready["state"]
        command = [sys.executable, "-P", "-m", "tocsin", "coordinator", "status", "--json"]
        said = subprocess.run(
            [*command, "--state", state, "--set", f"nats.port={port}"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        shown: list[dict[str, Any]] = json.loads(said.stdout)
        assert said.returncode == (0 if any(each["role"] == "leader" for each in shown) else 1)
        return shown

    def leader(self, *, beyond: int = 0) -> dict[str, Any]:
        """The leader of an epoch beyond the one given."""
        deadline = time.monotonic() + GAP_S
        while time.monotonic() < deadline:
            found = [each for each in self.status() if each["role"] == "leader" and each["epoch"] > beyond]
            if found:
                return max(found, key=lambda each: int(each["epoch"]))
        raise AssertionError(f"nobody leads beyond epoch {beyond} within {GAP_S:g} s: {self.status()}")

    def subscribes_across(self, name: str) -> None:
        """A new subscription in the south is served from the north."""
        subscriber = PahoClient(self.brokers["south-1"], 5, f"{name}/#")
        publisher = PahoClient(self.brokers["north-1"], 5)
        try:
            until(
                lambda: bool(subscriber.heard),
                lambda: publisher.client.publish(f"{name}/x", b"hi"),
                f"a message for {name} from north to south",
            )
        finally:
            subscriber.stop()
            publisher.stop()


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with up("--set", "coordinators=3") as ready:
        yield Network(ready)


def test_one_leads_and_all_know_the_same(network: Network) -> None:
    network.subscribes_across("first")
    shown = network.status()
    assert [each["id"] for each in shown] == ["coordinator-1", "coordinator-2", "coordinator-3"]
    assert sorted(each["role"] for each in shown) == ["follower", "follower", "leader"]
    until(
        lambda: {each["brokers"] for each in network.status()} == {6},
        lambda: None,
        "three coordinators that know six brokers",
    )


def test_a_killed_leader_is_replaced_and_routes_that_were_there_go_on(network: Network) -> None:
    leader = network.leader()
    subscriber = PahoClient(network.brokers["south-2"], 5, "steady/#")
    publisher = PahoClient(network.brokers["north-2"], 5)
    try:
        until(
            lambda: bool(subscriber.heard),
            lambda: publisher.client.publish("steady/x", b"before"),
            "a message before the kill",
        )
        os.kill(leader["pid"], signal.SIGKILL)
        publisher.client.publish("steady/x", b"during")
        until(
            lambda: any(payload == b"during" for _, payload in subscriber.heard),
            lambda: None,
            "a message while nobody leads",
        )
    finally:
        subscriber.stop()
        publisher.stop()
    network.subscribes_across("after-kill")
    new = network.leader(beyond=leader["epoch"])
    assert new["epoch"] > leader["epoch"] and new["brokers"] == 6


def test_a_leader_that_was_frozen_past_its_lease_follows_the_new_one(network: Network) -> None:
    leader = network.leader()
    frozen = psutil.Process(leader["pid"])
    frozen.suspend()
    try:
        network.subscribes_across("while-frozen")
        new = network.leader(beyond=leader["epoch"])
        assert new["id"] != leader["id"]
    finally:
        frozen.resume()

    def follows() -> bool:
        return any(each["id"] == leader["id"] and each["role"] == "follower" for each in network.status())

    until(follows, lambda: None, "the frozen leader is a follower")
    network.subscribes_across("after-frozen")
    assert network.leader()["epoch"] == new["epoch"], "the one that woke up has changed nothing"
