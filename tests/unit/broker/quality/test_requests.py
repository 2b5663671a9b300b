"""What clients are told of streams that do not match: within their rights, and without holding up others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tocsin.broker.quality.requests import PIECE, Requests
from tocsin.broker.quality.words import Words
from tocsin.model.network import BrokerInfo, Role
from tocsin.query import Query
from tocsin.store.memory.store import MemoryStore

TIGHT = "deadline=1ms"
STRICT = "deadline=1ms,strict=yes"
OFFERED = {"$offer": "deadline=10s"}


class Peer:
    """A client that may receive what is below ``open/``, and all if ``trusted``."""

    version = 5

    def __init__(self, client_id: str, *, trusted: bool = False) -> None:
        self.client_id = self.user = client_id
        self.trusted = trusted
        self.delivery = SimpleNamespace(subscriptions={})
        self.account = SimpleNamespace(take=lambda kind, size: None, give=lambda kind, size: None)

    def may_receive(self, topic: str) -> bool:
        return self.trusted or topic.startswith("open/")


class Stage:
    """One broker's requests, and what it sends to whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.asked: list[Query] = []
        self.requests = Requests(
            "net",
            BrokerInfo("north-1", "north", Role.EDGE, "127.0.0.1", 0),
            Words(MemoryStore().bus),
            add=lambda client, frame: self.sent.append((client.client_id, frame)),
            keep=lambda query, user, wanted: self.asked.append(query),
            publishers=cast("Any", SimpleNamespace(publishing=lambda topic: ())),
            gone=tuple,
            find=lambda topic: (),
        )

    def request(self, peer: Peer, request: str = TIGHT) -> None:
        client = cast("Any", peer)
        self.requests.subscribed(client, "$qos/#", "$qos/#", "")
        self.requests.subscribed(client, f"$qos/{request}/#", "#", request)

    def know(self, *topics: str) -> None:
        self.requests.know(self.asked[0].id, dict.fromkeys(topics, OFFERED))

    def told(self, peer: Peer, topic: str) -> bool:
        return any(who == peer.client_id and topic.encode() in frame for who, frame in self.sent)


@pytest.fixture
async def stage() -> Any:
    found = Stage()
    yield found
    found.requests.close()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_nobody_is_told_of_a_stream_that_it_may_not_receive(stage: Stage) -> None:
    mallory, alice = Peer("mallory"), Peer("alice", trusted=True)
    stage.request(mallory)
    stage.request(alice)
    stage.know("open/pump", "secret/plans")
    await turns()
    assert stage.told(mallory, "open/pump") and not stage.told(mallory, "secret/plans")
    assert stage.told(alice, "open/pump") and stage.told(alice, "secret/plans")


async def test_a_change_of_a_forbidden_stream_is_not_told(stage: Stage) -> None:
    mallory = Peer("mallory")
    stage.request(mallory)
    stage.know()
    stage.requests.say(stage.asked[0].id, "secret/plans", OFFERED)
    stage.requests.say(stage.asked[0].id, "open/pump", OFFERED)
    assert stage.told(mallory, "open/pump") and not stage.told(mallory, "secret/plans")


async def test_a_strict_request_is_refused_for_streams_that_it_may_name(stage: Stage) -> None:
    mallory, alice = Peer("mallory"), Peer("alice", trusted=True)
    stage.request(mallory, STRICT)
    stage.know("secret/plans")
    assert await stage.requests.problem(cast("Any", mallory), "#", STRICT) is None
    assert "secret/plans" in (await stage.requests.problem(cast("Any", alice), "#", STRICT) or "")


async def test_who_may_receive_it_later_is_told_then(stage: Stage) -> None:
    mallory = Peer("mallory")
    stage.request(mallory)
    stage.know("secret/plans")
    await turns()
    assert not stage.told(mallory, "secret/plans")
    mallory.trusted = True
    stage.requests.access_changed()
    await turns()
    assert stage.told(mallory, "secret/plans")


async def test_a_deadline_is_watched_only_for_who_may_receive_it(stage: Stage) -> None:
    mallory = Peer("mallory", trusted=True)
    stage.request(mallory, "deadline=1m")
    stage.know("open/pump", "secret/plans")
    await turns()
    assert stage.requests.statistics()["deadlines"] == 2
    mallory.trusted = False
    stage.requests.access_changed()
    await turns()
    assert stage.requests.statistics()["deadlines"] == 1


async def test_many_streams_are_compared_piece_by_piece(stage: Stage, counted: list[int]) -> None:
    peer = Peer("mallory")
    for length in range(1, 4):
        stage.request(peer, f"deadline={length}ms")
    stage.know(*(f"open/{number}" for number in range(5 * PIECE)))
    assert not counted  # not before others had their turn
    await turns(100)
    assert max(counted) <= PIECE and sum(counted) == 3 * 5 * PIECE


@pytest.fixture
def counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many streams were compared in each turn."""
    counts: list[int] = []
    compare = stage.requests._compare

    def counting(target: Any, scope: str, request: str, topics: Any) -> None:
        if topics:
            counts.append(len(topics))
        compare(target, scope, request, topics)

    monkeypatch.setattr(stage.requests, "_compare", counting)
    yield counts
