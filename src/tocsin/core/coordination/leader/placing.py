"""Placing: when the leader moves slots between the members of a tier, and which.

    a member comes, or slots went to deputies ──► GATHER_US in which nothing else happens
        ──► the moves that have all members carry alike (``core.tiers.placing``) ──► ``Placed``

A member that has come carries nothing before it has applied its first notice: until then it has no routes onward. Slots
of a member that is gone are its deputies' already (``core.coordination.state.tiers``); evening out can wait for others
that fail or come at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tocsin.core.coordination.state.state import State
from tocsin.core.tiers.placing import even
from tocsin.core.tiers.slots import Slots
from tocsin.wire.internal.commands import Placed
from tocsin.wire.internal.slots import SlotMoves

GATHER_US: Final = 1_500_000


class Placing:
    """Looks for slots to move, for one leader. ``ready``: whether a member has applied a notice."""

    def __init__(self, state: State, ready: Callable[[str], bool]) -> None:
        self._state = state
        self._ready = ready
        self._seen: dict[str, tuple[tuple[str, ...], Slots]] = {}  # tier → how it was when it changed last
        self._since_us: dict[str, int] = {}  # tier → when that was

    def look(self, now_us: int) -> list[Placed]:
        """The commands for the log; at most one for each tier."""
        tables = self._state.tiers.tables
        for tier in [each for each in self._seen if each not in tables]:
            del self._seen[tier], self._since_us[tier]
        placed = []
        for tier, table in sorted(tables.items()):
            ready = tuple(each for each in table.members if self._ready(each))
            now = (ready, table.slots)
            if self._seen.get(tier) != now:
                self._seen[tier], self._since_us[tier] = now, now_us
            elif now_us - self._since_us[tier] >= GATHER_US:
                moves = even(table.slots, ready)
                if moves:
                    placed.append(Placed(tier, SlotMoves.of(moves)))
        return placed
