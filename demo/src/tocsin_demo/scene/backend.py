"""The backend as the scene needs it: the application defined, everything taken in and executed, what was committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tocsin.client.sql import Pipeline, connect
from tocsin.errors import DeadlineExceeded, OperatorError, TocsinError
from tocsin.model.answer import Answer
from tocsin_demo.network import Running
from tocsin_demo.scene.account import Result
from tocsin_demo.scene.application import CHANNEL, definitions

START_S: Final = 180.0  # for Spark to be there: it starts while the brokers do
RESTARTS_MAX: Final = 1  # a second failure is no accident
LOOK_S: Final = 0.25
PAGE: Final = 20_000  # results that are asked for at a time: less than half of what one answer carries
ROWS_MAX: Final = 100_000


class Backend:
    """The pipeline of the scene's network."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def ask(self, sql: str) -> tuple[Answer, ...]:
        """The answers to a script; raises what is wrong with it."""
        reply = await self._pipeline.run(sql, limit=ROWS_MAX)
        if reply.error is not None:
            raise reply.error.error(sql)
        return reply.results

    async def define(self, period_s: int) -> None:
        await self.ask(definitions(period_s))

    async def channel(self) -> dict[str, Any]:
        """How the channel is: executions, last_ms, results_total, subscriptions, overruns, error and more."""
        status = await self._pipeline.status()
        return next(each for each in status["channels"] if each["name"] == CHANNEL)

    async def held(self, subscriptions: int, deadline_s: float) -> None:
        """Until the pipeline knows of so many subscriptions."""
        await self._until(
            "the subscriptions", deadline_s, lambda status: bool(status["subscriptions"] >= subscriptions)
        )

    async def executes(self, emergencies: int, before: int, deadline_s: float) -> None:
        """Until so many emergencies are in their dataset, and more executions are done than there were ``before``."""

        def holds(status: dict[str, Any]) -> bool:
            rows = next(each["rows"] for each in status["datasets"] if each["name"] == "Emergencies")
            return bool(rows >= emergencies and _executions(status) > before)

        await self._until("an execution", deadline_s, holds)

    async def executed(self, emergencies: int, deadline_s: float) -> None:
        """Until so many emergencies are in their dataset, and an execution that has seen all of them is done.

        Then the channel is paused: what is committed stays as it is.
        """
        await self.executes(emergencies, -1, deadline_s)
        # The pipeline takes in and executes by turns: whatever ends from here on has seen everything.
        before = (await self.channel())["executions"]
        await self.ask(f"RUN CHANNEL {CHANNEL}")
        await self.executes(emergencies, before, deadline_s)
        await self.ask(f"PAUSE CHANNEL {CHANNEL}")

    async def _until(self, what: str, deadline_s: float, holds: Callable[[dict[str, Any]], bool]) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    if holds(await self._pipeline.status()):
                        return
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise DeadlineExceeded(f"the pipeline ({what})", deadline_s) from None

    async def committed(self) -> dict[str, list[Result]]:
        """Every result of the channel, by subscriber."""
        everything = await self._results("")
        if everything is not None:
            return everything
        (sizes,) = await self.ask(
            f"SELECT _execution AS execution, COUNT(*) AS n FROM RESULTS OF {CHANNEL} GROUP BY _execution"
        )
        found: dict[str, list[Result]] = {}
        for first, last in pages([(int(execution), int(n)) for execution, n in sizes.rows]):
            page = await self._results(f"WHERE _execution BETWEEN {first} AND {last}")
            if page is None:
                raise TocsinError(f"executions {first} to {last} have more results than an answer carries")
            for user, results in page.items():
                found.setdefault(user, []).extend(results)
        return found

    async def _results(self, where: str) -> dict[str, list[Result]] | None:
        """Some of them; None if they are too many for one answer."""
        (page,) = await self.ask(
            f"SELECT user, _execution AS execution, number, _priority AS priority FROM RESULTS OF {CHANNEL} {where}"
        )
        if page.more:
            return None
        found: dict[str, list[Result]] = {}
        for user, execution, number, priority in page.rows:
            found.setdefault(user, []).append(Result(int(execution), int(number), int(priority)))
        return found


def pages(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of executions, (first, last), with PAGE results at most, or one execution each."""
    found: list[tuple[int, int]] = []
    filled = 0
    for execution, size in sorted(sizes):
        if found and filled + size <= PAGE:
            found[-1] = (found[-1][0], execution)
            filled += size
        else:
            found.append((execution, execution))
            filled = size
    return found


def _executions(status: dict[str, Any]) -> int:
    return next(int(each["executions"]) for each in status["channels"] if each["name"] == CHANNEL)


@asynccontextmanager
async def backend(network: Running) -> AsyncIterator[Backend]:
    """The pipeline, as soon as Spark is there. Raises ``OperatorError`` if it does not start."""
    settings = network.settings
    async with connect(settings.nats, network=settings.network) as pipeline:
        await _started(network, pipeline)
        yield Backend(pipeline)


async def _started(network: Running, pipeline: Pipeline) -> None:
    until_s = time.monotonic() + START_S
    while True:
        try:
            await pipeline.status()
        except OperatorError:
            row = next(each for each in network.rows() if each.name == "pipeline")
            if row.restarts > RESTARTS_MAX or time.monotonic() > until_s:
                why = row.problem or f"no answer within {START_S:g} s"
                raise OperatorError(f"the pipeline does not start: {why}", "Run `tocsin doctor`") from None
            await asyncio.sleep(LOOK_S)
        else:
            return
