"""Counts the stored sessions of the network: how many the table has, and how many of each user all brokers together.

Each broker writes what it counts of its users into a cell of the network's table, and reads those of the others. The
cell expires when its broker is down (``core.budgets.session_quota``). A broker that counts nothing, as when nobody is
connected, does so more seldom; it does so again EVERY_S after there is something.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final

import structlog

from tocsin.core.budgets.session_quota import REPORT, Counts, SessionQuota
from tocsin.errors import TocsinError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Table
from tocsin.runtime.machines.clock import wall_us

EVERY_S: Final = 5.0
IDLE_TURNS: Final = 24  # of EVERY_S: so often does a broker look that counts nothing
KEPT_S: Final = 3 * EVERY_S  # a report, while its broker does not write another
PREFIX: Final = "sessions."


class SessionCensus:
    """One broker's part. ``quota`` is told what is found."""

    def __init__(self, sessions: Table, quota: SessionQuota, *, broker: str) -> None:
        self._sessions = sessions
        self._quota = quota
        self._key = PREFIX + broker
        self._reported = False  # whether there is a cell of ours
        self._log = structlog.get_logger()

    async def run(self, table: Table) -> None:
        """Count, for as long as the broker lives; ``table`` is the network's."""
        for turn in count():
            if turn % IDLE_TURNS == 0 or self._reported or not self._quota.is_idle:
                try:
                    usage = await self._sessions.usage()
                    self._quota.saw(usage.keys, usage.size)
                    await self.exchange(table)
                except TocsinError as error:
                    self._log.info("how many sessions are stored is not known", problem=str(error))
            await asyncio.sleep(EVERY_S)

    async def exchange(self, table: Table) -> None:
        """Say what is counted here, and read what is counted elsewhere."""
        report = self._quota.report(wall_us())
        if report:
            await table.put(self._key, REPORT.write(report), ttl_s=KEPT_S)
        elif self._reported:
            await table.delete(self._key)
        self._reported = bool(report)
        reports: list[Counts] = []
        for key in await table.keys(PREFIX):
            cell = None if key == self._key else await table.get(key)
            if cell is not None:
                try:
                    reports.append(REPORT.read(cell.value))
                except UNREADABLE as error:
                    self._log.info("a report of stored sessions is unreadable", key=key, problem=str(error))
        self._quota.heard(reports)
