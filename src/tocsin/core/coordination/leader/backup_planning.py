"""When the leader has backups planned (decision 030).

The shell plans, because that takes time, and needs what brokers hold.

``WantPlan`` asks for one, SETTLE_US after brokers came or went, lest each of a rush has a plan of its own; and every
now and then, since what brokers hold changes. ``PlanMade`` answers. One that is not answered is asked for again. A
planner that is busy may not hear a request: changes that came before an answer to an earlier request are asked for once
more.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.coordination.state.backups import Backups
from tocsin.core.machine import Effect, Event
from tocsin.model.network import BrokerInfo

LOOK_US: Final = 500_000
SETTLE_US: Final = 1_000_000
AGAIN_US: Final = 60_000_000
PATIENCE_US: Final = 30_000_000


class WantPlan(Effect, frozen=True, kw_only=True):
    """Plan backups for these brokers, moving as few as can be."""

    brokers: tuple[BrokerInfo, ...]
    previous: dict[str, Backups]


class PlanMade(Event, frozen=True, kw_only=True):
    """The plan that ``WantPlan`` asked for."""

    backups: dict[str, Backups]


class PlanClock:
    """When it is time."""

    def __init__(self, now_us: int) -> None:
        self._due_us = now_us + SETTLE_US
        self._awaited = False  # a plan was asked for, and not made yet
        self._changed = False  # since the first time that it was asked for

    def changed(self, now_us: int) -> None:
        """Brokers came or went."""
        self._changed = True
        self._due_us = min(self._due_us, now_us + SETTLE_US)

    def is_due(self, now_us: int) -> bool:
        """If so, it is asked for now."""
        if now_us < self._due_us:
            return False
        self._due_us = now_us + PATIENCE_US
        if not self._awaited:
            self._awaited, self._changed = True, False
        return True

    def made(self, now_us: int) -> None:
        self._awaited = False
        self._due_us = now_us + (SETTLE_US if self._changed else AGAIN_US)
