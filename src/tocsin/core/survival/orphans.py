"""Sessions that name this broker and that it does not serve: which of them it releases, and when.

A session that is served does not expire (``core.delivery.stored_session``). The broker that serves it ends that when
the connection closes. It cannot if it dies, or if the store does not answer at that moment:

- **An earlier run of this broker died.** A scan of the sessions finds the cell (``saw``). After GRACE_US, in which
  clients come back, it is released unless somebody has written it.
- **The store was away.** What should have been written is known (``left``), and is written once the store answers.
- **The connection was closed while its session was being taken**, and the client's next one waits here already. That
  one takes it (``taken``). If it goes without having taken it, the session is released.

A cell has the name of a broker, not of a process, and a standby may have had that name since the broker died. It gives
the name back when a leader counts on this process, and not before. So a session of an earlier run is released only
while a leader counts on this process, and GRACE_US after that began at the earliest (``count``). A process that has
another broker's name releases none, because that broker may be alive.

A broker that never comes back releases nothing: its clients' sessions are kept for ``SERVED_S`` longer. Nobody else may
do it for that broker, for a broker that is cut off may have its clients still.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tocsin.core.delivery.stored_session import StoredSession

# For clients to come back, and for a standby that had this broker's name to hear that it is over.
GRACE_US: Final = 60_000_000
KNOWN_MAX: Final = 10_000  # sessions that wait here, some 200 bytes each; the next scan finds the others


class Orphan(NamedTuple):
    """One such session, as it was when its connection ended, or when a scan saw it."""

    uid: str
    epoch: int
    since_us: int
    expiry_s: int | None  # as its client wants it, whose connection was here; None: as the cell says


class OrphanedSessions:
    """The sessions that one broker has to release."""

    def __init__(self, broker: str, *, borrowed: bool = False) -> None:
        """``borrowed``: this process has another broker's name."""
        self._broker = broker
        self._borrowed = borrowed
        self._counted_us: int | None = None  # since when a leader counts on this process
        self._known: dict[str, Orphan] = {}

    def count(self, counts: bool, now_us: int) -> None:
        """Whether a leader counts on this process."""
        self._counted_us = now_us if counts else None

    def saw(self, session: StoredSession, now_us: int) -> None:
        """A scan has found the session of a client that is not here."""
        if session.broker == self._broker and not self._borrowed:
            known = self._known.get(session.client)
            if known is None or known.epoch < session.epoch:
                self._note(session.client, Orphan(session.uid, session.epoch, now_us, None))

    def left(self, client: str, uid: str, epoch: int, expiry_s: int, now_us: int) -> None:
        """A connection is over, and its session still names this broker."""
        self._note(client, Orphan(uid, epoch, now_us, expiry_s))

    def taken(self, client: str) -> None:
        """A connection here has taken the client's session: what earlier ones left is settled."""
        self._known.pop(client, None)

    def _note(self, client: str, orphan: Orphan) -> None:
        if client in self._known or len(self._known) < KNOWN_MAX:
            self._known[client] = orphan

    def due(self, now_us: int) -> list[tuple[str, Orphan]]:
        """Those whose time has come, by client."""
        return [(client, each) for client, each in self._known.items() if self.is_due(each, now_us)]

    def is_due(self, orphan: Orphan, now_us: int) -> bool:
        if orphan.expiry_s is not None:
            return True  # it was this process that served it
        return self._counted_us is not None and now_us >= max(orphan.since_us, self._counted_us) + GRACE_US

    def settled(self, client: str, orphan: Orphan) -> None:
        """Nothing is left to be done about it."""
        if self._known.get(client) is orphan:
            del self._known[client]

    def released(self, session: StoredSession, orphan: Orphan) -> StoredSession | None:
        """What becomes of a session as the store has it: with an expiry of 0 it is removed. None: it is not ours."""
        if (session.uid, session.epoch, session.broker) != (orphan.uid, orphan.epoch, self._broker):
            return None
        expiry_s = session.expiry_s if orphan.expiry_s is None else orphan.expiry_s
        return msgspec.structs.replace(session, broker="", expiry_s=expiry_s)
