"""Each user's additions to the command log, and the users that have to wait.

One word of a client may have to be told to many brokers, and the answer to a query may be large. Both go into the log
with it. So every user has a **debt**: what followed from its clients' descriptions and queries, in estimated bytes
(``wire.internal.notices``), less a rate for the time that has passed. A user that owes more than a bound is refused
until it owes less. Brokers' own commands, and withdrawals, are not counted.

Everything here follows from the log alone; the time is the network's.

Invariants: a debt is above 0; no more than USERS_MAX are remembered, the largest.
"""

from __future__ import annotations

from typing import Final

from tocsin.wire.internal.commands import Limits

USERS_MAX: Final = 10_000  # whose debts are remembered; with so many, the smallest is forgotten
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
