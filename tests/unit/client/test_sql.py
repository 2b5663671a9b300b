"""Scripts to a pipeline, over a bus in memory."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tocsin.client.sql import Answer, Heading, Pipeline, Problem, Reply
from tocsin.errors import DeadlineExceeded, FormatNewer, Malformed, OperatorError
from tocsin.ports import BusMessage
from tocsin.store.memory.store import MemoryServer, MemoryStore


def pipeline(store: MemoryStore, *, wait_s: float = 0.0) -> Pipeline:
    return Pipeline(store.bus, "net", wait_s=wait_s, on_wait=lambda: None)


async def test_a_script_is_answered_with_tables_and_words() -> None:
    store = MemoryStore(MemoryServer())
    asked: list[object] = []

    async def answer(delivery: BusMessage) -> bytes:
        asked.append(msgspec.json.decode(delivery.payload))
        return msgspec.json.encode(Reply((Answer("SELECT", (Heading("n", "INT"),), ((1,),), message=""),)))

    async with store.bus.serve("net.pipeline.sql.operator", answer):
        reply = await pipeline(store).run("SELECT 1 AS n", limit=7)
    assert asked == [{"v": 1, "text": "SELECT 1 AS n", "limit": 7}]
    assert reply.error is None and list(reply.results[0].objects()) == [{"n": 1}]


async def test_an_answer_of_a_newer_release_is_refused_with_what_to_do() -> None:
    store = MemoryStore(MemoryServer())

    async def newer(delivery: BusMessage) -> bytes:
        return b'{"v":2,"results":[],"error":null}'

    async with (
        store.bus.serve("net.pipeline.sql.operator", newer),
        store.bus.serve("net.pipeline.status", newer),
        store.bus.serve("net.feeder.status", newer),
    ):
        asking = pipeline(store)
        for ask in (lambda: asking.run("SHOW FEEDS"), asking.status, asking.feeder_status):
            with pytest.raises(FormatNewer, match="Upgrade this process"):
                await ask()


async def test_who_does_not_understand_the_question_says_so() -> None:
    store = MemoryStore(MemoryServer())

    async def older(delivery: BusMessage) -> bytes:
        return b'{"v":1,"error":"a question for a status is of format version 2"}'

    async with store.bus.serve("net.pipeline.status", older):
        with pytest.raises(OperatorError, match="of the network's release"):
            await pipeline(store).status()


async def test_the_pipelines_own_replies_are_understood() -> None:
    answers = pytest.importorskip("tocsin.pipeline.definitions.answers", exc_type=ImportError)
    theirs = Reply(
        (Answer("SHOW", answers.headings(["name"]), (("Reports",),), True, "words"),),
        Problem("no such thing", 2, 3, "look"),
    )
    assert msgspec.json.decode(answers.encode_reply(theirs), type=Reply) == theirs


async def test_without_a_pipeline_one_is_told_how_to_start_it() -> None:
    with pytest.raises(OperatorError) as caught:
        await pipeline(MemoryStore(MemoryServer())).run("SHOW FEEDS")
    assert "no pipeline answers" in caught.value.problem and "tocsin up" in caught.value.remedy


async def test_a_pipeline_that_comes_later_is_waited_for() -> None:
    store = MemoryStore(MemoryServer())
    serving = store.bus.serve("net.pipeline.status", tell)
    waits: list[str] = []

    def on_wait() -> None:
        waits.append("waits")

    asking = Pipeline(store.bus, "net", wait_s=60.0, on_wait=on_wait)
    question = asyncio.create_task(asking.status())
    while not waits:
        await asyncio.sleep(0)
    async with serving:
        assert await question == {"tick": 3}
    assert waits == ["waits"]


async def tell(delivery: BusMessage) -> bytes:
    return b'{"tick": 3}'


async def test_a_slow_answer_and_a_broken_one_are_errors() -> None:
    store = MemoryStore(MemoryServer())

    async def rubbish(delivery: BusMessage) -> bytes:
        return b"<html>"

    async with store.bus.serve("net.pipeline.sql.operator", rubbish):
        with pytest.raises(Malformed):
            await pipeline(store).run("SHOW FEEDS")

    async def silence(delivery: BusMessage) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with store.bus.serve("net.pipeline.sql.operator", silence):
        with pytest.raises(DeadlineExceeded):
            await pipeline(store).run("SHOW FEEDS", deadline_s=0.01)


async def test_a_network_without_a_feeder_has_no_agents() -> None:
    assert await pipeline(MemoryStore(MemoryServer())).feeder_status() == {"feeds": [], "http": ""}
