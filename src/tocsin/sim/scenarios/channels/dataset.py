"""The results dataset: what the pipeline commits, and how brokers read it.

A tick's files are entries of one log. The pipeline appends them at once: that is the commit. A broker reads them
through its port to result files (``broker.channels.result_reader``), two results at a time, new ones with pauses: so
something else can happen in between. There is no old news of a dataset.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Final

import msgspec

from tocsin.broker.channels.result_reader import Rows
from tocsin.errors import ResultsUnreachable, StoreError
from tocsin.model.catalogue import Channel, Parameter
from tocsin.model.priority import CRITICAL
from tocsin.model.results import k_of
from tocsin.ports import Entry, LogSpec
from tocsin.results.reader import NO_CACHE, Result
from tocsin.runtime.machines.clock import random_bits
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import NETWORK

FILES: Final = LogSpec(f"{NETWORK}-files", (f"{NETWORK}.files.>",))
CHANNEL: Final = Channel("Near", (Parameter("who", "STRING"),), (), "")
LOT: Final = 2  # results that one read brings: few, so that catching up takes several
PAUSE_BITS: Final = 16  # each takes up to 65 ms
TICK: Final = 1_000  # a result's number is its tick, so many times, and its ordinal


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A result."""

    ordinal: int
    k: str
    critical: bool = False


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A file: a tick's results for one broker."""

    tick: int
    seen: int  # the revision of the table of subscriptions that the tick knew
    broker: str
    rows: tuple[Row, ...]


_parts = msgspec.msgpack.Decoder(Part)


def part_of(entry: Entry) -> Part:
    return _parts.decode(entry.payload)


def files_subject(tick: int) -> str:
    return f"{NETWORK}.files.{tick}"


def number_of(tick: int, ordinal: int) -> int:
    """By which clients know a result."""
    return tick * TICK + ordinal


@cache
def meant_by(name: str) -> str:
    """The k of a subscription."""
    return k_of(CHANNEL.name, (name.rsplit("/", 1)[1],))


class SimulatedFiles:
    """``ResultFiles`` of one broker's process."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._read: dict[int, list[Part]] = {}  # by tick: files do not change

    def warm(self) -> None:
        """There is nothing to load."""

    def statistics(self) -> dict[str, int]:
        return NO_CACHE

    async def some(self, rows: Rows, limit: int) -> list[Result]:
        tick = rows.notice.tick
        if tick not in self._read:
            self._read[tick] = await self._parts(tick)
        if rows.broker:  # a broker that is behind would take longer to catch up than a run lasts
            await asyncio.sleep(random_bits(PAUSE_BITS) / 1e6)
        wanted = {
            row.ordinal: row
            for part in self._read[tick]
            for row in part.rows
            if (part.broker == rows.broker or row.k in rows.ks) and row.ordinal >= (rows.start or 0)
        }
        ordinals = sorted(wanted)
        lot = ordinals[: min(limit, LOT)]
        rows.start = lot[-1] + 1 if len(lot) < len(ordinals) else None
        return [self._result(tick, wanted[ordinal]) for ordinal in lot]

    async def _parts(self, tick: int) -> list[Part]:
        log = await self._process.store.log(FILES)
        try:
            page = await log.read(files_subject(tick), 0, fresh=True)
        except StoreError as error:
            raise ResultsUnreachable(files_subject(tick), str(error)) from error
        return [part_of(entry) for entry in page.entries]

    @staticmethod
    def _result(tick: int, row: Row) -> Result:
        priority = CRITICAL if row.critical else 0
        payload = str(number_of(tick, row.ordinal)).encode()
        return Result(row.ordinal, CHANNEL.name, tick, row.k, priority, payload)
