"""The load's account: which topics there are, and what became of messages."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tocsin_labs.pubsubcoord.crowd import HEAD, Client, Crowd, Ear, Job, Lane, Topic, binned, topics, turn
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


def ear(lane: Lane) -> Ear:
    (found,) = lane.all_ears
    return found


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
        ear(lane).hear(payloads(lane)[0], 0)
    assert made.all_heard.is_set()
    made.begin()
    for number in range(1, 6):
        for lane in made.lanes:
            lane.publish(number * 50 * MS)
    made.end()
    one.publish(300 * MS)
    for number, at_ms in ((1, 150), (3, 250), (2, 260), (2, 270), (5, 350), (6, 400)):
        ear(one).hear(payloads(one)[number], at_ms * MS)
    for number in range(1, 6):
        ear(other).hear(payloads(other)[number], (number * 50 + 100) * MS)
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
    assert HEAD.unpack_from(payload) == (0, 7, 0)
    assert payload[HEAD.size :] == bytes(Load().payload_bytes - HEAD.size)


def test_each_subscriber_of_a_topic_has_an_account_of_its_own() -> None:
    topic = Topic("t", 0, 1, more=(2,), readers=2)
    made = Crowd(Job((("127.0.0.1", 1),) * 3, (topic,), Load(), 0.0, by_topic=True))
    (lane,) = made.lanes
    lane.publisher = cast(Client, Wire())
    made.begin()
    for number in range(3):
        lane.publish(number * MS)
    made.end()
    one, *others = lane.all_ears
    assert len(others) == 3
    for each in (one, one, *others):
        each.hear(payloads(lane)[0], 100 * MS)
    made._late.append(MS)
    one.hear(payloads(lane)[1], 101 * MS)
    found = made.found()
    assert (found.sent, found.lost, found.doubled) == (12, 7, 1)
    assert found.by_topic["t"].lost == 7


def test_messages_of_a_pause_do_not_count_and_the_next_ones_do() -> None:
    made = crowd()
    lane = made.lanes[0]
    made.begin()
    lane.publish(0)
    made.end()
    lane.publish(0)
    made.begin()
    lane.publish(0)
    made.end()
    for payload in payloads(lane):
        ear(lane).hear(payload, MS)
    assert (lane.sent, ear(lane).lost, len(ear(lane).arrivals)) == (1, 0, 1)


def test_the_course_of_time_has_the_spread_of_each_part() -> None:
    made = Crowd(Job((("127.0.0.1", 1),) * 2, topics(2, 1, 0.0), Load(), 0.0, window_s=0.5))
    lane = made.lanes[0]
    lane.publisher = cast(Client, Wire())
    made.begin()
    made._began_ns = 0
    for number, (sent_ms, came_ms) in enumerate(((0, 100), (300, 400), (600, 900))):
        lane.publish(sent_ms * MS)
        ear(lane).hear(payloads(lane)[number], came_ms * MS)
    made.end()
    made._late.append(MS)
    assert [(each.at_s, each.count, each.p99_ms) for each in made.found().windows] == [
        (0, 2, 100),
        (0.5, 1, 300),
    ]


@pytest.mark.parametrize(("count", "ticks"), [(7, 3), (3, 7), (5, 5), (1, 10), (400, 3_333)])
def test_every_topic_has_one_turn_in_a_period(count: int, ticks: int) -> None:
    lanes = cast(list[Lane], list(range(count)))
    turns = [list(turn(lanes, tick, ticks)) for tick in range(ticks)]
    assert sorted(cast(list[int], [each for some in turns for each in some])) == list(range(count))
    assert max(map(len, turns)) <= -(-count // ticks)


def test_an_offer_goes_with_the_first_message_alone() -> None:
    topic = Topic("t", 0, 1, offer=(("offer.budget", "50ms"),))
    lane = Lane(0, topic, Mqtt(), Load())
    first, second = lane.write(0), lane.write(0)
    assert b"offer.budget" in first and b"offer.budget" not in second
    assert Mqtt().read(first + second, 64)[1] == [first[-64:], second[-64:]]


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
