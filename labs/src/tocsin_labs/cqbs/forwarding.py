"""How a crowd is run, and what became of its messages: the common part of V-A and V-C.

Every message is wanted by exactly one subscriber, so that as many have to arrive as were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from tocsin_demo.worker import News, Worker
from tocsin_labs.cqbs.crowd import CHANGED, FIRST, PublishersJob, SubscribersJob
from tocsin_labs.figures import Spread
from tocsin_labs.stage import Stage

CROWD: Final = "tocsin_labs.cqbs.crowd"
ARRIVE_S: Final = 5.0  # after the last message was sent


class Forwarded(msgspec.Struct, frozen=True):
    """The outcome of the messages of a crowd."""

    subscribers: int
    publishers: int
    sent: int
    arrived: int
    changes: int  # of metadata, after each stream's first
    all: Spread | None  # milliseconds from publish to arrival
    first: Spread | None  # of the first of each stream
    changing: Spread | None  # of those that brought other metadata with them
    dropped: int = 0  # by subscribers that were too slow to read
    partial: bool = False


async def forward(stage: Stage, words: str, crowd: SubscribersJob, job: PublishersJob) -> Forwarded:
    """Run a crowd to its end, or until it is cut short."""
    total = max(1.0, len(job.publishers) * job.rate * job.seconds)
    async with AsyncExitStack() as stack:
        subscribers = await Worker.start(CROWD, "subscribers", crowd)
        stack.push_async_callback(subscribers.close)
        stage.tell(f"{words}: subscribers come", 0.0)
        await subscribers.until("ready")
        publishers = await Worker.start(CROWD, "publishers", job)
        stack.push_async_callback(publishers.close)

        def hear(news: News) -> None:
            stage.tell(words, min(1.0, news.count / total))

        listening = asyncio.create_task(_listen(subscribers))
        try:
            async with stage.ends(publishers):
                sent = await publishers.until("done", hear)
            await _arrive(subscribers, sent.count)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        arrived = await subscribers.finished()
    rows = read(Path(crowd.raw))
    return Forwarded(
        subscribers=len(crowd.subscribers),
        publishers=len(job.publishers),
        sent=sent.count,
        arrived=arrived.count,
        changes=sent.found["changes"],
        all=Spread.of(latency for _, latency, _ in rows),
        first=Spread.of(latency for _, latency, kind in rows if kind == FIRST),
        changing=Spread.of(latency for _, latency, kind in rows if kind == CHANGED),
        dropped=arrived.found["dropped"],
        partial=stage.is_cut,
    )


async def _listen(worker: Worker) -> None:
    while True:
        await worker.news()


async def _arrive(subscribers: Worker, sent: int) -> None:
    """Wait for what is under way, within reason: QoS 0 is best effort."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ARRIVE_S):
            while subscribers.count < sent:
                subscribers.counted.clear()
                await subscribers.counted.wait()


def read(path: Path) -> list[tuple[float, float, int]]:
    """When each message was sent (s), its latency (ms), and which kind it was (see ``crowd``)."""
    with path.open(newline="") as file:
        return [
            (float(row["sent_s"]), float(row["latency_ms"]), int(row["changed"]))
            for row in csv.DictReader(file)
        ]
