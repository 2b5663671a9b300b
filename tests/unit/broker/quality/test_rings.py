"""What a broker keeps of its publishers' messages at QoS 0, in whose budget, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tocsin.broker.quality import rings
from tocsin.broker.quality.rings import ANSWER_BYTES, LEFT_BYTES, MESSAGE_BYTES, Rings
from tocsin.core.budgets.budget import Kind
from tocsin.core.quality.stamps import Stamp
from tocsin.core.quality.texts import offer_said
from tocsin.model.publication import Publication, decode_publication
from tocsin.model.quality import Flow

LOCAL = "durability=transient-local,history=3"
TRANSIENT = "durability=transient,history=3"
ASKED = "durability=transient-local,history=all"


class Account:
    """A budget with so much room."""

    def __init__(self, room: int) -> None:
        self.room = room

    def take(self, kind: Kind, size: int) -> str | None:
        if size > self.room:
            return "full"
        self.room -= size
        return None

    def give(self, kind: Kind, size: int) -> None:
        self.room += size


class Stage:
    def __init__(self) -> None:
        self.rings = Rings()
        self.epoch = 0

    def publisher(self, room: int = 1 << 30) -> Any:
        return SimpleNamespace(account=Account(room))

    def begin(self, client: Any, offered: str, topic: str = "t", name: str = "c") -> Flow:
        self.epoch += 1
        flow, offer = Flow(topic, name, self.epoch, "east"), offer_said(offered)
        assert offer is not None
        self.rings.begin(flow, cast("Any", client), offered, offer, 0)
        return flow

    def publish(self, flow: Flow, *numbers: int, payload: bytes = b"") -> None:
        for number in numbers:
            publication = Publication(flow.topic, payload or b"%d" % number, 0, flow.client)
            self.rings.add(publication, Stamp(flow, number, number, reliable=True))

    def payloads(self, pattern: str = "#", request: str = ASKED) -> list[bytes]:
        rows = self.rings.recall(pattern, request)
        return [decode_publication(data).payload for row in rows for data in row.messages]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_subscription_gets_as_many_as_are_offered_and_asked_for(stage: Stage) -> None:
    flow = stage.begin(stage.publisher(), LOCAL)
    stage.publish(flow, 1, 2, 3, 4, 5)
    assert stage.payloads() == [b"3", b"4", b"5"] and stage.payloads("other") == []
    assert stage.payloads("t", "durability=transient-local") == [b"5"]
    assert stage.payloads("t", "durability=transient,history=all") == [], "it offers less"
    assert stage.payloads("t", ASKED + ",where=nothing > 3") == []


def test_without_room_the_oldest_go_and_the_account_is_even(stage: Stage) -> None:
    size = MESSAGE_BYTES + len("t") + 1
    publisher = stage.publisher(2 * size)
    flow = stage.begin(publisher, LOCAL)
    stage.publish(flow, 1, 2, 3)
    (row,) = stage.rings.recall("t", ASKED)
    assert stage.payloads() == [b"2", b"3"] and row.missing == 1 and publisher.account.room == 0
    stage.rings.end(flow, 0)
    assert publisher.account.room == 2 * size and len(stage.rings) == 0


def test_what_a_session_has_is_there_until_it_is_over(stage: Stage) -> None:
    flow = stage.begin(stage.publisher(), LOCAL)
    stage.publish(flow, 1)
    stage.rings.end(flow, 100)
    assert stage.payloads() == [b"1"]
    stage.rings.session_over("c")
    assert stage.payloads() == [] and len(stage.rings) == 0


def test_transient_outlives_the_session_and_goes_on_with_it(stage: Stage) -> None:
    flow = stage.begin(stage.publisher(), TRANSIENT)
    stage.publish(flow, 1, 2)
    stage.rings.end(flow, 0)
    stage.rings.session_over("c")
    assert stage.payloads() == [b"1", b"2"]
    newer = stage.begin(stage.publisher(), TRANSIENT)
    stage.publish(newer, 1)
    (row,) = stage.rings.recall("t", ASKED)
    assert dict(row.ends) == {flow: 2, newer: 1} and len(row.messages) == 3


def test_a_stream_that_offers_it_no_longer_has_no_history(stage: Stage) -> None:
    flow = stage.begin(stage.publisher(), TRANSIENT)
    stage.publish(flow, 1)
    stage.rings.end(flow, None)
    assert stage.payloads() == [] and len(stage.rings) == 0


def test_of_publishers_that_are_gone_the_first_goes_first(stage: Stage) -> None:
    payload = bytes(LEFT_BYTES // 40)
    for number in range(60):
        flow = stage.begin(stage.publisher(), TRANSIENT, f"t/{number}", f"c{number}")
        stage.publish(flow, 1, payload=payload)
        stage.rings.end(flow, 0)
    assert 30 < len(stage.rings) < 40
    assert stage.rings.recall("t/0", ASKED) == [] and len(stage.rings.recall("t/59", ASKED)) == 1


def test_an_answer_is_bounded_and_says_what_it_left_out(stage: Stage) -> None:
    for number in range(6):
        flow = stage.begin(stage.publisher(), "durability=transient-local,history=all", f"t/{number}")
        stage.publish(flow, 2 * number, 2 * number + 1, payload=bytes(ANSWER_BYTES // 8))
    rows = stage.rings.recall("#", ASKED)
    assert len(rows) == 6 and sum(len(row.messages) for row in rows) == 7
    assert sum(row.missing for row in rows) == 5 == stage.rings.cut
    assert len(rows[0].messages) == 0 and len(rows[5].messages) == 2, "the newest are there"


def test_messages_that_have_expired_are_no_history(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = stage.begin(stage.publisher(), LOCAL)
    stage.rings.add(Publication("t", b"x", 0, "c", expiry_s=5), Stamp(flow, 1, 1_000_000))
    monkeypatch.setattr(rings, "wall_us", lambda: 5_900_000)
    assert stage.payloads() == [b"x"]
    monkeypatch.setattr(rings, "wall_us", lambda: 6_000_000)
    assert stage.payloads() == []
