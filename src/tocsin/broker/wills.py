"""Wills that wait: for their delay, or for a client that was sent to another broker to arrive there.

A client that comes for its session, wherever in the network, is alive: its will is dropped. One that comes without it
has ended that session, and with it the wait: its will is published. But if it was sent away by us, it moved: however
it comes, its will is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from tocsin.model.publication import Publication
from tocsin.wire.replication import Bequest

WILLS_MAX: Final = 1_000  # that wait; each may hold a packet of the largest size


class _Waiting(NamedTuple):
    timer: asyncio.TimerHandle
    publication: Publication
    moving: bool
    unless: Callable[[], bool]  # asked when its time has come
    delay_s: int
    publish: Callable[[Publication], None]
    of: str


class Wills:
    """Of the clients that were at one broker last. ``settled`` is told whose will waits no longer."""

    def __init__(
        self, publish: Callable[[Publication], None], settled: Callable[[str], None] = lambda client: None
    ) -> None:
        self._publish = publish
        self._settled = settled
        self._waiting: dict[str, _Waiting] = {}  # by client

    def delay(
        self,
        client: str,
        publication: Publication,
        delay_s: int,
        *,
        moving: bool = False,
        unless: Callable[[], bool] = lambda: False,
        publish: Callable[[Publication], None] | None = None,
        of: str = "",
    ) -> None:
        """Publish a will after a while, unless the client comes back, or ``unless`` says then that it is alive.
        ``publish``: in another way than the others. ``of``: it was found in the copy of that broker.

        Of too many at once those that find no room are published now: late is what was asked for, lost is not.
        """
        before = self._waiting.get(client)
        if before is not None and of and before.of == of:  # the same one, found once more
            before.timer.cancel()
            del self._waiting[client]
        self._end(client)
        publish = publish or self._publish
        if len(self._waiting) >= WILLS_MAX:
            publish(publication)
            return
        timer = asyncio.get_running_loop().call_later(delay_s, self._fall_due, client)
        self._waiting[client] = _Waiting(timer, publication, moving, unless, delay_s, publish, of)

    def waiting(self, client: str) -> Bequest | None:
        """The will of a client that waits."""
        waiting = self._waiting.get(client)
        return None if waiting is None else Bequest(waiting.publication, waiting.delay_s)

    def came(self, client: str, *, back: bool) -> None:
        """A client has come, here or elsewhere; ``back``: for its session."""
        waiting = self._waiting.get(client)
        if waiting is None:
            return
        if back or waiting.moving:
            waiting.timer.cancel()
            del self._waiting[client]
            self._settled(client)
        else:
            self._end(client)

    def _fall_due(self, client: str) -> None:
        if self._waiting[client].unless():
            del self._waiting[client]
            self._settled(client)
        else:
            self._end(client)

    def _end(self, client: str) -> None:
        waiting = self._waiting.pop(client, None)
        if waiting is not None:
            waiting.timer.cancel()
            waiting.publish(waiting.publication)
            self._settled(client)
