"""One process of a kind (a pipeline, a feeder): a cell that its holder renews, and that expires when it no longer does.

The lease keeps a second pipeline from starting beside the first. It is not what makes results exact: a commit names
its tick, and of two pipelines that believe to be the only one, the second to commit a tick finds the other's there,
and stops. A holder on the same machine whose process is gone is not waited for.

It is not the lease of the leadership (``core.coordination.leader.lease``), which follows other rules: decision 051.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

import msgspec
import psutil

from tocsin.errors import Conflict, StoreError, TocsinError
from tocsin.model.versions import UNREADABLE, Document
from tocsin.ports import Cell, Table

KEY: Final = "lease"
TTL_S: Final = 10.0
RENEW_S: Final = 2.5
POLL_S: Final = 0.5


class LeaseLost(TocsinError):
    """Another process of the kind runs for this network."""

    fault = "environment"
    retryable = True

    def __init__(self, holder: str, what: str = "pipeline") -> None:
        self.holder = holder
        super().__init__(f"another {what} of this network runs at {holder}; stop one of the two")


class LeaseHolder(msgspec.Struct, frozen=True):
    run: str
    host: str
    pid: int
    started_us: int  # of the process: a number may be given twice

    @property
    def shown(self) -> str:
        return f"{self.host}, process {self.pid}"


def this_process(run: str) -> LeaseHolder:
    return LeaseHolder(run, socket.gethostname(), os.getpid(), _started_us(os.getpid()))


class ProcessLease:
    """Ours, once ``acquire`` returns; ``what`` is the kind of process that there is one of."""

    def __init__(self, table: Table, run: str, what: str = "pipeline") -> None:
        self._table = table
        self._what = what
        self._holder = this_process(run)
        self._revision = 0

    async def acquire(self, waiting: Callable[[str], None] = lambda holder: None) -> None:
        """Wait until nobody else has it."""
        while True:
            cell = await self._table.get(KEY)
            if cell is None or _is_gone(cell):
                try:
                    self._revision = await self._write(0 if cell is None else cell.revision)
                    return
                except Conflict:
                    continue
            waiting(_holder(cell).shown)
            await asyncio.sleep(POLL_S)

    async def keep(self) -> None:
        """Renew it until cancelled; ``LeaseLost`` if somebody else has it."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                self._revision = await self._write(self._revision)
            except Conflict:
                cell = await self._table.get(KEY)
                if cell is not None and _holder(cell).run != self._holder.run:
                    raise LeaseLost(_holder(cell).shown, self._what) from None
                self._revision = 0 if cell is None else cell.revision
            except StoreError:
                continue  # the store is away; so it is for others

    async def release(self) -> None:
        try:
            await self._table.delete(KEY, revision=self._revision)
        except StoreError:
            return  # it ends by itself

    async def _write(self, revision: int) -> int:
        value = HOLDER.write(self._holder)
        return await self._table.compare_and_set(KEY, value, revision=revision, ttl_s=TTL_S)


HOLDER: Final = Document("the lease of the pipeline", msgspec.json.Decoder(LeaseHolder))


def _holder(cell: Cell) -> LeaseHolder:
    try:
        return HOLDER.read(cell.value)
    except UNREADABLE:
        return LeaseHolder("", "unknown", 0, 0)


def _is_gone(cell: Cell) -> bool:
    holder = _holder(cell)
    return holder.host == socket.gethostname() and _started_us(holder.pid) != holder.started_us


def _started_us(pid: int) -> int:
    """When a process began; 0 if there is none, or it has ended."""
    try:
        process = psutil.Process(pid)
        return 0 if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time() * 1e6)
    except psutil.Error:
        return 0
