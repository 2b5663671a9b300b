"""A draft of a group's cell: every rule about how it may change, and nothing else.

    draft = GroupDraft(cell)
    draft.join(…); draft.settle(…); draft.bury(…); …     in any order
    draft.tidy()                                         what follows from that
    draft.begin(…), or draft.claim(…) / draft.pass_over(…) / draft.advance(…)
    draft.done()                                         the next cell; None: nobody is left, and neither is the group

Rules (MQTT 5, section 4.8.2). Claims of a member whose session has ended: those at QoS 1 are given back, those at QoS 2
are settled, because nobody else may get them. Claims of a member that is away: at QoS 1 they are given back as soon as
somebody else is there to take them, at QoS 2 they wait for its return. At QoS 0 nothing waits.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import msgspec

from tocsin.core.shared.stored_group import Claim, Member, StoredGroup

_POSITION_BYTES: Final = 10  # of a position and the length of a list, where they are stored
_NUMBERS_BYTES: Final = 32  # of a member beside its texts


class GroupDraft:
    """A mutable draft of a group's cell that keeps its rules."""

    def __init__(self, group: StoredGroup) -> None:
        self.next = group.next
        self.first = group.first
        self.owner = group.owner
        self.source = group.source
        self.members = dict(group.members)
        self.free = dict(group.free)
        self._name = group.name
        self._claims = {client: list(claims) for client, claims in group.claims.items()}

    def free_bytes(self) -> int:
        """The stored bytes of messages that were given back or passed over."""
        return sum(_POSITION_BYTES + sum(map(_stored_bytes, passed)) for passed in self.free.values())

    def has_room(self, client: str, member: Member, most: int) -> bool:
        """Whether one member more can be stored."""
        held = sum(_member_bytes(name, each) for name, each in self.members.items())
        return held + _member_bytes(client, member) <= most

    @property
    def claimed(self) -> int:
        """How many claims there are."""
        return sum(map(len, self._claims.values()))

    # ── members ─────────────────────────────────────────────────────────────────────────────────────────────

    def admits(self, client: str, session: str, user: str) -> bool:
        """Whether a client of this user may be a member: in its own user's group, and where it is one already."""
        member = self.members.get(client)
        known = member is not None and member.session == session
        return known or not self.members or self.owner in (None, user)

    def join(self, client: str, member: Member, user: str = "") -> bool:
        """A member is present; False if a later connection of the same session has joined already."""
        before = self.members.get(client)
        if before is not None and before.session == member.session and before.epoch > member.epoch:
            return False
        if not self.members or self.owner is None:
            self.owner = user
        if before is not None and before.session != member.session:
            self._end(client)
        self.members[client] = member
        self.free = {
            position: tuple(
                each for each in passed if each != member.incarnation
            )  # perhaps this member can take it
            for position, passed in self.free.items()
        }
        return True

    def leave(self, client: str, member: Member, now_s: int) -> None:
        """A connection is over; ``member`` is as it joined, with the expiry that its session has in the end."""
        if self._is(client, member):
            self._away(client, member, now_s)

    def unsubscribe(self, client: str, member: Member) -> None:
        """A member gets no more; it goes when everything that it has is settled."""
        if self._is(client, member):
            self.members[client] = msgspec.structs.replace(self.members[client], leaving=True)

    def end(self, client: str, session: str) -> None:
        """A session is over, wherever it was."""
        member = self.members.get(client)
        if member is not None and member.session == session:
            self._end(client)

    def bury(self, incarnation: str, now_s: int) -> None:
        """A broker's incarnation is over: its members are away."""
        for client, member in list(self.members.items()):
            if member.incarnation == incarnation:
                self._away(client, member, now_s)

    def expire(self, now_s: int) -> None:
        """Members that were away for too long are forgotten."""
        for client, member in list(self.members.items()):
            if not member.incarnation and member.until_s <= now_s:
                self._end(client)

    def _is(self, client: str, member: Member) -> bool:
        """Whether the stored member is this connection, or an earlier one at the same broker."""
        stored = self.members.get(client)
        return (
            stored is not None
            and (stored.session, stored.incarnation) == (member.session, member.incarnation)
            and stored.epoch <= member.epoch
        )

    def _away(self, client: str, member: Member, now_s: int) -> None:
        if member.expiry_s and not self.members[client].leaving:
            until_s = now_s + member.expiry_s
            self.members[client] = msgspec.structs.replace(member, incarnation="", until_s=until_s)
        else:
            self._end(client)

    def _end(self, client: str) -> None:
        del self.members[client]
        self._give_back(client, self._claims.pop(client, []))

    def _give_back(self, client: str, claims: list[Claim]) -> None:
        self.free.update((claim.position, ()) for claim in claims if claim.qos == 1)

    # ── positions ───────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, client: str, positions: Container[int]) -> None:
        """A member is done with messages."""
        claims = self._claims.get(client, [])
        self._claims[client] = [claim for claim in claims if claim.position not in positions]

    def claim(self, client: str, claim: Claim) -> None:
        self.free.pop(claim.position, None)
        self._claims.setdefault(client, []).append(claim)

    def pass_over(self, position: int, incarnation: str) -> int:
        """An incarnation has nobody who could take this message; by how much what is stored of such grows, at most."""
        self.free[position] = (*self.free.get(position, ()), incarnation)
        return _POSITION_BYTES + _stored_bytes(incarnation)

    def drop(self, position: int) -> None:
        """Nobody gets a message any more: it is expired, or gone from the log."""
        self.free.pop(position, None)

    def begin(self, position: int) -> None:
        """The group owns the log from this position on."""
        assert not self.next, "a group begins once"
        self.first = self.next = position

    def advance(self, position: int) -> None:
        """Everything below was looked at."""
        self.next = max(self.next, position)

    def tidy(self) -> int:
        """The group after the changes, and how many messages are settled because nobody can take them."""
        taking = {member.incarnation for member in self.members.values() if member.taking}
        for client, member in list(self.members.items()):
            claims = self._claims.get(client, [])
            if not member.incarnation and taking:
                self._give_back(client, claims)
                claims = [claim for claim in claims if claim.qos == 2]
            elif not member.incarnation:
                claims = [claim for claim in claims if claim.qos]
            self._claims[client] = claims
            if member.leaving and not claims:
                del self.members[client]
        before = len(self.free)
        still = {
            position: tuple(sorted(taking.intersection(passed))) for position, passed in self.free.items()
        }
        self.free = {
            position: passed for position, passed in still.items() if not taking or len(passed) < len(taking)
        }
        return before - len(self.free)

    def done(self) -> StoredGroup | None:
        if not self.members:
            return None
        claims = {client: tuple(claims) for client, claims in self._claims.items() if claims}
        free = dict(sorted(self.free.items()))
        return StoredGroup(
            self._name, self.next, self.members, claims, free, self.first, self.owner, self.source
        )


def _stored_bytes(text: str) -> int:
    return len(text.encode()) + 3


def _member_bytes(client: str, member: Member) -> int:
    return sum(map(_stored_bytes, (client, member.session, member.incarnation))) + _NUMBERS_BYTES
