"""Which clients a broker lets go when its leader wants some elsewhere, and where each goes.

The leader says how many may go now, and to which brokers (``wire.internal.control.Moves``). This chooses them. Clients
that ask for the same stay together: clients are taken group by group, and a group goes to one broker, so that what it
asks for has to be had there once. Clients that are known to follow a redirect (they stated their home) go first. The
others are let go only if the leader says so, which it does for a drain, after a grace.

To **balance**, not all go: so it matters which groups do. The one that is under way goes on first. Then come those that
fit as a whole into what is to go in all (``Moves.left``), the largest first: fewer groups, fewer topics that change
their broker. A group is broken up only if none fitted since the leader began; then it is the smallest. Clients that
came less than ``rest_us`` ago stay: so nobody is moved in a circle, whatever leaders make of the counts that they hear,
and a crowd that has just come from a lost broker is not sent on. A group of which many have just come waits for them.

A client that was told to go and is still here AGAIN_US later is told again.

Invariant: only connected clients are ever chosen, and of a choice nothing is kept but when it was made, and the group
that is under way. What is stored of clients that are away is not touched.
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
RESTED_PERCENT: Final = (
    90  # of a group that is moved to balance: in a large one somebody has always just come
)


class Mover(msgspec.Struct, frozen=True):
    """A connected client, as far as it matters here."""

    client: str
    scheme: Scheme
    asks: tuple[str, ...]  # its subscriptions, in any order
    follows: bool  # it is known to follow a redirect
    came_us: int = 0  # when it came here


class Going(msgspec.Struct, frozen=True):
    """A client that is to go."""

    client: str
    server_reference: str | None  # None: there is no entrance of its scheme


class MovingOut:
    """Chooses the clients that one broker lets go."""

    def __init__(self, rest_us: int = 0) -> None:
        self._rest_us = rest_us
        self._told_us: dict[str, int] = {}  # client → when it was told to go
        self._under_way: int | None = None  # the group that is moved to balance, of which some are left
        self._whole = False  # a group has gone as a whole since the leader began to balance

    def choose(self, moves: Moves, movers: Iterable[Mover], now_us: int) -> list[Going]:
        """The clients to let go for one word of the leader's."""
        self._told_us = {each: at for each, at in self._told_us.items() if now_us - at < AGAIN_US}
        if not moves.to or not moves.count:
            return []
        waiting = [each for each in movers if each.client not in self._told_us]
        chosen = self._to_empty(moves, waiting) if moves.drain else self._to_balance(moves, waiting, now_us)
        going: list[Going] = []
        for group, each in chosen:
            first = group % len(moves.to)
            targets = (*moves.to[first:], *moves.to[:first])
            found = reference(targets, each.scheme, 0)
            if found is None and not moves.others:
                continue  # nobody has an entrance for it: it stays while it may
            self._told_us[each.client] = now_us
            going.append(Going(each.client, found))
        return going

    def ended(self) -> None:
        """The leader wants nobody elsewhere any more."""
        self._under_way, self._whole = None, False

    def _to_empty(self, moves: Moves, waiting: list[Mover]) -> list[tuple[int, Mover]]:
        able = [each for each in waiting if each.follows] or (waiting if moves.others else [])
        ordered = sorted(((_group(each), each) for each in able), key=lambda each: (each[0], each[1].client))
        return ordered[: moves.count]

    def _rested(self, waiting: list[Mover], now_us: int) -> dict[int, list[Mover]]:
        """The clients that may be moved to balance, by what they ask for."""
        groups: dict[int, list[Mover]] = {}
        sizes: dict[int, int] = {}
        for each in waiting:
            if each.follows:
                group = _group(each)
                sizes[group] = sizes.get(group, 0) + 1
                if now_us - each.came_us >= self._rest_us:
                    groups.setdefault(group, []).append(each)
        return {
            group: members
            for group, members in groups.items()
            if len(members) * 100 >= sizes[group] * RESTED_PERCENT or group == self._under_way
        }

    def _to_balance(self, moves: Moves, waiting: list[Mover], now_us: int) -> list[tuple[int, Mover]]:
        groups = self._rested(waiting, now_us)
        by_size = sorted(groups, key=lambda group: (group != self._under_way, -len(groups[group]), group))
        left, chosen = moves.left or len(waiting), list[tuple[int, Mover]]()
        for group in by_size:
            members = groups[group]
            if len(chosen) < moves.count and (len(members) <= left or group == self._under_way):
                chosen += [(group, each) for each in sorted(members, key=lambda each: each.client)]
                left -= len(members)
        if chosen:
            self._whole = True
        elif by_size and not self._whole:
            chosen = [(by_size[-1], each) for each in groups[by_size[-1]]]
        chosen, rest = chosen[: moves.count], chosen[moves.count :]
        self._under_way = rest[0][0] if rest else None
        return chosen


def _group(mover: Mover) -> int:
    """The same for clients that ask for the same."""
    return zlib.crc32("\n".join(sorted(mover.asks)).encode())
