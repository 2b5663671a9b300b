"""Placing: when the leader moves slots between the members of a tier, and which.

    a member comes, or slots went to deputies ──► GATHER_US in which nothing else happens
        ──► the moves that have all members carry alike (``core.tiers.placing``) ──► ``Placed``

A routing broker that an operator has emptied (``tocsin drain``) gives its slots up in the same way. A member that has
come carries nothing before it has applied its first notice: until then it has no routes onward. Slots of a member that
is gone are its deputies' already (``core.coordination.state.tiers``); evening out can wait for others that fail or come
at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tocsin.core.coordination.leader.pinning import Pins
from tocsin.core.coordination.state.state import State
from tocsin.core.tiers.placing import even
from tocsin.wire.internal.commands import Placed
from tocsin.wire.internal.slots import SlotMoves

GATHER_US: Final = 1_500_000


class Placing:
    """Looks for slots to move, for one leader. ``ready``: whether a member has applied a notice; ``emptied`` names the
    brokers that are to carry nothing, and ``pins`` who has to carry which slots."""

    def __init__(
        self,
        state: State,
        ready: Callable[[str], bool],
        emptied: Callable[[], Collection[str]],
        pins: Pins,
    ) -> None:
        self._state = state
        self._ready = ready
        self._emptied = emptied
        self._pins = pins
        self._seen: dict[str, object] = {}  # tier → how it was when it changed last
        self._since_us: dict[str, int] = {}  # tier → when that was
        self._even: set[str] = set()  # tiers in which there was nothing to move since then

    def look(self, now_us: int) -> list[Placed]:
        """The commands for the log; at most one for each tier."""
        tables = self._state.tiers.tables
        for tier in [each for each in self._seen if each not in tables]:
            del self._seen[tier], self._since_us[tier]
        placed = []
        for tier, table in sorted(tables.items()):
            leaving = frozenset(self._emptied()) & {*table.members}
            ready = tuple(each for each in table.members if each not in leaving and self._ready(each))
            pins = self._pins.of(tier)
            now = (ready, leaving, pins, table.slots)
            if self._seen.get(tier) != now:
                self._seen[tier], self._since_us[tier] = now, now_us
                self._even.discard(tier)
            elif tier not in self._even and now_us - self._since_us[tier] >= GATHER_US:
                self._even.add(tier)
                moves = even(table.slots, ready, leaving, pins)
                if moves:
                    self._even.discard(tier)
                    placed.append(Placed(tier, SlotMoves.of(moves)))
        return placed
