"""Wills that wait: for their delay, or for a client that was sent to another broker to arrive there.

A client that comes for its session, wherever in the network, is alive: its will is dropped. One that comes without it
has ended that session, and with it the wait: its will is published. But if it was sent away by us, it moved: however
it comes, its will is dropped.

A will that was found in a copy may be older than the copy tells: what its client took since, elsewhere or at the same
broker, is in the store. So who has a copy's will to publish looks there first (``came_since``).

Time is the shell's: it is told what to call later. Invariants: of one client one will waits; each is published once, or
dropped, and then settled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from tocsin.core.stored_session import StoredSession
from tocsin.wire.replication import Bequest

WILLS_MAX: Final = 1_000  # that wait; each may hold a packet of the largest size

Cancel = Callable[[], None]
Later = Callable[[int, Callable[[], None]], Cancel]  # so many seconds later, what; how to have it not happen


Publish = Callable[[Bequest], None]
Verdict = Callable[[bool], None]  # is told whether a client lives
Doubt = Callable[[str, Bequest, Verdict], None]  # finds out, of the client whose will that is


class _Waiting(NamedTuple):
    cancel: Cancel
    will: Bequest
    moving: bool
    unless: Callable[[], bool]  # asked when its time has come …
    doubt: Doubt | None  # … and then this, which takes a while
    publish: Publish
    of: str


def came_since(will: Bequest, session: StoredSession | None) -> bool:
    """Whether a client has come somewhere since it left this will, by its stored session as it is now."""
    if session is None or not will.session:
        return False  # it is over; or nobody knows
    return session.uid != will.session or session.epoch > will.epoch


class WaitingWills:
    """Of the clients that were at one broker last. ``settled`` is told whose will waits no longer."""

    def __init__(
        self,
        publish: Publish,
        later: Later,
        settled: Callable[[str], None] = lambda client: None,
    ) -> None:
        self._publish = publish
        self._later = later
        self._settled = settled
        self._waiting: dict[str, _Waiting] = {}  # by client

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
        unless: Callable[[], bool] = lambda: False,
        doubt: Doubt | None = None,
        publish: Publish | None = None,
        of: str = "",
    ) -> None:
        """Publish a will after a while, unless the client comes back, or ``unless`` or ``doubt`` say then that it is
        alive. ``publish``: in another way than the others. ``of``: it was found in the copy of that broker.

        Of too many at once those that find no room are published now: late is what was asked for, lost is not.
        """
        before = self._waiting.get(client)
        if before is not None and of and before.of == of:  # the same one, found once more
            before.cancel()
            del self._waiting[client]
        self._end(client)
        publish = publish or self._publish
        if len(self._waiting) >= WILLS_MAX:
            publish(will)
            return
        cancel = self._later(delay_s, lambda: self._fall_due(client))
        waits = msgspec.structs.replace(will, delay_s=delay_s)
        self._waiting[client] = _Waiting(cancel, waits, moving, unless, doubt, publish, of)

    def waiting(self, client: str) -> Bequest | None:
        """The will of a client that waits."""
        waiting = self._waiting.get(client)
        return None if waiting is None else waiting.will

    def came(self, client: str, *, back: bool) -> None:
        """A client has come, here or elsewhere; ``back``: for its session."""
        waiting = self._waiting.get(client)
        if waiting is None:
            return
        if back or waiting.moving:
            waiting.cancel()
            del self._waiting[client]
            self._settled(client)
        else:
            self._end(client)

    def _fall_due(self, client: str) -> None:
        waiting = self._waiting[client]
        lives = waiting.unless()
        if lives or waiting.doubt is None:
            self._judge(client, waiting, lives)
        else:
            waiting.doubt(client, waiting.will, lambda lives: self._judge(client, waiting, lives))

    def _judge(self, client: str, waiting: _Waiting, lives: bool) -> None:
        if self._waiting.get(client) is not waiting:
            return  # it came while somebody was asked
        if lives:
            del self._waiting[client]
            self._settled(client)
        else:
            self._end(client)

    def _end(self, client: str) -> None:
        waiting = self._waiting.pop(client, None)
        if waiting is not None:
            waiting.cancel()
            waiting.publish(waiting.will)
            self._settled(client)
