"""The slots of one tier: who carries each, and who is its deputy. The same on every replica.

Topics that are apart from their slots are here too. One whose members are all gone is in its slot again.

``follow`` is told who is in the tier. A slot whose carrier is gone goes to its deputy, which other brokers use already;
a slot without a deputy gets another. A member that comes has no slots: the leader places them (``placing``, ``place``).

Invariants, while the tier has members:

- every slot has one carrier, which is a member;
- every slot has a deputy, which is another member, if there are two members or more;
- the deputies of one carrier's slots are as many members as possible, so that its loss burdens all others alike.

Cost: a member that goes costs its slots times the members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from tocsin.core.tiers.slots import NOBODY, SLOTS, Slots

Moves = dict[int, tuple[str, str]]  # slot → its carrier and its deputy


class SlotTable:
    """The assignment of one tier's slots to its members."""

    def __init__(self, slots: Slots | None = None) -> None:
        known = Slots() if slots is None else slots
        self.members: tuple[str, ...] = tuple(sorted(known.members))
        self._carriers = list(known.carriers)
        self._deputies = list(known.deputies)
        self.apart: dict[str, tuple[str, ...]] = dict(known.apart)

    @property
    def slots(self) -> Slots:
        return Slots(tuple(self._carriers), tuple(self._deputies), self.apart)

    def carried(self) -> Counter[str]:
        """How many slots each member carries; 0 counts too."""
        counts = Counter(dict.fromkeys(self.members, 0))
        counts.update(self._carriers)
        return counts

    def follow(self, members: Collection[str]) -> Moves:
        """These are the members from now on; return the slots that have another carrier or deputy."""
        self.members = tuple(sorted(members))
        there, before = set(members), (list(self._carriers), list(self._deputies))
        for slot in range(SLOTS):
            if self._carriers[slot] not in there:
                self._carriers[slot], self._deputies[slot] = self._deputies[slot], NOBODY
            if self._carriers[slot] not in there:
                self._carriers[slot] = NOBODY
            if self._deputies[slot] not in there:
                self._deputies[slot] = NOBODY
        self.part(self.apart)
        self._fill()
        return self._changed(*before)

    def part(self, apart: Mapping[str, tuple[str, ...]]) -> bool:
        """These topics are apart from their slots, and these members carry them, as far as they are there; whether that
        changes anything."""
        there, before = set(self.members), self.apart
        kept = {topic: tuple(each for each in carriers if each in there) for topic, carriers in apart.items()}
        self.apart = {topic: carriers for topic, carriers in kept.items() if carriers}
        return self.apart != before

    def place(self, moves: Mapping[int, tuple[str, str]]) -> Moves:
        """Give slots to these carriers and deputies, as far as they are there; return what that changes."""
        there, before = set(self.members), (list(self._carriers), list(self._deputies))
        for slot, (carrier, deputy) in moves.items():
            if carrier not in there or not 0 <= slot < SLOTS:
                continue
            self._carriers[slot] = carrier
            self._deputies[slot] = deputy if deputy in there and deputy != carrier else NOBODY
        self._fill()
        return self._changed(*before)

    def _fill(self) -> None:
        """Give every slot a carrier and a deputy."""
        members = self.members
        if not members:
            return
        carried = self.carried()
        for slot in range(SLOTS):
            if self._carriers[slot] == NOBODY:
                carrier = min(members, key=lambda each: (carried[each], each))
                self._carriers[slot] = carrier
                carried[carrier] += 1
        if len(members) < 2:
            return
        pairs = Counter(zip(self._carriers, self._deputies, strict=True))
        stands_in = Counter(self._deputies)
        for slot in range(SLOTS):
            if self._deputies[slot] == NOBODY:
                carrier = self._carriers[slot]
                others = (each for each in members if each != carrier)
                deputy = min(others, key=lambda each: (pairs[carrier, each], stands_in[each], each))
                self._deputies[slot] = deputy
                pairs[carrier, deputy] += 1
                stands_in[deputy] += 1

    def _changed(self, carriers: list[str], deputies: list[str]) -> Moves:
        return {
            slot: (self._carriers[slot], self._deputies[slot])
            for slot in range(SLOTS)
            if (carriers[slot], deputies[slot]) != (self._carriers[slot], self._deputies[slot])
        }
