"""When the leader has backups planned: the shell plans, because that takes time and what brokers hold (decision 030).

``WantPlan`` asks for one, SETTLE_US after brokers came or went, lest each of a rush has a plan of its own; and every
now and then, since what brokers hold changes. ``PlanMade`` answers. One that is not answered is asked for again.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.coordination.survival import Backups
from tocsin.core.machine import Effect, Event
from tocsin.model.network import BrokerInfo

PLAN: Final = "plan"  # the timer's name
LOOK_US: Final = 500_000
SETTLE_US: Final = 1_000_000
AGAIN_US: Final = 60_000_000
PATIENCE_US: Final = 30_000_000


class WantPlan(Effect, frozen=True, kw_only=True):
    """Plan backups for these brokers, moving as few as can be."""

    brokers: tuple[BrokerInfo, ...]
    previous: dict[str, Backups]


class PlanMade(Event, frozen=True, kw_only=True):
    """That plan."""

    backups: dict[str, Backups]


class PlanClock:
    """When it is time."""

    def __init__(self, now_us: int) -> None:
        self._due_us = now_us + SETTLE_US
        self._changed = False  # since a plan was asked for

    def changed(self, now_us: int) -> None:
        """Brokers came or went."""
        self._changed = True
        self._due_us = min(self._due_us, now_us + SETTLE_US)

    def is_due(self, now_us: int) -> bool:
        """If so, it is asked for now."""
        if now_us < self._due_us:
            return False
        self._due_us = now_us + PATIENCE_US
        self._changed = False
        return True

    def made(self, now_us: int) -> None:
        self._due_us = now_us + (SETTLE_US if self._changed else AGAIN_US)
