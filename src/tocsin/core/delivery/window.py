"""The delivery window of one client at QoS 1 and 2: positions, packet ids, and what must survive.

A client's messages are those entries of the log that match its subscriptions, in the order of the log. Instead of a
queue there is a **position**: everything up to it is settled. Beyond it there is a window of at most ``receive_max``
entries that were sent and are not yet acknowledged. Messages that do not fit into the window wait in the log, not in
memory.

**Live or behind.** While it is *live*, entries are handed in as the log's follower brings them. When the window is full
it falls *behind*: it takes no more, and later has the log read from ``next`` on, until it has caught up.

**Packet ids** follow from positions (``packet_id``). So a message that is sent again after a crash has the id that it
had before, without anything being stored when it is sent, and a client that has seen it at QoS 2 recognises it.
Two positions with the same id are never in the window together: the later one waits, at QoS 2 until it is stored that
the client has forgotten the earlier one. Messages that are not from the log (retained ones) have ids of their own, and
so have those that the client gets as a member of a group.

**Claims.** What a group's member gets is not told by its position, but by a claim in the group's cell
(``core.shared.stored_group``), which names the packet id. So an id is *reserved* before the claim is written; once it
is, the message is *sent*. The id is not used for anything else until it is durable that the claim is settled: otherwise
an old claim could be taken for a new one. At QoS 2 it stays stored as *releasing* for as long, so that a broker that
reads claim and session after a crash sees that the client has the message.

**What must be stored, and when.** QoS 1: nothing must; an old position only means repeats, which QoS 1 allows.
QoS 2: that the client has received a message (PUBREC) must be durable before PUBREL lets the client forget its id.
``pubrec`` therefore says "not yet", and ``saved`` gives the ids whose PUBREL may go.

**Tracks.** A client may be delivered to from two logs: messages, and results of channels; of both, critical ones are a
track of their own (``core.delivery.tracks``). Each has positions and a part of the packet ids of its own, so that an
answer tells which is meant; ``beside`` makes one window of all. A track may have another that goes ``first``: while
that is behind it takes nothing by position; and it may spare some of the window for that.

Invariants: the window is within its bound, with what is reserved; a position below ``next``, not in the window and not
to be sent again, is settled; stored progress never claims a message settled that the client has not acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from mqtt5 import PubAckPacket, PubCompPacket, PubRecPacket, PubRelPacket, PubRelReasonCode

from tocsin.errors import ProtocolViolation

PACKET_IDS: Final = 65_535
EXTRA_IDS: Final = 1_000  # of them are for messages that are not from the log: no window is larger
# … for messages that are not critical. It must stay as it is: a session that was stored with a message at QoS 2 under
# way has to find the id again that the message had.
POSITION_IDS: Final = 41_215
# … for results. Their positions are notice × 2^20 + ordinal: this prime puts the results of one notice side by side,
# and those of the next notices far away (2^20 is about 0.62 of it, modulo it), so that few wait for each other's ids.
RESULT_IDS: Final = 12_539
CRITICAL_IDS: Final = 7_523  # … for critical results, likewise
# … and for critical messages: a prime, so that those that come at regular distances do not share a few of them.
CRITICAL_MESSAGE_IDS: Final = 3_257

REFUSED_FROM: Final = 0x80

WAIT: Final = -1  # what ``hand_in`` says: no room, keep it in the log
SETTLED: Final = 0  # … the client has it already

Answer = PubAckPacket | PubRecPacket | PubCompPacket


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """The stored part of a client's deliveries: enough to resume on another connection or after a crash."""

    next: int  # everything below is settled, but for ``unsettled``
    unsettled: tuple[int, ...] = ()  # positions that were sent and not acknowledged, in order
    releasing: tuple[int, ...] = ()  # packet ids that the client has received and not yet forgotten

    @property
    def position(self) -> int:
        """Everything up to here is settled."""
        return min(self.unsettled, default=self.next) - 1


class Ids(msgspec.Struct, frozen=True):
    """The packet ids of a track."""

    first: int
    count: int

    def __contains__(self, identifier: int) -> bool:
        return self.first <= identifier < self.first + self.count

    def of(self, position: int) -> int:
        return position % self.count + self.first

    def precedes(self, one: int, other: int) -> bool:
        """Whether one id comes before the other, if they are not far apart: ids wrap around."""
        return 0 < (other - one) % self.count < self.count // 2


