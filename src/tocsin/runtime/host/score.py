"""The score of a broker's machine, for the planner of backups.

``run`` looks at the machine every ``scoring.every_s`` and asks the operator's criteria, each at its own pace;
``score`` is made of what was seen last, and costs nothing. ``core.assignment.ranking.scoring`` turns the measurements
into a score.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tocsin.config import Settings
from tocsin.core.assignment.ranking.scoring import Resource, Score, score
from tocsin.runtime.host.busy import ProcessTime
from tocsin.runtime.host.criteria import NOT_ASKED, Asked
from tocsin.runtime.host.measure import Machine, Measured


class Resources:
    """The score of one broker's machine. ``standby``: the broker is one now; a promoted standby serves."""

    def __init__(
        self,
        settings: Settings,
        broker: str,
        cluster: str,
        machine: Machine | None = None,
        *,
        standby: bool = False,
    ) -> None:
        self._settings = settings.scoring
        self._standby = standby
        self._machine = machine or Machine(_host(settings, broker), self._settings.bandwidth_mbit)
        self._criteria = {each.name: Asked(each, broker, cluster) for each in self._settings.criteria}
        self._busy = ProcessTime()
        self._seen: Mapping[str, Measured] = {}  # empty: not looked yet

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._criteria.values():
                group.create_task(each.run())
            while True:
                self._seen = await asyncio.to_thread(self._machine.look)
                await asyncio.sleep(self._settings.every_s)

    def score(self, *, standby: bool = False) -> tuple[float | None, tuple[str, ...]]:
        """The score from 0 to 1, and its unknown parts, as text. None: there is nothing to make it of yet.

        ``standby``: the score that the broker would have as a standby."""
        made = self._made(standby)
        early = tuple(f"{each.name}: {NOT_ASKED}" for each in self._criteria.values() if not each.was_asked)
        if made is None:
            return None, (*(() if self._seen else ("the machine has not been measured yet",)), *early)
        problems = {name: self._seen[name].problem for name in made.unanswered if name in self._seen}
        known = (f"{name}: {problems.get(name) or problem}" for name, problem in made.unanswered.items())
        return made.total, (*known, *early)

    def busy(self, carried: float) -> float:
        """The share of the time since the last call in which this process worked, or waited for its turn."""
        return self._busy.look()

    def terms(self, *, standby: bool = False) -> dict[str, tuple[float, float]]:
        """The parts of the score: the value and the weight of each, by its name."""
        made = self._made(standby)
        return {} if made is None else {name: (each.value, each.weight) for name, each in made.terms.items()}

    def _made(self, standby: bool) -> Score | None:
        """A criterion that is being asked for the first time does not count yet: its broker has just started."""
        if not self._seen:
            return None
        standby = standby or self._standby
        needs = self._settings.needs(standby=standby)
        weights = self._settings.weights(standby=standby)
        resources = {name: Resource(each.have, needs[name], each.used) for name, each in self._seen.items()}
        criteria = {name: each.last for name, each in self._criteria.items() if each.was_asked}
        if not any(weights.values()) and not any(each.weight for each in criteria.values()):
            return None
        return score(resources, criteria, weights)


def _host(settings: Settings, broker: str) -> str:
    """The address where others reach it: every address by default, which ``reachable_at`` would take for this
    machine's.
    """
    configured = settings.broker(broker)
    return "0.0.0.0" if configured is None else configured.advertise or configured.host
