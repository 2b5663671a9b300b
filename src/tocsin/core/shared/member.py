"""The members of a group at one broker, and what each of them has.

A claim of a member's is, as seen from its broker,

    in a write under way ──► sent ──► settled ──► (the cell says so) forgotten
                              ▲
    again, of an earlier connection

The cell decides (``LocalMember.learn``): a claim that the cell lacks is not ours, even if it was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tocsin.core.machine import Effect
from tocsin.core.shared.backlog import Backlog
from tocsin.core.shared.draft import GroupDraft
from tocsin.core.shared.signals import CANNOT, Forget, Give, Joined, Matched, MemberPorts
from tocsin.core.shared.stored_group import Claim, Member, StoredGroup

NOBODY: Final = -1  # what ``choose`` says: no member here could take it
FULL: Final = 0  # … some could, and have no room


class LocalMember:
    """One member here. ``session`` and ``epoch`` are those of its connection."""

    def __init__(
        self,
        client: str,
        session: str,
        epoch: int,
        expiry_s: int,
        incarnation: str,
        *,
        user: str = "",
        entitled: bool = False,
    ) -> None:
        self.client = client
        self.user = user
        self.entitled = entitled  # a rule lets it into the group, whichever user owns the group
        self.session = session
        self.epoch = epoch
        self.expiry_s = expiry_s
        self.told = False  # the client knows that it is a member
        self.first = 0  # where the group began that it knows to be a member of
        self.present = False  # the cell says that it is here
        self.quits = False  # it has unsubscribed
        self.gone = False  # its connection is over
        self.sent: dict[int, int] = {}  # position → packet id; also of those that are settled
        self.settled: dict[int, None] = {}  # positions that the cell does not show as settled yet
        self.again: dict[int, Claim] = {}  # by position: to be sent again
        self._incarnation = incarnation

    @property
    def taking(self) -> bool:
        """Whether it gets new messages: not before it has again what it was sent on an earlier connection."""
        return self.present and not self.quits and not self.gone and not self.again

    def member(self) -> Member:
        """As it should be stored."""
        return Member(self.session, self.epoch, self._incarnation, self.expiry_s, leaving=self.quits)

    def done(self, group: StoredGroup | None) -> bool:
        """Whether it is over with it, and the cell knows that."""
        stored = None if group is None else group.members.get(self.client)
        here = (
            stored is not None
            and (stored.session, stored.incarnation) == (self.session, self._incarnation)
            and stored.epoch <= self.epoch
        )
        return (self.gone or self.quits) and not here

    def farewell(self) -> list[Effect]:
        """A client that unsubscribed before it was a member still waits to be told."""
        if self.told or self.gone:
            return []
        return [Joined(client=self.client, session=self.session, claims=())]

    def restless(self, group: StoredGroup | None) -> bool:
        """Whether the cell has to be told something about it at once."""
        return self.gone or group is None or group.members.get(self.client) != self.member()

    def apply(self, draft: GroupDraft, now_s: int) -> bool:
        """Bring it into the cell; False if the member is somebody else now."""
        if self.settled:
            draft.settle(self.client, self.settled)
        if self.gone:
            draft.leave(self.client, self.member(), now_s)
            return True
        stored = draft.members.get(self.client)
        if stored == self.member():
            return True
        if stored is not None and self.told and stored.session != self.session:
            return False
        return draft.join(self.client, self.member(), self.user)

    def admitted(self, draft: GroupDraft) -> bool:
        """Whether it may be a member, as far as the group's owner goes."""
        return self.gone or self.entitled or draft.admits(self.client, self.session, self.user)

    def bereft(self, group: StoredGroup | None) -> bool:
        """Whether its group is over, and it counts on it: the next one of the name does not begin where that ended."""
        if not self.first or self.gone or self.quits:
            return False
        return group is None or group.first != self.first

    def learn(self, group: StoredGroup | None) -> list[Effect]:
        """The member's claims in the cell. While it is taken for away it keeps what its session keeps."""
        stored = None if group is None else group.members.get(self.client)
        if stored is not None and (stored.session != self.session or stored.epoch > self.epoch):
            stored = None
        self.present = stored is not None and (stored.epoch, stored.incarnation) == (
            self.epoch,
            self._incarnation,
        )
        has = () if group is None or stored is None else group.claims.get(self.client, ())
        claims = {claim.position: claim for claim in has}
        over = tuple(each for position, each in self.sent.items() if position not in claims and each)
        self.sent = {position: each for position, each in self.sent.items() if position in claims}
        self.settled = {each: None for each in self.settled if each in claims}
        self.again = {
            position: claim
            for position, claim in claims.items()
            if position not in self.sent and position not in self.settled
        }
        effects: list[Effect] = [Forget(client=self.client, packet_ids=over)] if over else []
        if group is not None and group.begun and self.present and not self.told and not self.gone:
            self.told, self.first = True, group.first
            earlier = tuple(claims[position] for position in sorted(claims) if position not in self.sent)
            effects.append(Joined(client=self.client, session=self.session, claims=earlier))
        return effects

    def give(self, claim: Claim, matched: Matched, *, repeat: bool) -> Effect:
        """The cell has the claim: its message is sent."""
        self.sent[claim.position] = claim.packet_id
        self.again.pop(claim.position, None)
        if not claim.qos:
            self.settled[claim.position] = None
        return Give(
            client=self.client,
            matched=matched,
            packet_id=claim.packet_id,
            qos=claim.qos,
            repeat=repeat,
        )

    def send_again(self, backlog: Backlog, ports: MemberPorts) -> list[Effect]:
        """The messages of an earlier connection, in order, as far as they are at hand and there is room."""
        effects: list[Effect] = []
        if self.gone or not self.told:
            return effects
        for position in sorted(self.again):
            claim, matched = self.again[position], backlog.get(position)
            if matched is None and position not in backlog.gone:
                break
            if matched is None or not claim.qos or ports.takes(self.client, matched) == CANNOT:
                self.sent[position] = claim.packet_id
                self.settled[position] = None
                del self.again[position]
            elif ports.send_again(self.client, claim.packet_id, claim.qos):
                effects.append(self.give(claim, matched, repeat=True))
            else:
                break
        return effects


def choose(
    holders: Iterable[LocalMember], ports: MemberPorts, matched: Matched
) -> tuple[LocalMember, Claim] | int:
    """The first of these members that takes a message, with a reserved packet id; or FULL, or NOBODY."""
    able = False
    for holder in holders:
        qos = ports.takes(holder.client, matched)
        if qos == CANNOT:
            continue
        able = True
        if not ports.room(holder.client):
            continue
        identifier = ports.reserve(holder.client) if qos else 0
        if identifier >= (1 if qos else 0):
            return holder, Claim(matched.position, identifier, qos)
    return FULL if able else NOBODY