MESSAGES: Final = Ids(1, POSITION_IDS)
CRITICAL_MESSAGES: Final = Ids(POSITION_IDS + 1, CRITICAL_MESSAGE_IDS)
RESULTS: Final = Ids(CRITICAL_MESSAGES.first + CRITICAL_MESSAGE_IDS, RESULT_IDS)
CRITICAL: Final = Ids(RESULTS.first + RESULT_IDS, CRITICAL_IDS)  # of results
ALL_RESULTS: Final = Ids(RESULTS.first, RESULT_IDS + CRITICAL_IDS)


def packet_id(position: int) -> int:
    """The packet id of a message."""
    return MESSAGES.of(position)


class DeliveryWindow:
    """Tracks one client's unacknowledged messages, by position in one log."""

    def __init__(
        self, progress: Progress, *, receive_max: int, durable: bool, ids: Ids | None = None
    ) -> None:
        self.beside: tuple[DeliveryWindow, ...] = ()  # the client's other tracks
        self.first: DeliveryWindow | None = None  # the position among them that blocks the next
        self.spared = 0  # of the window: left to the others
        self._ids = ids or MESSAGES
        self.next = progress.position + 1  # the first position that was not looked at on this connection
        self.live = False
        self._durable = durable  # whether progress is stored, so that PUBREL has to wait for it
        self._receive_max = receive_max
        self._sent_below = progress.next  # entries below it were looked at on an earlier connection …
        self._again = set(progress.unsettled)  # … and these are to be sent again; all at or beyond ``next``
        self._window: dict[int, tuple[int, int]] = {}  # packet id → (position, QoS): sent, not acknowledged
        self._received: dict[int, None] = {}  # packet ids of which PUBREC came, and that is not stored yet
        self._releasing: dict[int, None] = dict.fromkeys(progress.releasing)  # PUBREL is, or may be, sent
        self._completed: dict[
            int, None
        ] = {}  # PUBCOMP came, and that is not stored yet: not to be used again
        self._given = 0  # ids that belong to no position, so far: one after the other is quickest to find
        self._reserved: dict[int, None] = {}  # for claims that are being written
        self._claimed: dict[
            int, tuple[str, int]
        ] = {}  # packet id → (group, position): claims that may be stored
        self._lingering: dict[int, None] = {}  # of them, those whose PUBCOMP came: to be stored as releasing
        self._settled: list[
            tuple[str, int, int]
        ] = []  # (group, position, packet id) that are done, and not told yet
        self._saving: tuple[int, ...] | None = None  # the packet ids that the save under way will release …
        self._freeing: tuple[int, ...] = ()  # … and those that it will free

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> bool:
        """Whether it may send one more: the client takes it, and nothing goes first."""
        return (self.first is None or self.first.live) and self.space

    @property
    def space(self) -> bool:
        """Whether the client takes one more: until PUBACK or PUBCOMP a message counts (MQTT 5, section 4.9)."""
        under_way = self.under_way + self.spared
        for each in self.beside:
            under_way += each.under_way
        return under_way < self._receive_max

    @property
    def under_way(self) -> int:
        return len(self._window) + len(self._received) + len(self._releasing) + len(self._reserved)

    @property
    def behind(self) -> bool:
        """Whether the log should be read for it now."""
        return not self.live and self.room

    def hand_in(self, position: int, qos: int) -> int:
        """The next matching entry, in order: the packet id to send it with, or SETTLED, or WAIT.

        After WAIT it is behind, and the same entry is to be handed in again from the log.
        """
        assert position >= self.next, f"position {position} was handed in before"
        if self._again:
            self._forget_below(position)
        if position < self._sent_below and position not in self._again:
            self.next = position + 1
            return SETTLED
        identifier, first = self._ids.of(position), self.first
        if (first is not None and not first.live) or not self.space or self._taken(identifier):
            self.next = position
            self.live = False
            return WAIT
        self._again.discard(position)
        self.next = position + 1
        self._window[identifier] = (position, qos)
        return identifier

    def _taken(self, identifier: int) -> bool:
        return (
            identifier in self._window
            or identifier in self._received
            or identifier in self._releasing
            or identifier in self._completed
            or identifier in self._reserved
            or identifier in self._claimed
        )

    def is_repeat(self, position: int) -> bool:
        """Whether an entry may have been sent on an earlier connection."""
        return position < self._sent_below

    def fall_behind(self, position: int) -> None:
        """An entry cannot be taken now, for a reason of the shell's: it waits in the log."""
        self.next = max(self.next, position)
        self.live = False

    def extra(self, qos: int) -> int:
        """A packet id for a message that is not from the log (a retained one), or WAIT.

        The message is not sent again on another connection. That the client may have it at QoS 2 is stored, so
        that its id is released then.
        """
        identifier = self._unused()
        if identifier != WAIT:
            self._window[identifier] = (0, qos)
        return identifier

    def _unused(self) -> int:
        """A packet id that belongs to no position, or WAIT."""
        if self.space:
            for step in range(EXTRA_IDS):
                identifier = PACKET_IDS - (self._given + step) % EXTRA_IDS
                if not self._taken(identifier):
                    self._given += step + 1
                    return identifier
        return WAIT

    def passed(self, position: int) -> None:
        """Everything up to here was looked at: whatever was not handed in did not match, and is settled."""
        self.next = max(self.next, position + 1)
        if self._again:
            self._forget_below(self.next)

    def _forget_below(self, position: int) -> None:
        """Messages to be sent again that lie below match no subscription any longer: settle them."""
        self._again = {each for each in self._again if each >= position}

    def to_release(self) -> tuple[int, ...]:
        """The packet ids whose PUBREL has to be sent (again): at the start of a connection."""
        return tuple(self._releasing)

    # ── claims ──────────────────────────────────────────────────────────────────────────────────────────────

    def reserve(self) -> int:
        """A packet id for a claim to be written, or WAIT; ``claimed`` or ``give_back`` follows."""
        identifier = self._unused()
        if identifier != WAIT:
            self._reserved[identifier] = None
        return identifier

    def give_back(self, identifier: int) -> None:
        """The claim was not written."""
        self._reserved.pop(identifier, None)

    def claimed(self, identifier: int, group: str, position: int, qos: int) -> bool:
        """The claim is written, and its message is sent; False if the id is not reserved, so that it must not be."""
        if identifier not in self._reserved:
            return False
        del self._reserved[identifier]
        self._claimed[identifier] = (group, position)
        self._window[identifier] = (0, qos)
        return True

    def restore(self, identifier: int, group: str, position: int) -> None:
        """A claim of an earlier connection: its message is to be sent again, unless the client has it."""
        self._claimed[identifier] = (group, position)
        if identifier in self._releasing:
            self._done(identifier)

    def send_again(self, identifier: int, qos: int) -> bool:
        """Whether the message of a restored claim is to be sent now."""
        has_it = (
            identifier in self._releasing or identifier in self._received or identifier in self._lingering
        )
        if identifier not in self._claimed or has_it or not self.space:
            return False
        self._window[identifier] = (0, qos)
        return True

    def forget_claims(self, identifiers: Iterable[int]) -> None:
        """It is durable that claims are settled, or they are somebody else's now."""
        for identifier in identifiers:
            self._claimed.pop(identifier, None)
            if identifier in self._lingering:
                del self._lingering[identifier]
                if self._durable:
                    self._completed[identifier] = None

    def _done(self, identifier: int) -> None:
        if identifier in self._claimed:
            self._settled.append((*self._claimed[identifier], identifier))

    def take_settled(self) -> tuple[tuple[str, int, int], ...]:
        """The claims that are to be settled now: (group, position, packet id)."""
        if not self._settled:
            return ()
        settled, self._settled = tuple(self._settled), []
        return settled

    # ── acknowledgements ────────────────────────────────────────────────────────────────────────────────────

    def qos_of(self, identifier: int) -> int:
        """The QoS of the unanswered message under an id; 0: there is none."""
        return self._window.get(identifier, (0, 0))[1]

    def puback(self, identifier: int) -> bool:
        """A QoS 1 message is settled; False if there is none under that id."""
        if self._window.get(identifier, (0, 0))[1] != 1:
            return False
        del self._window[identifier]
        self._done(identifier)
        return True

    def pubrec(self, identifier: int, *, refused: bool = False) -> tuple[bool, bool]:
        """The client has received a QoS 2 message, or refused it for good: (known, PUBREL may go now)."""
        if identifier in self._releasing:
            return True, True
        if identifier in self._received:
            return True, False
        position, qos = self._window.get(identifier, (0, 0))
        if qos != 2:
            return False, False
        del self._window[identifier]
        if refused:
            self._done(identifier)
            return True, False
        extra = not position and identifier not in self._claimed
        if not self._durable or extra:
            self._releasing[identifier] = None
            self._done(identifier)
            return True, True
        self._received[identifier] = None
        return True, False

    def pubcomp(self, identifier: int) -> bool:
        """The client has forgotten a packet id; False if it was not asked to."""
        if identifier not in self._releasing:
            return False
        del self._releasing[identifier]
        if identifier in self._claimed:
            self._lingering[identifier] = None
        elif self._durable:
            self._completed[identifier] = None
        return True

    # ── storing ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def urgent(self) -> bool:
        """Whether a client waits for something to be stored."""
        return bool(self._received) and self._saving is None

    def save(self) -> Progress:
        """The progress to store now; ``saved`` follows before the next call."""
        assert self._saving is None, "one save at a time"
        self._saving = tuple(self._received)
        self._freeing = tuple(self._completed)
        return self.progress()

    def progress(self) -> Progress:
        """How far it is."""
        sent = (position for position, _ in self._window.values() if position)
        extras = (
            each
            for each, (position, qos) in self._window.items()
            if not position and qos == 2 and each not in self._claimed
        )
        return Progress(
            max(self.next, self._sent_below),
            tuple(sorted((*sent, *self._again))),
            (*self._releasing, *self._received, *self._lingering, *extras),
        )

    @property
    def position(self) -> int:
        """Everything up to here is settled: as ``progress`` has it."""
        unsettled = [position for position, _ in self._window.values() if position]
        unsettled.extend(self._again)
        return min(unsettled, default=max(self.next, self._sent_below)) - 1

    def saved(self) -> tuple[int, ...]:
        """The save is durable: the packet ids whose PUBREL may go now."""
        assert self._saving is not None, "no save is under way"
        released, self._saving = self._saving, None
        for identifier in released:
            del self._received[identifier]
            self._releasing[identifier] = None
            self._done(identifier)
        for identifier in self._freeing:
            self._completed.pop(identifier, None)
        self._freeing = ()
        return released


