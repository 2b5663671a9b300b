"""V-A's and V-C's clients: publishers in one process, subscribers in another, each a client of its own.

A message carries when it was sent, by whom, and whether a change of metadata travels with it. It has arrived when the
subscriber's program is given it. Both use ``tocsin.client``, so that what is measured is what a program sees; for the
paper's own broker they use a client that speaks its protocol (``original``).
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from array import array
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.client.subscription import Subscription
from tocsin_demo import worker
from tocsin_demo.worker import Desk
from tocsin_labs.cqbs.original import OriginalClient, OriginalQuery

HEADER: Final = struct.Struct("<QIB")  # sent (monotonic, ns), number of the publisher, and one of these:
STEADY: Final = 0  # metadata are as they were
FIRST: Final = 1  # the stream's first message, with which its metadata come
CHANGED: Final = 2  # other metadata come with it
AT_ONCE: Final = 50  # clients that connect at a time
NEWS_S: Final = 0.25
ROW: Final = 5  # numbers of a sample: sent, arrived, subscriber, publisher, changed
INBOX_MAX: Final = 1_000_000


class Subscriber(msgspec.Struct, frozen=True):
    host: str
    port: int
    query: str


class SubscribersJob(msgspec.Struct, frozen=True):
    subscribers: tuple[Subscriber, ...]
    raw: str  # the file to write
    original: bool = False  # the broker is the paper's


class Publisher(msgspec.Struct, frozen=True):
    host: str
    port: int
    topic: str
    key: str  # of the metadata that decides who gets its messages
    values: tuple[str, ...]  # those that it takes in turn, from the first


class PublishersJob(msgspec.Struct, frozen=True):
    publishers: tuple[Publisher, ...]
    rate: float  # messages a second of each
    seconds: float
    seed: int
    change_s: tuple[float, float] | None = None  # between two changes of metadata; None: there are none
    original: bool = False  # the broker is the paper's


# ── subscribers ──────────────────────────────────────────────────────────────────────────────────────────────


async def subscribe(job: SubscribersJob, desk: Desk) -> None:
    rows = array("q")
    async with AsyncExitStack() as stack:
        clients = [
            _client(each.host, each.port, f"subscriber-{n}", original=job.original)
            for n, each in enumerate(job.subscribers)
        ]
        await _some_at_a_time([stack.enter_async_context(client) for client in clients])
        inboxes = [client.query(each.query) for client, each in zip(clients, job.subscribers, strict=True)]
        await _some_at_a_time([inbox.open() for inbox in inboxes])
        reading = [asyncio.create_task(_read(inbox, n, rows)) for n, inbox in enumerate(inboxes)]
        desk.tell("ready")
        while await desk.pause(NEWS_S):
            desk.tell("progress", len(rows) // ROW)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    _write(Path(job.raw), rows)
    desk.tell("done", len(rows) // ROW, dropped=sum(client.dropped for client in clients))


async def _read(inbox: Subscription | OriginalQuery, number: int, rows: array[int]) -> None:
    clock, unpack, extend = time.monotonic_ns, HEADER.unpack, rows.extend
    async for message in inbox:
        arrived = clock()
        sent, publisher, changed = unpack(message.payload)
        extend((sent, arrived, number, publisher, changed))


def _write(path: Path, rows: array[int]) -> None:
    samples = sorted(tuple(rows[at : at + ROW]) for at in range(0, len(rows), ROW))
    began = samples[0][0] if samples else 0
    with path.open("w") as file:
        file.write("sent_s,latency_ms,subscriber,publisher,changed\n")
        for sent, arrived, subscriber, publisher, changed in samples:
            file.write(
                f"{(sent - began) / 1e9:.6f},{(arrived - sent) / 1e6:.3f},{subscriber},{publisher},{changed}\n"
            )


# ── publishers ───────────────────────────────────────────────────────────────────────────────────────────────


async def publish(job: PublishersJob, desk: Desk) -> None:
    chance = random.Random(job.seed)
    async with AsyncExitStack() as stack:
        clients = [
            _client(each.host, each.port, f"publisher-{n}", original=job.original)
            for n, each in enumerate(job.publishers)
        ]
        await _some_at_a_time([stack.enter_async_context(client) for client in clients])
        desk.tell("ready")
        sent = [0] * len(clients)
        sending = [
            asyncio.create_task(_send(client, number, job, random.Random(chance.random()), sent, desk))
            for number, client in enumerate(clients)
        ]
        everybody = asyncio.gather(*sending)
        while not everybody.done():
            await asyncio.wait((everybody,), timeout=NEWS_S)
            desk.tell("progress", sum(sent))
        changes = sum(everybody.result())
        for client in clients:
            await client.flush()
    desk.tell("done", sum(sent), changes=changes)


async def _send(
    client: AsyncClient | OriginalClient,
    number: int,
    job: PublishersJob,
    chance: random.Random,
    sent: list[int],
    desk: Desk,
) -> int:
    """Publish for as long as the job says; how often the metadata changed."""
    each, period_s, clock = job.publishers[number], 1 / job.rate, asyncio.get_running_loop().time
    stream = client.stream(each.topic, {each.key: each.values[0]})
    began = clock()
    due = began + chance.uniform(0, period_s)
    # The first change comes anywhere in the time between two, so that not all come at once.
    change_due = began + chance.uniform(0, job.change_s[1]) if job.change_s else float("inf")
    changes, at = 0, 0
    while due < began + job.seconds:
        await asyncio.sleep(due - clock())
        if desk.stop.is_set():
            break
        if job.change_s and due >= change_due and sent[number]:
            changes += 1
            at = (at + 1) % len(each.values)
            change_due = due + chance.uniform(*job.change_s)
            payload = HEADER.pack(time.monotonic_ns(), number, CHANGED)
            await stream.publish(payload, {each.key: each.values[at]})
        else:
            kind = STEADY if sent[number] else FIRST
            await stream.publish(HEADER.pack(time.monotonic_ns(), number, kind))
        sent[number] += 1
        due += period_s
    return changes


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _client(host: str, port: int, name: str, *, original: bool) -> AsyncClient | OriginalClient:
    if original:
        return OriginalClient(host, port)
    return AsyncClient([Server(host, port)], client_id=name, inbox_max=INBOX_MAX)


async def _some_at_a_time(works: Sequence[Awaitable[object]]) -> None:
    turnstile = asyncio.Semaphore(AT_ONCE)

    async def pass_through(each: Awaitable[object]) -> None:
        async with turnstile:
            await each

    await asyncio.gather(*map(pass_through, works))


if __name__ == "__main__":
    worker.main({"subscribers": (SubscribersJob, subscribe), "publishers": (PublishersJob, publish)})
