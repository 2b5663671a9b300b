"""Wills that are not settled: they wait for their delay, or for a client that was sent to another broker to arrive
there; or they are on their way into the log.

A client that comes for its session, wherever in the network, is alive: its will is dropped. One that comes without it
has ended that session, and with it the wait: its will is published. But if it was sent away by us, it moved: however
it comes, its will is dropped.

A will that was found in a copy may be older than the copy tells: what its client took since, elsewhere or at the same
broker, is in the store, and so is that it went in order. So who has a copy's will to publish looks there first
(``came_since``).

A will that has fallen due is **given out**, to be published. Nothing stops it then; but its client's backups go on
knowing it until it is in the log, or was sent if it goes into none: if this broker ends before, they publish it.

**Room.** A will outlives its connection, and stays counted for its user and its broker until it is settled
(``Reserve``). One that finds no room to wait is published at once: late is what was asked for, lost is not. One that is
due goes on its way, with or without room. One of a copy always waits: the copy had it already, its own broker had room
for it, and its client is most likely alive.

Time is the shell's: it is told what to call later. Invariants: of one client one will waits; each is given out once, or
dropped; a client is settled when none of its wills waits or is on its way; what was reserved for a will is given back
once, when it is told or dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from tocsin.core.ownership import may_take
from tocsin.core.stored_session import StoredSession
from tocsin.wire.replication import Bequest

ASK_AGAIN_S: Final = 2  # whether a client lives, if nobody knows: who is back is heard of about that soon
ASKS_MAX: Final = 15  # then whoever should say so is taken to be gone

WILL_BYTES: Final = 2_048  # of a will that waits, beside its own bytes: objects, a timer, an account

Cancel = Callable[[], None]
Later = Callable[[int, Callable[[], None]], Cancel]  # so many seconds later, what; how to have it not happen


# Counts so many bytes for a user: how to give them back, or None if there is no room.
Reserve = Callable[[str, int], Cancel | None]
Told = Callable[[], None]  # the will is in the log, or was sent; or never will be
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
    """Whether a client has come somewhere since it left this will, or went without it, by its stored session as it is
    now."""
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
    """Of the clients that were at one broker last. ``settled`` is told of whom no will is left here."""

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
