"""One failure on a scene: what has to be true before, the moment itself, and all well again.

The moment: a storm over the whole city is published, and taken in by the backend; the channel is told to run. When the
backend says that the results are there, and before the broker has read them and told anybody, the broker is ended. So
its subscribers have missed a notification, and somebody else has to give it to them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from typing import Final

import msgspec

from tocsin.errors import DeadlineExceeded, TocsinError
from tocsin_demo.scene import Course, Failure, Scene
from tocsin_demo.scene.application import CHANNEL
from tocsin_demo.traces import Bounds, Emergency
from tocsin_labs.reaps.prototype.outcome import Outcome, outcome, told_at
from tocsin_labs.reaps.prototype.plan import FROZEN, NEIGHBOUR, VICTIM, WITHOUT_NEIGHBOUR, Plan, Way

TRIES: Final = 10  # to have a storm that is taken in and not told yet


def storm_over(bounds: Bounds) -> Emergency:
    """One that reaches everybody there."""
    x_m, y_m = (bounds.left_m + bounds.right_m) / 2, (bounds.bottom_m + bounds.top_m) / 2
    radius_m = math.hypot(bounds.right_m - x_m, bounds.top_m - y_m) + 1.0
    return Emergency(0.0, "storm-everywhere", "storm", x_m, y_m, radius_m)


class Failing:
    """The failures of one scene. ``present``: the subscribers who are there."""

    def __init__(self, played: Scene, plan: Plan, bounds: Bounds) -> None:
        self._scene = played
        self._plan = plan
        self._storm = storm_over(bounds)
        self.present: set[int] = set()

    async def gather(self, subscribers: Collection[int]) -> None:
        """Have all of these there, their subscriptions and places known to the backend."""
        played, deadline_s = self._scene, self._plan.deadline_s
        missing = played.ledger.absent & {*subscribers}
        if missing:
            await played.come(missing, deadline_s)
        self.present = {*subscribers}
        await played.backend.held(len(self.present), deadline_s)
        for _ in range(TRIES):  # somebody's place may be behind the first storm
            storm = await self._brew()
            await played.backend.ask(f"RUN CHANNEL {CHANNEL}")
            if await self._told(storm, deadline_s / TRIES + self._plan.period_s):
                return
        raise TocsinError(f"{TRIES} storms did not reach everybody")

    async def fail(self, way: Way, run: int) -> Outcome:
        """Let the broker fail, and return when all is well again."""
        await self._ready(way)
        storm, failure = await self._strike(way)
        found = await self._recovered(way, storm, failure)
        result = outcome(way, run, found, self._scene.ledger, storm, self.present)
        return await self._return(failure, result)

    # ── before ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _ready(self, way: Way) -> None:
        """Backups are planned, and have copies; before a remote fail-over the neighbour is down, and missed."""
        played, deadline_s = self._scene, self._plan.deadline_s
        await played.healthy(deadline_s)
        await self._planned(local=NEIGHBOUR)
        if way in WITHOUT_NEIGHBOUR:
            await played.go(self._neighbours(), deadline_s)
            down = played.kill(NEIGHBOUR)
            await played.until(
                lambda: played.chronicle.first("lost", NEIGHBOUR, down.at_s) is not None,
                f"{NEIGHBOUR} is missed",
                deadline_s,
            )
            await self._planned(local=None)
        await asyncio.sleep(self._plan.settle_s)

    async def _planned(self, local: str | None) -> None:
        def holds() -> bool:
            found, remote = self._scene.chronicle.plan.get(VICTIM, (None, None))
            return found == local and remote is not None

        words = f"a local backup of {VICTIM}" if local else f"no local backup of {VICTIM}"
        await self._scene.until(holds, words, self._plan.deadline_s)

    def _neighbours(self) -> set[int]:
        """Those at home at the neighbour, who take leave while that is down: else they would be guests here."""
        homes = self._scene.ledger.homes
        return {each for each in self.present if homes[each] == NEIGHBOUR}

    # ── the moment ──────────────────────────────────────────────────────────────────────────────────────────

    async def _strike(self, way: Way) -> tuple[int, Failure]:
        played, deadline_s = self._scene, self._plan.deadline_s
        for _ in range(TRIES):
            there = played.notices.expect(len(self.present - played.ledger.absent))
            storm = await self._brew()
            if there.done():
                continue  # its time had come just then
            await played.backend.ask(f"RUN CHANNEL {CHANNEL}")
            await asyncio.wait((there,), timeout=deadline_s)
            if not there.done():
                raise DeadlineExceeded("the pipeline (an execution)", deadline_s)
            return storm, self._end(way)
        raise TocsinError(f"{TRIES} storms were told of before a broker could fail; is `period_s` too short?")

    def _end(self, way: Way) -> Failure:
        if way == "migration":
            return self._scene.stop(VICTIM)
        return self._scene.freeze(VICTIM) if way in FROZEN else self._scene.kill(VICTIM)

    async def _brew(self) -> int:
        """A storm that the backend has taken in; its number."""
        played = self._scene
        storm = await played.strike(self._storm)
        await played.backend.executes(played.publisher.published, -1, self._plan.deadline_s)
        return storm

    # ── after ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _recovered(self, way: Way, storm: int, failure: Failure) -> Course:
        played, deadline_s = self._scene, self._plan.deadline_s
        await played.recovered(failure, deadline_s)
        if way != "migration":
            await played.until(
                lambda: played.chronicle.stand_in(VICTIM, failure.at_s) is not None,
                f"somebody stands in for {VICTIM}",
                deadline_s,
            )
        if not await self._told(storm, deadline_s, {*failure.affected}):
            raise TocsinError(f"not everybody was told of storm {storm} within {deadline_s:g} s")
        return played.course(failure)

    async def _told(self, storm: int, within_s: float, also: Collection[int] = ()) -> bool:
        """Whether everybody who is there is told of a storm by then."""
        played = self._scene
        waited_for = {*self.present, *also} - played.ledger.absent
        try:
            async with asyncio.timeout(within_s):
                while any(told_at(played.ledger, each, storm) is None for each in waited_for):
                    played.check()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            return False
        return True

    async def _return(self, failure: Failure, result: Outcome) -> Outcome:
        """Bring all brokers back; how long it took until those who were affected were at home again."""
        played, deadline_s = self._scene, self._plan.deadline_s
        played.bring_back()
        await played.until(
            lambda: all(row.health == "ready" for row in played.brokers.values()), "all brokers", deadline_s
        )
        if missing := played.ledger.absent & self.present:
            await played.come(missing, deadline_s)
        await played.healthy(deadline_s)
        joined = played.chronicle.first("joined", VICTIM, failure.at_s)
        returns = [played.ledger.connected_s(each, VICTIM, failure.at_s) for each in failure.affected]
        if joined is None:  # by the log's clock it was before; nothing is said then
            return result
        times = sorted(each - joined.at_s for each in returns if each is not None)
        return msgspec.structs.replace(result, returned_s=times)
