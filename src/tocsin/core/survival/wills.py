"""Wills that are not settled yet.

A will waits for its delay, or for a redirected client to arrive at the other broker; or it is on its way into the log.

A client that resumes its session, at any broker, is alive: its will is dropped. A client that comes without its session
has ended that session and with it the wait: its will is published. But if this broker redirected the client, the client
has moved: however it comes, its will is dropped.

A will from a copy may be out of date. If its client has connected since, or left in order, the stored session says so.
So a broker that has a copy's will to publish looks at the stored session first (``came_since``).

A will that is due is **given out** to be published, and nothing stops it then. Its client's backups keep it until it is
in the log, or was sent if it goes into no log: if this broker ends before that, they publish it.

**Room.** A will outlives its connection. It counts against the budgets of its user and its broker until it is settled
(``Reserve``). A will that finds no room to wait is published at once: early is better than lost. A will that is due
goes on its way, with or without room. A will from a copy always waits: its own broker had room for it, the copy holds
it already, and its client is most likely alive.

The shell owns time: this class tells it what to call later. Invariants: one will waits for each client; each will is
given out once, or dropped; a client is settled when none of its wills waits or is on its way; the bytes reserved for a
will are given back once, when it is published or dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from tocsin.core.access.ownership import may_take
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.wire.replication import Bequest

ASK_AGAIN_S: Final = 2  # whether a client lives, if nobody knows: about as soon as its return is heard of
ASKS_MAX: Final = 15  # after that the broker that should say so is taken to be gone

WILL_BYTES: Final = 2_048  # of a will that waits, beside its own bytes: objects, a timer, an account

Cancel = Callable[[], None]
Later = Callable[[int, Callable[[], None]], Cancel]  # so many seconds later, what; how to have it not happen


# Counts so many bytes for a user: how to give them back, or None if there is no room.
Reserve = Callable[[str, int], Cancel | None]
Told = Callable[[], None]  # called once, when the will is logged, sent or permanently dropped
Publish = Callable[[Bequest, Told], None]
Verdict = Callable[[bool], None]  # is told whether a client lives
Doubt = Callable[[str, Bequest, Verdict], None]  # finds out, of the client whose will that is


class _Waiting(NamedTuple):
    cancel: Cancel
    will: Bequest
    moving: bool
    unless: Callable[[], bool | None]  # asked when its time has come, and again if it does not know …
    doubt: Doubt | None  # … and then this, which takes a while
    publish: Publish
    of: str
    release: Cancel  # gives back what is reserved for it
    asks: int = 0  # that were answered with "nobody knows yet"


def came_since(will: Bequest, session: StoredSession | None) -> bool:
    """Whether the client has connected, or left in order, since it left this will; by its stored session."""
    if session is None or not will.session or not may_take(will.owner, session.owner):
        return False  # it is over, and another user's may have its place; or nobody knows
    return session.uid != will.session or max(session.epoch, session.left + 1) > will.epoch


def _is_later(will: Bequest, other: Bequest) -> bool:
    """Whether a client left this will at a later connection, in the same session."""
    return bool(will.session) and will.session == other.session and will.epoch > other.epoch


def _weight(will: Bequest) -> int:
    """About what it takes in memory."""
    publication = will.publication
    properties = sum(len(name) + len(value) + 170 for name, value in publication.user_properties)
    return WILL_BYTES + len(publication.topic) + len(publication.payload) + properties


def _nothing() -> None:
    """Nothing was reserved."""


class WaitingWills:
    """The unsettled wills of the clients that one broker had last.

    ``settled`` is called with a client once each of its wills is logged, sent or permanently dropped.
    """

    def __init__(
        self,
        publish: Publish,
        later: Later,
        settled: Callable[[str], None] = lambda client: None,
        reserve: Reserve = lambda user, size: _nothing,
    ) -> None:
        self._reserve = reserve
        self._publish = publish
        self._later = later
        self._settled = settled
        self._waiting: dict[str, _Waiting] = {}  # by client
        # By client: given out, not in the log; oldest first, with how to give back what is reserved for each.
        self._under_way: dict[str, list[tuple[Bequest, Cancel]]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def delay(
        self,
        client: str,
        will: Bequest,
        delay_s: int,
        *,
        moving: bool = False,
        unless: Callable[[], bool | None] = lambda: False,
        doubt: Doubt | None = None,
        publish: Publish | None = None,
        of: str = "",
    ) -> None:
        """Publish a will after a while, unless the client comes back, or ``unless`` or ``doubt`` say then that it is
        alive. ``unless`` may say None: nobody knows yet. ``publish``: in another way than the others. ``of``: it was
        found in the copy of that broker. Without room it is published now.
        """
        before = self._waiting.get(client)
        if before is not None and _is_later(before.will, will):
            return  # its client came since, and left the one that waits
        if before is not None and ((of and before.of == of) or _is_later(will, before.will)):
            before.cancel()  # the same one, found once more; or its client came since
            self._remove(client)
        self._end(client)
        publish = publish or self._publish
        release = self._reserve(will.owner, _weight(will))
        if release is None and not of:
            self.give_out(client, will, publish)
            return
        cancel = self._later(delay_s, lambda: self._fall_due(client))
        waits = msgspec.structs.replace(will, delay_s=delay_s)
        self._waiting[client] = _Waiting(
            cancel, waits, moving, unless, doubt, publish, of, release or _nothing
        )

    def give_out(self, client: str, will: Bequest, publish: Publish | None = None) -> None:
        """Publish a will now; ``publish``: in another way than the others."""
        release = self._reserve(will.owner, _weight(will)) or _nothing
        self._send(client, will, publish or self._publish, release)

    def _send(self, client: str, will: Bequest, publish: Publish, release: Cancel) -> None:
        under_way = (will, release)
        self._under_way.setdefault(client, []).append(under_way)
        publish(will, lambda: self._told(client, under_way))

    def unsettled(self, client: str) -> Bequest | None:
        """The will of a client that waits, or else the newest that is on its way."""
        waiting = self._waiting.get(client)
        under_way = self._under_way.get(client)
        return waiting.will if waiting is not None else under_way[-1][0] if under_way else None

    def came(self, client: str, owner: str = "", *, back: bool) -> None:
        """A client of this user has come, here or elsewhere; ``back``: for its session. A will that another user's
        client left under the same id is not its affair."""
        waiting = self._waiting.get(client)
        if waiting is None or not may_take(waiting.will.owner, owner):
            return
        if back or waiting.moving:
            waiting.cancel()
            self._remove(client)
            self._settle(client)
        else:
            self._end(client)

    def _fall_due(self, client: str) -> None:
        waiting = self._waiting[client]
        lives = waiting.unless()
        if lives is None and waiting.asks < ASKS_MAX:
            cancel = self._later(ASK_AGAIN_S, lambda: self._fall_due(client))
            self._waiting[client] = waiting._replace(cancel=cancel, asks=waiting.asks + 1)
        elif lives or waiting.doubt is None:
            self._judge(client, waiting, bool(lives))
        else:
            # What nobody knew when it was asked may be known when the answer comes.
            waiting.doubt(
                client,
                waiting.will,
                lambda lives: self._judge(client, waiting, lives or bool(waiting.unless())),
            )

    def _judge(self, client: str, waiting: _Waiting, lives: bool) -> None:
        if self._waiting.get(client) is not waiting:
            return  # it came while somebody was asked
        if lives:
            self._remove(client)
            self._settle(client)
        else:
            self._end(client)

    def _end(self, client: str) -> None:
        waiting = self._waiting.pop(client, None)
        if waiting is not None:
            waiting.cancel()
            self._send(client, waiting.will, waiting.publish, waiting.release)

    def _remove(self, client: str) -> None:
        self._waiting.pop(client).release()

    def _told(self, client: str, told: tuple[Bequest, Cancel]) -> None:
        told[1]()
        under_way = self._under_way[client]
        under_way.remove(told)
        if not under_way:
            del self._under_way[client]
        self._settle(client)

    def _settle(self, client: str) -> None:
        if client not in self._waiting and client not in self._under_way:
            self._settled(client)
