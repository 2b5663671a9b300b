"""The network as a coordinator's door sees it: the replica of the log, and how full brokers are.

The leader hears how full brokers are with their heartbeats, and says so in its status once a second; the other
coordinators read it there. Where it is not known a broker counts as empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tocsin.coordinator.status import read_all
from tocsin.core.coordination.coordinator import Coordinator, CoordinatorState
from tocsin.core.door.choice import Directory
from tocsin.errors import TocsinError
from tocsin.ports import Table

NOT_YET: Final = (CoordinatorState.NEW, CoordinatorState.RESTORING)


class View:
    """What one coordinator knows of the network, for its door."""

    def __init__(self, machine: Coordinator, table: Table) -> None:
        self._machine = machine
        self._table = table
        self._loads: Mapping[str, int] = {}
        self._made: tuple[object, int, Mapping[str, int]] | None = None  # of which the directory is
        self._directory: Directory | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator has read the log."""
        return self._machine.state not in NOT_YET

    async def look(self) -> None:
        """Learn anew how full brokers are. Nothing depends on it; a failure is not worth more than the next try."""
        leader = self._machine.leader
        if leader is not None:
            self._loads = leader.attention.loads()
            return
        try:
            found = [each for each in await read_all(self._table) if each.role == "leader"]
        except TocsinError:
            return
        if found:
            self._loads = max(found, key=lambda each: each.epoch).loads

    def directory(self) -> Directory:
        """The network now."""
        state = self._machine.replica
        made = (state, state.commands, self._loads)
        if self._directory is None or self._made is None or not _same(made, self._made):
            self._made = made
            self._directory = Directory(
                (member.info for member in state.members.values()),
                plan=state.survival.plan,
                vacancies=dict(state.survival.vacancies),
                loads=self._loads,
                filters=self._filters,
                published_at=self._published_at,
            )
        return self._directory

    def _filters(self, broker: str) -> Collection[str]:
        member = self._machine.replica.members.get(broker)
        return () if member is None else member.filters

    def _published_at(self, client: str) -> str | None:
        found = self._machine.replica.presence.clients.get(client)
        return None if found is None else found.broker


def _same(made: tuple[object, int, object], before: tuple[object, int, object]) -> bool:
    return made[0] is before[0] and made[1] == before[1] and made[2] == before[2]
