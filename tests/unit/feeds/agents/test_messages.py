"""Messages of the log as records, on the store in memory."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.feeds.desk import NETWORK, Desk, running, until
from tocsin.feeds.agents import messages as module
from tocsin.feeds.agents.agent import Work
from tocsin.feeds.agents.live import Heard, LiveSubscriber
from tocsin.feeds.agents.messages import MessageAgent
from tocsin.model.catalogue import Column, Dataset, Feed, StreamSource, TopicSource
from tocsin.model.said import encode_said, reference_of
from tocsin.model.stream import Value
from tocsin.model.subjects import said_subject, subject_of
from tocsin.ports import BATCH_MAX, PAYLOAD_MAX_BYTES, Record

DATASET = Dataset("Data", (Column("topic", "STRING"), Column("metadata", "MAP<STRING, STRING>")))


def agent(desk: Desk, work: Work, live: LiveSubscriber | None = None) -> MessageAgent:
    return MessageAgent(work, desk.messages, NETWORK, live_max=4, live=live)


async def started(desk: Desk) -> None:
    """Wait until the feed has its cell: from there on it takes everything."""
    async with asyncio.timeout(10):
        while await desk.cells.get("feed.reports") is None:
            await asyncio.sleep(0.002)


async def test_messages_after_the_feeds_beginning_are_taken_in_order() -> None:
    desk = await Desk.open()
    await desk.publish("a/x", {"n": "before"})
    async with running(agent(desk, desk.work(TopicSource("a/#")))):
        await started(desk)
        for number, topic in enumerate(["a/x", "b/x", "a/y/z", "a"]):
            await desk.publish(topic, {"n": number})
        assert sorted(each["n"] for each in await desk.until_records(3)) == [0, 2, 3]


async def test_a_feed_begins_where_its_definition_says() -> None:
    desk = await Desk.open()
    await desk.publish("a", {"n": 0})
    since = await desk.publish("a", {"n": 1})
    await desk.publish("a", {"n": 2})
    work = desk.work(TopicSource("a"))
    work = Work(
        Feed("Reports", "Data", TopicSource("a"), since=since), work.outlet, work.counts, work.dataset
    )
    async with running(agent(desk, work)):
        assert await desk.until_records(1) == [{"n": 2}]


async def test_messages_are_judged_by_what_was_said_of_their_streams() -> None:
    desk = await Desk.open()
    work = desk.work(StreamSource("type = 'quake' AND strength > 3"), DATASET)
    async with running(agent(desk, work)):
        await started(desk)
        await desk.publish("s/1", {"n": 0}, keys={"type": "quake", "strength": 2})
        await desk.publish("s/2", {"n": 1}, keys={"type": "quake", "strength": 4})
        await desk.publish("s/3", {"n": 2})
        await desk.publish("s/2", {"n": 3}, keys={"type": "quake", "strength": 5})
        found = await desk.until_records(2)
    assert [each["n"] for each in found] == [1, 3]
    assert found[0]["topic"] == "s/2"
    assert found[0]["metadata"]["strength"] == "4"


async def test_a_feed_goes_on_where_it_was() -> None:
    desk = await Desk.open()
    async with running(agent(desk, desk.work(TopicSource("a")))):
        await started(desk)
        await desk.publish("a", {"n": 0})
        await desk.until_records(1)
    await desk.publish("a", {"n": 1})
    async with running(agent(desk, desk.work(TopicSource("a")))):
        await desk.publish("a", {"n": 2})
        assert [each["n"] for each in await desk.until_records(3)] == [0, 1, 2]
        assert len({entry.id for entry in await desk.entries()}) == 3


@pytest.mark.parametrize("source", [TopicSource("a/#"), StreamSource('type = "quake"')])
async def test_critical_messages_are_taken_too_and_marks_keep_their_names(
    source: TopicSource | StreamSource,
) -> None:
    """Marks are kept from a time when nothing was critical: a feed goes on from them."""
    desk = await Desk.open()
    work = desk.work(source)
    async with running(agent(desk, work)):
        await started(desk)
        for number in range(4):
            said = (("priority", "9"),) if number % 2 else ()
            await desk.publish("a/b", {"n": number}, keys={"type": "quake"}, user_properties=said)
        assert [each["n"] for each in await desk.until_records(4)] == [0, 1, 2, 3]
        await until(lambda: max(work.outlet.marks.values()) == 4, "the marks")
    assert all(lane.startswith(f"{NETWORK}.m") for lane in work.outlet.marks)


async def test_a_backlog_of_many_batches_is_taken_whole() -> None:
    desk = await Desk.open()
    async with running(agent(desk, desk.work(TopicSource("a")))):
        await started(desk)
    for number in range(2 * BATCH_MAX + 5):
        await desk.publish("a", {"n": number})
    work = desk.work(TopicSource("a"))
    async with running(agent(desk, work)):
        await until(lambda: work.counts.records == 2 * BATCH_MAX + 5, "the backlog")
    assert work.outlet.marks == {f"{NETWORK}.m.a": 2 * BATCH_MAX + 5}


async def test_a_non_object_payload_is_kept_and_an_unreadable_one_skipped() -> None:
    desk = await Desk.open()
    async with running(agent(desk, desk.work(TopicSource("#")))):
        await started(desk)
        await desk.publish("a", b"21.5")
        await desk.messages.append([Record(subject_of("a", NETWORK), b"damaged", "damaged")])
        await desk.publish("$own/a", {"n": 0})
        await desk.publish("a", b"7")
        assert await desk.until_records(2) == [21.5, 7]


async def test_a_record_that_the_log_does_not_take_is_cut() -> None:
    desk = await Desk.open()
    work = desk.work(TopicSource("#"), DATASET)
    async with running(agent(desk, work)):
        await started(desk)
        topic = "a" + "/b" * 100  # which the record says twice more: that is too much
        await desk.publish(topic, {"text": "x" * (PAYLOAD_MAX_BYTES - 400)})
        await until(lambda: work.counts.records == 1, "the record")
    (entry,) = await desk.entries()
    assert len(entry.payload) == PAYLOAD_MAX_BYTES


async def test_messages_trimmed_before_they_were_taken_count_as_missed() -> None:
    desk = await Desk.open()
    async with running(agent(desk, desk.work(TopicSource("a")))):
        await started(desk)
    for number in range(4):
        await desk.publish("a", {"n": number})
    await desk.messages.trim(before=3)
    work = desk.work(TopicSource("a"))
    async with running(agent(desk, work)):
        assert [each["n"] for each in await desk.until_records(2)] == [2, 3]
    assert work.counts.missed == 1


async def test_a_quiet_feed_misses_nothing_when_others_messages_are_trimmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 0.01)
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    desk = await Desk.open()
    work = desk.work(TopicSource("a"))
    async with running(agent(desk, work)):
        await started(desk)
        for number in range(5):
            await desk.publish("b", {"n": number})
        await until(lambda: work.outlet.marks == {f"{NETWORK}.m.a": 5}, "the look")
        async with asyncio.timeout(10):
            while (await desk.cell()).marks != work.outlet.marks:
                await asyncio.sleep(0.005)
    await desk.messages.trim(before=6)
    await desk.publish("a", {"n": 9})
    again = desk.work(TopicSource("a"))
    async with running(agent(desk, again)):
        assert await desk.until_records(1) == [{"n": 9}]
    assert again.counts.missed == 0


async def test_lag_counts_only_entries_that_concern_the_feed() -> None:
    desk = await Desk.open()
    work = desk.work(TopicSource("a"))
    idle = agent(desk, work)
    async with running(idle):
        await started(desk)
    await desk.publish("b", {})
    assert await idle.lag() == 0
    await desk.publish("a", {})
    await desk.publish("b", {})
    assert await idle.lag() == 2


class Whisper(LiveSubscriber):
    """A subscriber that hears what a test says."""

    def __init__(self, messages: list[Heard]) -> None:
        self.run = "run"
        self._messages = messages

    async def listen(self, hear) -> None:  # type: ignore[no-untyped-def]
        for each in self._messages:
            hear(each)
        await asyncio.Event().wait()


async def test_qos_0_messages_are_taken_and_the_oldest_dropped_over_the_bound() -> None:
    desk = await Desk.open()
    work = desk.work(TopicSource("a"), DATASET)
    heard = [Heard("a", b'{"n": %d}' % number, 0, {"room": "1"}) for number in range(6)]
    async with running(agent(desk, work, Whisper(heard))):
        found = await desk.until_records(4)
    assert [each["n"] for each in found] == [2, 3, 4, 5]
    assert found[0] == {"n": 2, "topic": "a", "metadata": {"room": "1"}}
    assert (work.counts.dropped, work.counts.live) == (2, 4)


async def test_metadata_that_messages_refer_to_are_found() -> None:
    desk = await Desk.open()
    keys: dict[str, Value] = {"type": "quake", "strength": 5, "words": "w" * 500}
    data = encode_said(keys)
    reference = reference_of(data)
    await desk.messages.append([Record(said_subject(reference, NETWORK), data, "said")])
    work = desk.work(StreamSource("type = 'quake' AND strength > 3"), DATASET)
    async with running(agent(desk, work)):
        await started(desk)
        await desk.publish("s/1", {"n": 1}, said=reference)
        await desk.publish("s/2", {"n": 2})
        await desk.publish("s/1", {"n": 3}, said=reference)
        found = await desk.until_records(2)
    assert [each["n"] for each in found] == [1, 3]
    assert found[0]["metadata"]["words"] == "w" * 500
