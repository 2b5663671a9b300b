"""The tiers of routing brokers and the slots that each member carries, the same on every replica.

Who is in a tier follows from the brokers (``core.forwarding.routes``); who carries which slot is state: it follows from
what was before (``core.tiers.table``) and from the leader's ``Placed``. When a member is gone or shunned, its slots are
its deputies' in the same batch. Every broker is told: one small item, the same for all, however many filters there are.

Invariant: there is a table for each tier that carries for somebody, and for no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tocsin.core.tiers.slots import NOBODY, SLOTS, Slots
from tocsin.core.tiers.table import Moves, SlotTable
from tocsin.model.network import BrokerInfo
from tocsin.wire.internal.notices import Carriers, Item
from tocsin.wire.internal.slots import SlotMoves


class Tiers:
    """The slots of all tiers, in the replicated state."""

    def __init__(self) -> None:
        self.tables: dict[str, SlotTable] = {}
        self._moved: dict[str, Moves] = {}  # tier → slots that others carry since the last ``settle``
        self._named: dict[str, frozenset[str]] = {}  # tier → the members that brokers know by it
        self._parted: dict[str, None] = {}  # tiers of which other topics are apart since then
        self._gone: dict[str, None] = {}  # tiers that are no more
        self._readdressed: dict[str, None] = {}  # members that are reached elsewhere than before

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, tiers: Mapping[str, Collection[str]]) -> None:
        """These are the tiers, and who carries in each."""
        for tier in [each for each in self.tables if each not in tiers]:
            del self.tables[tier]
            self._moved.pop(tier, None)
            self._named.pop(tier, None)
            self._parted.pop(tier, None)
            self._gone[tier] = None
        for tier, members in tiers.items():
            table = self.tables.get(tier)
            if table is None:
                table = self.tables[tier] = SlotTable()
                self._gone.pop(tier, None)
            if table.members != tuple(sorted(members)):
                apart = table.apart
                self._moved.setdefault(tier, {}).update(table.follow(members))
                if table.apart != apart:
                    self._parted[tier] = None

    def place(
        self,
        tier: str,
        moves: Mapping[int, tuple[str, str]],
        apart: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """The leader has given slots to others, or has other topics apart; no effect on a tier that is gone by now."""
        if tier in self.tables:
            self._moved.setdefault(tier, {}).update(self.tables[tier].place(moves))
            if apart is not None and self.tables[tier].part(apart):
                self._parted[tier] = None

    def joined(self, broker: str) -> None:
        """A broker has come, or come back, perhaps to another address."""
        if any(broker in table.members for table in self.tables.values()):
            self._readdressed[broker] = None

    def restore(self, tier: str, slots: Slots) -> None:
        """A tier of a snapshot; who is in it follows from the brokers."""
        self.tables[tier] = SlotTable(slots)
        self._named[tier] = slots.members

    # ── what brokers are told ───────────────────────────────────────────────────────────────────────────────

    @property
    def changed(self) -> bool:
        return bool(self._moved or self._parted or self._gone or self._readdressed)

    def settle(self, infos: Mapping[str, BrokerInfo]) -> list[Item]:
        """What to tell everybody of what changed since the last call; ``infos`` are those of the members."""
        moved, self._moved = self._moved, {}
        parted, self._parted = self._parted, {}
        gone, self._gone = self._gone, {}
        readdressed, self._readdressed = self._readdressed, {}
        items: list[Item] = [Carriers(tier, gone=True) for tier in sorted(gone)]
        for tier, table in sorted(self.tables.items()):
            moves = moved.get(tier, {})
            known, self._named[tier] = self._named.get(tier, frozenset()), table.slots.members
            news = (self._named[tier] - known) | (readdressed.keys() & self._named[tier])
            if moves or news or tier in parted:
                items.append(_carriers(tier, moves, news, infos, table.apart if tier in parted else None))
        return items

    def everything(self, infos: Mapping[str, BrokerInfo]) -> Iterator[Item]:
        """All that a broker has to know."""
        for tier, table in sorted(self.tables.items()):
            slots = table.slots
            moves = {slot: (slots.carriers[slot], slots.deputies[slot]) for slot in range(SLOTS)}
            yield _carriers(tier, moves, slots.members, infos, slots.apart)


def _carriers(
    tier: str,
    moves: Moves,
    named: Collection[str],
    infos: Mapping[str, BrokerInfo],
    apart: Mapping[str, tuple[str, ...]] | None,
) -> Carriers:
    peers = tuple(infos[each] for each in sorted(named) if each != NOBODY and each in infos)
    return Carriers(tier, SlotMoves.of(moves), peers, apart=None if apart is None else dict(apart))
