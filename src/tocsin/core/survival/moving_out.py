"""Which clients a broker lets go when its leader wants some elsewhere, and where each goes.

The leader says how many may go now, and to which brokers (``wire.internal.control.Moves``). This chooses them. Clients
that ask for the same stay together: clients are taken group by group, and a group goes to one broker, so that what it
asks for has to be had there once. Clients that are known to follow a redirect (they stated their home) go first. The
others are let go only if the leader says so, which it does for a drain, after a grace.

A client that was told to go and is still here AGAIN_US later is told again.

Invariant: only connected clients are ever chosen, and of a choice nothing is kept but when it was made. What is stored
of clients that are away is not touched.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final

import msgspec

from tocsin.core.survival.refuges import reference
from tocsin.model.network import Scheme
from tocsin.wire.internal.control import Moves

AGAIN_US: Final = 10_000_000  # longer than a client takes to go


class Mover(msgspec.Struct, frozen=True):
    """A connected client, as far as it matters here."""

    client: str
    scheme: Scheme
    asks: tuple[str, ...]  # its subscriptions, in any order
    follows: bool  # it is known to follow a redirect


class Going(msgspec.Struct, frozen=True):
    """A client that is to go."""

    client: str
    server_reference: str | None  # None: there is no entrance of its scheme


class MovingOut:
    """Chooses the clients that one broker lets go."""

    def __init__(self) -> None:
        self._told_us: dict[str, int] = {}  # client → when it was told to go

    def choose(self, moves: Moves, movers: Iterable[Mover], now_us: int) -> list[Going]:
        """The clients to let go for one word of the leader's."""
        self._told_us = {each: at for each, at in self._told_us.items() if now_us - at < AGAIN_US}
        if not moves.to or not moves.count:
            return []
        waiting = [each for each in movers if each.client not in self._told_us]
        able = [each for each in waiting if each.follows] or (waiting if moves.others else [])
        able.sort(key=lambda each: (_group(each), each.client))
        going: list[Going] = []
        for each in able[: moves.count]:
            first = _group(each) % len(moves.to)
            targets = (*moves.to[first:], *moves.to[:first])
            found = reference(targets, each.scheme, 0)
            if found is None and not moves.others:
                continue  # nobody has an entrance for it: it stays while it may
            self._told_us[each.client] = now_us
            going.append(Going(each.client, found))
        return going


def _group(mover: Mover) -> int:
    """The same for clients that ask for the same."""
    return zlib.crc32("\n".join(sorted(mover.asks)).encode())
