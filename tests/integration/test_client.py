"""The Python client and `tocsin pub`, `sub`, `streams` on a network of two clusters that `tocsin up` started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.running import DEADLINE_S, Heard, until, up
from tocsin.client import Client, Joined, Left, Set

QUERY = 'Location/Room = "410" AND floor > 3'
SAID = {"Location/Room": "410", "floor": 4}


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, Any]]:
    with up(level="error") as line:
        yield line


def url(network: dict[str, Any], broker: str) -> str:
    found = next(each for each in network["brokers"] if each["id"] == broker)
    return f"mqtt://{found['host']}:{found['port']}"


def tocsin(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tocsin", *arguments]


def test_a_query_and_its_set_follow_a_stream_across_clusters(network: dict[str, Any]) -> None:
    with (
        Client(url(network, "south-2")) as reader,
        Client(url(network, "south-2")) as watcher,
        reader.query(QUERY, qos=1, with_streams=True) as found,
        watcher.streams(QUERY) as changes,
    ):
        assert changes.get(DEADLINE_S) == Set({})
        with Client(url(network, "north-1")) as sensor:
            stream = sensor.stream("building/4/temp", qos=1)
            stream.publish("before")
            stream.publish(21.5, SAID)
            message = found.get(DEADLINE_S)
            assert (message.topic, message.json()) == ("building/4/temp", 21.5)
            joined = changes.get(DEADLINE_S)
            assert isinstance(joined, Joined) and joined.metadata["cluster"] == "north"
            assert message.metadata == joined.metadata
        assert isinstance(changes.get(DEADLINE_S), Left)


DOOMED = """
import sys, time
from tocsin.client import Client, Message
will = Message("state/doomed", b"gone", qos=1, retain=True)
client = Client(sys.argv[1], client_id="doomed", session_expiry_s=60, will=will, will_delay_s=1)
client.connect()
client.publish("state/doomed", "here", qos=1, retain=True)
print("acknowledged", flush=True)
time.sleep(600)
"""


def test_the_will_of_a_program_that_is_killed_is_told_across_clusters(network: dict[str, Any]) -> None:
    with Client(url(network, "south-2")) as watcher, watcher.subscribe("state/#", qos=1) as heard:
        doomed = Heard([sys.executable, "-c", DOOMED, url(network, "north-1")])
        try:
            until(lambda: doomed.lines == ["acknowledged"], lambda: None, "the program")
        finally:
            doomed.process.kill()
            doomed.stop()
        assert [heard.get(DEADLINE_S).text for _ in range(2)] == ["here", "gone"]
    with Client(url(network, "north-2")) as later:
        until(lambda: retained(later, "state/doomed") == "gone", lambda: None, "the will, retained")


def retained(client: Client, topic: str) -> str:
    with client.subscribe(topic) as kept:
        message = kept.get(DEADLINE_S)
        assert message.retain
        return message.text


def test_the_commands_do_the_same(network: dict[str, Any]) -> None:
    south, north = url(network, "south-1"), url(network, "north-2")
    sub = Heard(tocsin("sub", "--json", "--query", QUERY, "--at", south))
    streams = Heard(tocsin("streams", "--json", QUERY, "--at", south))
    meta = ["--meta", "Location/Room=410", "--meta", "floor:=4"]
    try:
        until(lambda: streams.lines == ['{"streams":[]}'], lambda: None, "the set")

        def publish() -> None:
            subprocess.run(
                tocsin("pub", "by/hand", "21.5", "--at", north, *meta), check=True, timeout=DEADLINE_S
            )

        until(
            lambda: bool(sub.lines) and len(streams.lines) > 2, publish, "a message and a change of the set"
        )
        heard = json.loads(sub.lines[0])
        assert (heard["topic"], heard["payload"], heard["metadata"]["floor"]) == ("by/hand", "21.5", 4)
        assert [next(iter(json.loads(line))) for line in streams.lines[1:3]] == ["joined", "left"]
    finally:
        sub.stop()
        streams.stop()


def test_a_client_of_several_servers_goes_on_when_its_broker_is_killed(network: dict[str, Any]) -> None:
    servers = [url(network, broker) for broker in ("north-1", "north-2")]
    with (
        Client(servers, client_id="mover", session_expiry_s=60) as mover,
        mover.subscribe("steady", qos=1) as heard,
        Client(url(network, "south-1")) as publisher,
    ):
        publisher.publish("steady", 0, qos=1)
        assert heard.get(DEADLINE_S).json() == 0
        os.kill(network["pids"]["broker/north-1"], signal.SIGKILL)
        for number in range(1, 20):
            publisher.publish("steady", number, qos=1)
        assert [heard.get(DEADLINE_S).json() for _ in range(1, 20)] == list(range(1, 20))
