"""Load generators as processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tocsin.errors import OperatorError
from tocsin_demo.worker import Worker
from tocsin_labs.stage import Stage

DEADLINE_S = 30.0
PROGRAM = """
import msgspec
from tocsin_demo import worker

class Job(msgspec.Struct):
    words: str

async def work(job, desk):
    if job.words == "fail":
        raise SystemExit(3)
    desk.tell("ready")
    desk.tell("progress", 1)
    if job.words == "obey":
        while not desk.stop.is_set():
            order = await desk.orders.get()
            desk.tell("progress", order["count"])
    went_on = await desk.pause(600)
    desk.tell("done", 2, words=job.words, went_on=went_on)

worker.main({"one": (Job, work)})
"""


class Job(msgspec.Struct, frozen=True):
    words: str


@pytest.fixture
async def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Worker]]:
    (tmp_path / "labouring.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started: list[Worker] = []
    yield started
    for worker in started:
        await worker.close()


async def start(workers: list[Worker], words: str) -> Worker:
    workers.append(await Worker.start("labouring", "one", Job(words)))
    return workers[-1]


async def test_a_worker_is_given_its_job_and_says_how_far_it_is(workers: list[Worker]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        worker = await start(workers, "höre")
        await worker.until("ready")
        await worker.until("progress")
        assert worker.count == 1
        found = await worker.finished()
    assert (found.count, found.found) == (2, {"words": "höre", "went_on": False})


async def test_a_worker_is_given_orders_in_between(workers: list[Worker]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        worker = await start(workers, "obey")
        await worker.until("progress")
        for count in (5, 6):
            await worker.order(count=count)
            await worker.until("progress")
            assert worker.count == count


async def test_an_experiment_that_is_cut_short_gets_what_its_worker_has(
    workers: list[Worker], tmp_path: Path
) -> None:
    stage = Stage(tmp_path, lambda words, part: None)
    async with asyncio.timeout(DEADLINE_S):
        worker = await start(workers, "more")
        await worker.until("ready")
        async with stage.ends(worker):
            stage.cut()
            found = await worker.until("done")
    assert found.count == 2
    assert stage.is_cut


async def test_a_worker_that_ends_without_being_done_is_an_error_in_words(workers: list[Worker]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        worker = await start(workers, "fail")
        with pytest.raises(OperatorError, match="ended with code 3"):
            await worker.until("ready")


async def test_a_worker_is_ended_wherever_it_is(workers: list[Worker]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        worker = await start(workers, "stay")
        await worker.until("ready")
        await worker.close()
        with pytest.raises(OperatorError, match="ended with code -9"):
            await worker.until("done")
