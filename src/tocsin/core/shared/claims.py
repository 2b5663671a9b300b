"""Claims: which messages one broker takes for which of its members.

All brokers see the same messages. So that they do not race for each, the broker whose turn it is (by the first
position, among the incarnations with members) claims at once, and the others only what is still unclaimed after a
while. Each claims as much of what there is as it has of the members. Messages that were given back come before new
ones.

A message that no member here could take is passed over: others may. The broker that looks at an expired message settles
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tocsin.core.shared.backlog import FETCHED_MAX, Backlog
from tocsin.core.shared.draft import GroupDraft
from tocsin.core.shared.member import FULL, LocalMember, choose
from tocsin.core.shared.signals import Matched, MemberPorts
from tocsin.core.shared.stored_group import Claim, StoredGroup

BATCH_MAX: Final = 200  # claims in one write
# In one cell, and as many given back: some 15 bytes each where they are stored (``core.shared.stored_group`` has the
# sum).
CLAIMS_MAX: Final = 10_000
FREE_MAX_BYTES: Final = 384 << 10  # of those that were passed over, with the incarnations that did


class Planned(msgspec.Struct, frozen=True):
    """A claim in a write under way; its packet id is reserved."""

    holder: LocalMember
    claim: Claim
    matched: Matched


class Claiming:
    """Chooses what a broker claims of a group's messages. ``holders`` are its members here, the next in turn first."""

    def __init__(
        self, incarnation: str, holders: dict[str, LocalMember], backlog: Backlog, ports: MemberPorts
    ) -> None:
        self._incarnation = incarnation
        self._holders = holders
        self._backlog = backlog
        self._ports = ports
        self._free_bytes = 0  # of the draft: what is stored of messages that wait for others, at most

    def wanted(self, group: StoredGroup | None) -> list[int]:
        """The positions before ``next`` whose messages are needed here, the first of them."""
        again = [position for holder in self._holders.values() for position in holder.again]
        free = self._given_back(group) if group is not None else ()
        return sorted({*again, *free})[:FETCHED_MAX]

    def _given_back(self, group: StoredGroup) -> Iterator[int]:
        return (position for position, passed in group.free.items() if self._incarnation not in passed)

    def _candidates(self, group: StoredGroup) -> Iterator[int]:
        for position in self._given_back(group):
            if position in self._backlog.gone or self._backlog.get(position) is not None:
                yield position
        for matched in self._backlog:
            yield matched.position

    def first(self, group: StoredGroup | None) -> int:
        """The first position that could be claimed; 0: there is none, or nobody here has room."""
        if (
            group is None
            or not group.begun
            or not any(each.taking and self._ports.room(each.client) for each in self._holders.values())
        ):
            return 0
        return next(self._candidates(group), 0)

    def is_our_turn(self, group: StoredGroup, first: int) -> bool:
        passed = group.free.get(first, ())
        incarnations = [incarnation for incarnation in group.incarnations() if incarnation not in passed]
        return bool(incarnations) and incarnations[first % len(incarnations)] == self._incarnation

    def claim(self, group: StoredGroup, draft: GroupDraft, now_us: int) -> list[Planned]:
        """Claim our part of what there is, in a draft of the group's next cell."""
        planned: list[Planned] = []
        takers = [member.incarnation for member in draft.members.values() if member.taking]
        mine = takers.count(self._incarnation)
        if not mine or not any(holder.taking for holder in self._holders.values()):
            return planned
        candidates = list(self._candidates(group))
        part = -(-len(candidates) * mine // len(takers))  # rounded up
        quota = min(BATCH_MAX, part, CLAIMS_MAX - draft.claimed)
        self._free_bytes = draft.free_bytes()
        for position in candidates:
            matched = self._backlog.get(position)
            if matched is None or _expired(matched, now_us):
                draft.drop(position)
            elif len(planned) >= quota or not self._assign(matched, draft, planned):
                return planned
            if position >= draft.next:
                draft.advance(position + 1)
        draft.advance(self._backlog.below)
        return planned

    def _assign(self, matched: Matched, draft: GroupDraft, planned: list[Planned]) -> bool:
        """Claim a message, or pass it over; False if neither can be done now."""
        chosen = choose([each for each in self._holders.values() if each.taking], self._ports, matched)
        if isinstance(chosen, tuple):
            holder, claim = chosen
            draft.claim(holder.client, claim)
            planned.append(Planned(holder, claim, matched))
            self._holders[holder.client] = self._holders.pop(holder.client)  # the others come first now
            return True
        if chosen == FULL or len(draft.free) >= CLAIMS_MAX or self._free_bytes >= FREE_MAX_BYTES:
            return False
        self._free_bytes += draft.pass_over(matched.position, self._incarnation)
        return True


def _expired(matched: Matched, now_us: int) -> bool:
    return matched.publication.expired(max(0.0, (now_us - matched.entry.at_us) / 1e6))
