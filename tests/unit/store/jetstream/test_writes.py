"""A lot of writes is answered at once, and those who wait for it go on by slices."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from tocsin.store.jetstream.lots import LOT_MIN
from tocsin.store.jetstream.stream import JetStream
from tocsin.store.jetstream.writes import TOLD_AT_ONCE, Writes

NEWEST = 1_000


class Connection:
    """A server that answers when it is told to."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def ask(self, subject: str, value: bytes, timeout_s: float, lines: bytes) -> SimpleNamespace:
        await self.may_answer.wait()
        return SimpleNamespace(payload=b'{"stream": "s", "seq": 1}')


class AnsweredWrites(Writes):
    """Writes to such a server, which takes every lot."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(cast(JetStream, SimpleNamespace(connection=connection)), "write")
        self.lots: list[int] = []
        self._server = connection

    async def _ask(self, lot: Sequence[Any], timeout_s: float) -> int:
        self.lots.append(len(lot))
        await self._server.may_answer.wait()
        return NEWEST


async def test_those_who_wait_for_a_lot_go_on_by_slices() -> None:
    connection = Connection()
    writes = AnsweredWrites(connection)
    for number in range(LOT_MIN):
        alone = asyncio.create_task(writes.publish(f"alone{number}", b"", b"", 1.0))
    lots = [
        asyncio.create_task(writes.publish(f"lot{number}", b"", b"", 1.0))
        for number in range(LOT_MIN + 4 * TOLD_AT_ONCE)
    ]
    await asyncio.sleep(0)
    connection.may_answer.set()
    done = [0]
    while done[-1] < len(lots):
        await asyncio.sleep(0)
        done.append(sum(each.done() for each in lots))
    assert alone.done() and writes.lots == [LOT_MIN, 4 * TOLD_AT_ONCE]
    assert max(after - before for before, after in itertools.pairwise(done)) <= TOLD_AT_ONCE
    positions = [each.result()[0] for each in lots[LOT_MIN:]]
    assert positions == [*range(NEWEST - 4 * TOLD_AT_ONCE + 1, NEWEST + 1)]
