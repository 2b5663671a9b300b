"""Record ids of one client's messages; the log takes each id once.

At QoS 1 an id is used for one try: a repeat has another one, and may be in the log twice, as QoS 1 allows. At QoS 2 it
belongs to the client's packet id, until that is released:

    given ──► stored with the session ──► appended ──► kept ──► released
                                                                 └─ forgotten, stored as such, and only then PUBCOMP

A repeat finds the id again, on this connection or, because it is stored before the message is appended, on another
one. Then the log knows whether it has the message. A kept message need not be looked for. The log remembers ids for
minutes and clients stay away for days, so that it is stored as well where to look for the others (``sought``). They
are looked for when the session is taken, and again before a repeat is appended (``behind``): the broker that had the
client may have appended it in between, and the repeat may take its time.

Every id is part of a cell that must fit into one record, so that their bytes are bounded (``has_room``).

Invariants: an id is given to one message; a message at QoS 2 has one id, from before it is appended until it is
released; every kept packet id has an id.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.core.delivery.stored_session import StoredSession

# Of messages that are not known to be in the log: a client repeats them when it comes back, or never.
REMEMBERED_MAX: Final = 1_000
STORED_MAX_BYTES: Final = 256 << 10  # of all ids in a stored session (``core.delivery.stored_session``)
_KEPT_BYTES: Final = 10  # of one there beside its id: the packet id twice, and the length of a text
_SOUGHT_BYTES: Final = (
    18  # … and of a message that is not kept, beside its topic: the packet id, a position, lengths
)


class RecordIds:
    """Chooses the record ids of one client's messages, so that the log takes each once."""

    __slots__ = ("_bytes", "_given", "_prefix", "inbound", "kept", "sought")

    def __init__(self, prefix: str, session: StoredSession | None = None) -> None:
        self.inbound: dict[int, str] = {}  # QoS 2 packet ids that are not released → record id
        self.kept: dict[int, None] = {}  # those of them whose message is in the log
        self.sought: dict[
            int, tuple[int, str]
        ] = {}  # the others → (position, topic): it can only be behind that
        self._prefix = prefix  # of ids: never used before
        self._given = 0
        self._bytes = 0  # of what is stored of them, at most
        if session is not None:
            self.kept = {each: None for each in session.received if each in session.inbound}
            others = [each for each in session.inbound if each not in self.kept]
            forgotten = set(others[: max(0, len(others) - REMEMBERED_MAX)])
            self.inbound = {each: of for each, of in session.inbound.items() if each not in forgotten}
            self.sought = {
                each: where
                for each, where in session.sought.items()
                if each in self.inbound and each not in self.kept
            }
            self._bytes = sum(map(self._size, self.inbound))

    def has_room(self, packet_id: int, topic: str) -> bool:
        """Whether the id of one more QoS 2 message can be stored; of a repeat it is already."""
        size = len(self._next()) + len(topic.encode()) + _KEPT_BYTES + _SOUGHT_BYTES
        return packet_id in self.inbound or self._bytes + size <= STORED_MAX_BYTES

    def _next(self) -> str:
        return f"{self._prefix}.{self._given + 1}"

    def _size(self, packet_id: int) -> int:
        """The stored bytes of one message."""
        size = len(self.inbound[packet_id]) + _KEPT_BYTES
        if packet_id in self.sought:
            size += len(self.sought[packet_id][1].encode()) + _SOUGHT_BYTES
        return size

    def give(self, packet_id: int, qos: int, topic: str, tail: int) -> str:
        """The id of a message on a topic, of which the log has nothing up to ``tail``."""
        known = self.inbound.get(packet_id) if qos == 2 else None
        if known is not None:
            return known
        record_id = self._next()
        self._given += 1
        if qos == 2:
            self.inbound[packet_id] = record_id
            self.sought[packet_id] = (tail, topic)
            self._bytes += self._size(packet_id)
        return record_id

    def behind(self, packet_id: int) -> int | None:
        """The position behind which the log may have a message that an earlier connection took; None: none has."""
        if packet_id not in self.sought or self.inbound[packet_id].startswith(f"{self._prefix}."):
            return None
        return self.sought[packet_id][0]

    def keep(self, packet_id: int) -> bool:
        """The log has the message; False if there is none of that packet id."""
        if packet_id not in self.inbound:
            return False
        self._bytes -= self._size(packet_id)
        self.kept[packet_id] = None
        self.sought.pop(packet_id, None)
        self._bytes += self._size(packet_id)
        return True

    def release(self, packet_id: int) -> None:
        if packet_id in self.inbound:
            self._bytes -= self._size(packet_id)
        for each in (self.inbound, self.kept, self.sought):
            each.pop(packet_id, None)

    def written_into(self, session: StoredSession) -> StoredSession:
        """The session with the ids that it is to find again."""
        return msgspec.structs.replace(
            session, inbound=dict(self.inbound), received=tuple(self.kept), sought=dict(self.sought)
        )
