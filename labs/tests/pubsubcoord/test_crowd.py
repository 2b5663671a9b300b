"""The load's account: which topics there are, and what became of messages."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tocsin_labs.pubsubcoord.crowd import HEAD, Client, Crowd, Job, Lane, binned, topics
from tocsin_labs.pubsubcoord.plan import Load, Wan
from tocsin_labs.pubsubcoord.speech import Mqtt

MS = 1_000_000


class Wire:
    """What a publisher writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.transport = self

    def write(self, data: bytes) -> None:
        self.written.append(data)


def crowd() -> Crowd:
    job = Job((("127.0.0.1", 1),) * 2, topics(2, 1, 0.0), Load(), 0.0)
    made = Crowd(job)
    for lane in made.lanes:
        lane.publisher = cast(Client, Wire())
    return made


def payloads(lane: Lane) -> list[bytes]:
    return [each[-Load().payload_bytes :] for each in cast(Wire, lane.publisher).written]


@pytest.mark.parametrize(("locality", "local"), [(0.1, 10), (0.9, 90), (1.0, 100)])
def test_the_share_of_topics_stays_and_others_go_to_the_next_lan(locality: float, local: int) -> None:
    found = topics(5, 100, locality)
    assert len({each.name for each in found}) == 500
    assert sum(each.is_local for each in found) == 5 * local
    assert {each.target - each.source for each in found if not each.is_local} <= {1, -4}


def test_the_floor_is_what_the_delays_alone_take() -> None:
    assert [round(Wan().floor_ms(each)) for each in (0.0, 0.1, 0.5, 0.9, 1.0)] == [100, 92, 60, 28, 20]


def test_lost_doubled_and_disordered_messages_are_counted() -> None:
    made = crowd()
    one, other = made.lanes
    for lane in made.lanes:
        lane.publish(0)
    for lane in made.lanes:
        lane.hear(payloads(lane)[0], 0)
    assert made.all_heard.is_set()
    made.begin()
    for number in range(1, 6):
        for lane in made.lanes:
            lane.publish(number * 50 * MS)
    made.end()
    one.publish(300 * MS)
    for number, at_ms in ((1, 150), (3, 250), (2, 260), (2, 270), (5, 350), (6, 400)):
        one.hear(payloads(one)[number], at_ms * MS)
    for number in range(1, 6):
        other.hear(payloads(other)[number], (number * 50 + 100) * MS)
    made._late.append(2 * MS)
    found = made.found()
    assert (found.sent, found.lost, found.doubled, found.disordered) == (10, 1, 1, 2)
    assert found.all_ms.samples == 9
    assert found.local_ms is None and found.across_ms == found.all_ms
    assert found.silences_s == (0.1, 0.05)
    assert found.late_ms.mean == 2


def test_a_payload_has_the_size_of_the_plan() -> None:
    made = crowd()
    made.lanes[0].publish(7)
    (payload,) = payloads(made.lanes[0])
    assert HEAD.unpack_from(payload) == (0, 7)
    assert payload[HEAD.size :] == bytes(Load().payload_bytes - HEAD.size)


def test_arrivals_are_counted_in_bins() -> None:
    assert binned([0.001, 0.019, 0.05, -0.001]) == (3, 0, 1)
    assert binned([]) == ()


async def test_a_refused_client_says_why() -> None:
    class Transport(asyncio.Transport):
        def abort(self) -> None:
            client.connection_lost(None)

    client = Client(Mqtt(), 64)
    client.connection_made(Transport())
    client.data_received(b"\x20\x03\x00\x87\x00")
    assert "0x87" in client.problem
