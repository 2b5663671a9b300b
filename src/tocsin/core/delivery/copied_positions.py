"""Positions from a backup's copy (eta in the REAPS paper), held against those of the stored session.

A broker writes a session's positions at most once a second, and tells its backups every ``replication.period_ms``, or
by volume. Whichever is further counts when the session is taken: a client that acknowledged a message has it, whoever
wrote that down. So a copy that is fresh spares the client repeats of (stored position, eta], and one that is stale
costs nothing.

Only within one session (``uid``), and not at QoS 2. There the position of a copy goes past a message when its PUBREC
came, and the session has to be stored before PUBREL: if its broker fails in between, the message must be sent again
under its id, or the client would take a later message with that id for a repeat.

Nobody is served before the store has answered. A copy may be of a session that has ended since, where the backup could
not hear of it: CONNACK would promise a session that is none (decision 059).
"""

from __future__ import annotations

import msgspec

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.wire.replication import Positions


class CopiedPositions(msgspec.Struct, frozen=True):
    """How far a client is by the copy of its broker, in this session."""

    uid: str
    positions: Positions


def furthest(session: StoredSession, copied: CopiedPositions | None) -> StoredSession:
    """The session with the further positions of the two."""
    if copied is None or copied.uid != session.uid or _exactly_once(session):
        return session
    eta = copied.positions
    changes: dict[str, Progress] = {}
    if (session.critical_messages is None) == (eta.critical_messages == 0):
        changes["progress"] = _further(session.progress, eta.messages)
        if session.critical_messages is not None:
            changes["critical_messages"] = _further(session.critical_messages, eta.critical_messages)
    if session.results is not None and (session.critical is None) == (eta.critical == 0):
        changes["results"] = _further(session.results, eta.results)
        if session.critical is not None:
            changes["critical"] = _further(session.critical, eta.critical)
    return msgspec.structs.replace(session, **changes) if changes else session


def _exactly_once(session: StoredSession) -> bool:
    return bool(session.progress.releasing) or any(
        subscription.qos == 2 for subscription in session.subscriptions.values()
    )


def _further(progress: Progress, eta: int) -> Progress:
    """Everything up to ``eta`` is settled, too."""
    if eta <= progress.position:
        return progress
    unsettled = tuple(each for each in progress.unsettled if each > eta)
    return Progress(max(progress.next, eta + 1), unsettled, progress.releasing)