def hear(delivery: DeliveryWindow | None, packet: Answer) -> tuple[PubRelPacket | None, bool]:
    """A client's acknowledgement, against its window: the immediate reply, and whether the answer waits until the
    client's packet is stored.

    ``ProtocolViolation`` for PUBREC in answer to QoS 1, and PUBACK to QoS 2 (MQTT 5, 4.3.2 and 4.3.3).
    """
    sent = 0 if delivery is None else delivery.qos_of(packet.packet_id)
    if sent == 1 and isinstance(packet, PubRecPacket):
        raise ProtocolViolation("a message at QoS 1 was answered with PUBREC")
    if sent == 2 and isinstance(packet, PubAckPacket):
        raise ProtocolViolation("a message at QoS 2 was answered with PUBACK")
    if isinstance(packet, PubRecPacket):
        return _hear_pubrec(delivery, packet)
    if delivery is not None and isinstance(packet, PubAckPacket):
        delivery.puback(packet.packet_id)
    elif delivery is not None:
        delivery.pubcomp(packet.packet_id)
    return None, False


def _hear_pubrec(delivery: DeliveryWindow | None, packet: PubRecPacket) -> tuple[PubRelPacket | None, bool]:
    identifier, refused = packet.packet_id, int(packet.reason_code) >= REFUSED_FROM
    known, release = False, False
    if delivery is not None:
        known, release = delivery.pubrec(identifier, refused=refused)
    if release:
        return PubRelPacket(identifier), False
    if known or refused:
        return None, known
    return PubRelPacket(identifier, reason_code=PubRelReasonCode.PACKET_ID_NOT_FOUND), False
