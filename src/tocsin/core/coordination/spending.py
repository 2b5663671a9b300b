"""What users make the command log carry: how much follows from what each of them says, and who has to wait.

One word of a client may have to be told to many brokers, and the answer to a query may be large. Both go into the log
with it. So every user has a **debt**: what followed from its clients' descriptions and queries, in bytes as they are
estimated here, less a rate for the time that has passed. Who owes more than a bound is refused until it owes less.
What brokers say of themselves, and what takes something away, is not asked.

Everything here follows from the log alone: the sizes are estimates that never change, and the time is the network's.

Invariants: a debt is above 0; no more than USERS_MAX are remembered, the largest.
"""

from __future__ import annotations

from typing import Final

from tocsin.model.stream import size_of
from tocsin.wire import notices
from tocsin.wire.commands import Limits

USERS_MAX: Final = 10_000  # whose debts are remembered; with so many, the smallest is forgotten
ITEM_BYTES: Final = 48  # of an item, or a part of one, beside its texts
BROKER_BYTES: Final = 150  # of a broker's address

SECOND_US: Final = 1_000_000


class Spending:
    """See the module's text."""

    def __init__(self) -> None:
        self.debts: dict[str, tuple[int, int]] = {}  # user → bytes, and when they were that many

    def owes(self, user: str, now_us: int, limits: Limits) -> int:
        debt, at_us = self.debts.get(user, (0, now_us))
        return max(0, debt - (now_us - at_us) * limits.told_rate_bytes // SECOND_US)

    def problem(self, user: str, now_us: int, limits: Limits) -> str | None:
        """Why a user has to wait, in words; None: it need not."""
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
    """What telling something takes in the log: an estimate."""
    match item:
        case notices.Joined() | notices.Changed() | notices.Left():
            return ITEM_BYTES + len(item.topic) + size_of(item.metadata)
        case notices.Described():
            return ITEM_BYTES + len(item.topic) + size_of(item.keys)
        case notices.QuerySet(streams=streams):
            return ITEM_BYTES + sum(len(topic) + size_of(said) + 4 for topic, said in streams)
        case notices.Routes(added=added, removed=removed, peers=peers):
            texts = sum(len(route.filter) for routes in (added, removed) for route in routes)
            return ITEM_BYTES * (1 + len(added) + len(removed)) + texts + BROKER_BYTES * len(peers)
        case notices.Bypass(around=around, peers=peers):
            return BROKER_BYTES * (1 + len(around) + len(peers))
    return BROKER_BYTES
