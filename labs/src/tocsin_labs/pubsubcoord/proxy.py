"""A place between two others that delays what passes: for peers whose own connections cannot be told to.

Each connection that is accepted is joined to one that is dialled, and that one has lag in each direction.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import msgspec

from tocsin.runtime.faults.partition import CuttableLoop
from tocsin_demo import worker
from tocsin_demo.worker import Desk
from tocsin_labs.pubsubcoord.crowd import lagged

MODULE: Final = "tocsin_labs.pubsubcoord.proxy"
READ_BYTES: Final = 1 << 16

Address = tuple[str, int]


class Job(msgspec.Struct, frozen=True):
    joins: tuple[tuple[Address, Address], ...]  # where it listens, and what it dials
    lag_s: float


async def work(job: Job, desk: Desk) -> None:
    lagged([to for _, to in job.joins], job.lag_s)
    servers = [await _listen(at, to) for at, to in job.joins]
    desk.tell("ready")
    await desk.stop.wait()
    for server in servers:
        server.close()
    desk.tell("done")


async def _listen(at: Address, to: Address) -> asyncio.Server:
    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ExceptionGroup):
            other_reader, other_writer = await asyncio.open_connection(*to)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass(reader, other_writer))
                both.create_task(_pass(other_reader, writer))
        writer.close()

    return await asyncio.start_server(join, *at)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(READ_BYTES):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("one side has closed")


if __name__ == "__main__":
    worker.main({"proxy": (Job, work)}, CuttableLoop)
