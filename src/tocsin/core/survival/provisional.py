"""Provisional service without the store: which clients are served, and what is written afterwards.

A broker that cannot reach the store cannot take a session: nobody would know whose it is. It serves the client all the
same, **provisionally**: its subscriptions are those that are known here, from an earlier connection or a copy
(``core.replication``), and QoS 0 flows. Nothing is delivered, acknowledged or committed above that.

    unknown, and may have a session      refused: a session that exists must not be denied, or its promises are broken
    unknown, and wants none to last      served, as anywhere
    known, comes for its session         served with its subscriptions (``Record``), as its session
    begins anew                          served with a new session (``Record``, ``fresh``)

When the store is back, each record is held against the cell (``settle``): if nobody has taken the session since, what
was subscribed and unsubscribed meanwhile is written into it, with a new epoch; and the session is nobody's, until the
client comes for it. If somebody has, the record is dropped. Positions are those of the cell: nobody has moved them.

Invariant: what is written follows from a cell that has the epoch that was known, or from none.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.replication.gamma import ClientSnapshot

Refusal = Literal["not yours", "unknown"]


class Record(msgspec.Struct, frozen=True):
    """A session that is served, or was, without its cell."""

    client: str
    owner: str
    uid: str  # of the session that is known; empty if none is
    epoch: int  # with which it was taken last, as far as is known
    expiry_s: int
    fresh: bool  # the client has begun anew: what was before is to be forgotten
    tail: int  # how far the message log was known when it came
    subscriptions: dict[str, Subscription]


def recorded(
    standing: ClientSnapshot, *, fresh: bool = False, expiry_s: int | None = None, tail: int = 0
) -> Record:
    """The session of a client as a copy knows it."""
    head = standing.head
    return Record(
        client=standing.client,
        owner=head.owner,
        uid=head.session,
        epoch=head.epoch,
        expiry_s=head.expiry_s if expiry_s is None else expiry_s,
        fresh=fresh,
        tail=tail,
        subscriptions={} if fresh else dict(standing.subscriptions),
    )


def admit(
    client: str, known: Record | None, *, owner: str, clean: bool, expiry_s: int, tail: int
) -> Record | Refusal | None:
    """Whether a client is served, and as which session; None: without one that lasts."""
    if known is not None and known.owner not in ("", owner):
        return "not yours"
    if clean:
        uid, epoch = ("", 0) if known is None else (known.uid, known.epoch)
        return Record(client, owner, uid, epoch, expiry_s, True, tail, {})
    if known is not None:
        return msgspec.structs.replace(known, owner=owner or known.owner, expiry_s=expiry_s)
    return "unknown" if expiry_s else None


def settle(
    record: Record, stored: StoredSession | None, *, here: bool, broker: str, uid: str
) -> StoredSession | Literal["forget", "let go", "as it is"]:
    """What becomes of the cell; ``here``: the client was here until a moment ago. ``uid`` is for a new session."""
    if stored is not None and stored.owner not in ("", record.owner):
        return "let go"
    if record.uid and stored is not None:
        unchanged = (stored.uid, stored.epoch) == (record.uid, record.epoch)
    elif stored is not None:  # nothing of it was known: it was made before, or meanwhile
        unchanged = not stored.broker and here
    else:
        unchanged = record.fresh
    if not unchanged:
        return "let go"
    if not record.expiry_s:
        return "let go" if stored is None else "forget"
    if record.fresh or stored is None:
        return StoredSession(
            client=record.client,
            uid=uid,
            expiry_s=record.expiry_s,
            epoch=1 if stored is None else stored.epoch + 1,
            owner=record.owner,
            subscriptions=record.subscriptions,
            progress=Progress(record.tail + 1),
            home=broker,
        )
    if stored.subscriptions == record.subscriptions and stored.expiry_s == record.expiry_s:
        return "as it is"
    return msgspec.structs.replace(
        stored,
        epoch=stored.epoch + 1,
        broker="",
        subscriptions=record.subscriptions,
        expiry_s=record.expiry_s,
    )
