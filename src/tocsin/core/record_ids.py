"""Under which id each message of one client goes into the log, which takes an id once.

At QoS 1 an id is used for one try: a repeat has another one, and may be in the log twice, as QoS 1 allows. At QoS 2 it
belongs to the client's packet id, until that is released:

    given ──► stored with the session ──► appended ──► kept ──► released
                                                                 └─ forgotten, stored as such, and only then PUBCOMP

A repeat finds the id again, on this connection or, because it is stored before the message is appended, on another
one. Then the log knows whether it has the message. Of a kept one that need not be asked. The log remembers ids for
minutes and clients stay away for days, so that it is stored as well where to look for the others (``sought``).

Invariants: an id is given to one message; a message at QoS 2 has one id, from before it is appended until it is
released; every kept packet id has an id.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.core.stored_session import StoredSession

# Of messages that are not known to be in the log: a client repeats them when it comes back, or never.
REMEMBERED_MAX: Final = 1_000


class RecordIds:
    """See the module's text."""

    __slots__ = ("_given", "_prefix", "inbound", "kept", "sought")

    def __init__(self, prefix: str, session: StoredSession | None = None) -> None:
        self.inbound: dict[int, str] = {}  # QoS 2 packet ids that are not released → record id
        self.kept: dict[int, None] = {}  # those of them whose message is in the log
        self.sought: dict[
            int, tuple[int, str]
        ] = {}  # the others → (position, topic): it can only be behind that
        self._prefix = prefix  # of ids: never used before
        self._given = 0
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

    def give(self, packet_id: int, qos: int, topic: str, tail: int) -> str:
        """The id of a message on a topic, of which the log has nothing up to ``tail``."""
        known = self.inbound.get(packet_id) if qos == 2 else None
        if known is not None:
            return known
        self._given += 1
        record_id = f"{self._prefix}.{self._given}"
        if qos == 2:
            self.inbound[packet_id] = record_id
            self.sought[packet_id] = (tail, topic)
        return record_id

    def keep(self, packet_id: int) -> bool:
        """The log has the message; False if there is none of that packet id."""
        if packet_id not in self.inbound:
            return False
        self.kept[packet_id] = None
        self.sought.pop(packet_id, None)
        return True

    def release(self, packet_id: int) -> None:
        for each in (self.inbound, self.kept, self.sought):
            each.pop(packet_id, None)

    def written_into(self, session: StoredSession) -> StoredSession:
        """The session with the ids that it is to find again."""
        return msgspec.structs.replace(
            session, inbound=dict(self.inbound), received=tuple(self.kept), sought=dict(self.sought)
        )
