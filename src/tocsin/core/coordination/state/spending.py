"""Each user's additions to the command log, and the users that have to wait.

One word of a client may have to be told to many brokers, and the answer to a query may be large. Both go into the log
with it. So every user has a **debt**: what followed from its clients' descriptions and queries, in bytes as they are
estimated here, less a rate for the time that has passed. A user that owes more than a bound is refused until it owes
less. Brokers' own commands, and withdrawals, are not counted.

Everything here follows from the log alone: the sizes are estimates that never change, and the time is the network's.

Invariants: a debt is above 0; no more than USERS_MAX are remembered, the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tocsin.model.stream import size_of
from tocsin.wire.internal import notices
from tocsin.wire.internal.commands import Limits

USERS_MAX: Final = 10_000  # whose debts are remembered; with so many, the smallest is forgotten
ITEM_BYTES: Final = 48  # of an item, or a part of one, beside its texts
BROKER_BYTES: Final = 150  # of a broker's address

SECOND_US: Final = 1_000_000


class Spending:
    """Limits what each user may add to the command log."""

    def __init__(self) -> None:
        self.debts: dict[str, tuple[int, int]] = {}  # user → bytes, and when they were that many

    def owes(self, user: str, now_us: int, limits: Limits) -> int:
        debt, at_us = self.debts.get(user, (0, now_us))
        return max(0, debt - (now_us - at_us) * limits.told_rate_bytes // SECOND_US)

    def problem(self, user: str, now_us: int, limits: Limits) -> str | None:
        """Why a user has to wait; None: it need not."""
        if not limits.told_rate_bytes:
            return None
        over = self.owes(user, now_us, limits) - limits.told_burst_bytes
        if over <= 0:
            return None
        wait_s = -(-over // limits.told_rate_bytes)
        return f"too much had to be told because of this user's clients; try again in {wait_s} s"

    def charge(self, user: str, size: int, now_us: int, limits: Limits) -> None:
        if not limits.told_rate_bytes or not size:
            return
        self.debts[user] = (self.owes(user, now_us, limits) + size, now_us)
        if len(self.debts) > USERS_MAX:
            smallest = min(self.debts, key=lambda each: (self.owes(each, now_us, limits), each))
            del self.debts[smallest]


def told_bytes(item: notices.Item) -> int:
    """The estimated bytes of a notice in the log."""
    return _SIZES.get(type(item), _other)(item)


def _turn(item: Any) -> int:
    return ITEM_BYTES + len(item.topic) + (size_of(item.metadata) if item.metadata else 0)


def _described(item: Any) -> int:
    return ITEM_BYTES + len(item.topic) + size_of(item.keys)


def _set(item: Any) -> int:
    return ITEM_BYTES + sum(len(topic) + size_of(said) + 4 for topic, said in item.streams)


def _routes(item: Any) -> int:
    texts = sum(len(route.filter) for routes in (item.added, item.removed) for route in routes)
    return ITEM_BYTES * (1 + len(item.added) + len(item.removed)) + texts + BROKER_BYTES * len(item.peers)


def _wanted(item: Any) -> int:
    return ITEM_BYTES + len(item.query)


def _bypass(item: Any) -> int:
    return BROKER_BYTES * (1 + len(item.around) + len(item.peers))


def _carriers(item: Any) -> int:
    return ITEM_BYTES * (1 + len(item.moves.names)) + 5 * len(item.moves) + BROKER_BYTES * len(item.peers)


def _other(item: Any) -> int:
    return BROKER_BYTES


_SIZES: Final[Mapping[type[notices.Item], Callable[[Any], int]]] = {
    notices.Joined: _turn,
    notices.Changed: _turn,
    notices.Left: _turn,
    notices.Described: _described,
    notices.QuerySet: _set,
    notices.Routes: _routes,
    notices.Wanted: _wanted,
    notices.Bypass: _bypass,
    notices.Carriers: _carriers,
}
