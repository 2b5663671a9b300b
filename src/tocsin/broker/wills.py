"""The shell of ``core.waiting_wills``: time is the loop's, and room the broker's budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tocsin.config import Budgets
from tocsin.core.budget import Budget, Kind, bounds_of
from tocsin.core.waiting_wills import Cancel, Publish, Reserve, WaitingWills


class Wills(WaitingWills):
    """See the module's text."""

    def __init__(
        self,
        publish: Publish,
        settled: Callable[[str], None] = lambda client: None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(publish, _later, settled, _reserving(budget or Budget(bounds_of(Budgets()))))


def _reserving(budget: Budget) -> Reserve:
    """Each will has an account of its own, as the connection that it outlives had."""

    def reserve(user: str, size: int) -> Cancel | None:
        account = budget.account(user)
        if account.take(Kind.SESSIONS, size) is None:
            return account.close
        account.close()
        return None

    return reserve


def _later(delay_s: int, act: Callable[[], None]) -> Cancel:
    return asyncio.get_running_loop().call_later(delay_s, act).cancel
