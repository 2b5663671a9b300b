"""The shell of ``core.waiting_wills``: time is the loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tocsin.core.waiting_wills import Cancel, Publish, WaitingWills


class Wills(WaitingWills):
    """See the module's text."""

    def __init__(self, publish: Publish, settled: Callable[[str], None] = lambda client: None) -> None:
        super().__init__(publish, _later, settled)


def _later(delay_s: int, act: Callable[[], None]) -> Cancel:
    return asyncio.get_running_loop().call_later(delay_s, act).cancel
