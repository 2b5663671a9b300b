"""One scene, from a network that starts to the account: see the package's text."""

from __future__ import annotations

import asyncio
import datetime
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from tocsin.config import Settings
from tocsin.core.coordination.names import StoreNames
from tocsin.core.supervision.machine import Row
from tocsin.errors import DeadlineExceeded, OperatorError
from tocsin.model.channel_names import ChannelNames
from tocsin.model.network import broker_address
from tocsin.runtime import extra
from tocsin.runtime.network.supervisor import log_path
from tocsin.store.jetstream.store import JetStreamStore
from tocsin_demo.network import Running, running
from tocsin_demo.scene.account import Account, Result, account
from tocsin_demo.scene.backend import Backend, backend
from tocsin_demo.scene.chronicle import Chronicle, took_over
from tocsin_demo.scene.course import Course, Failure
from tocsin_demo.scene.crowd_processes import CrowdProcesses
from tocsin_demo.scene.down import Down
from tocsin_demo.scene.ledger import Ledger
from tocsin_demo.scene.notices import Notices
from tocsin_demo.scene.publisher import EmergencyPublisher
from tocsin_demo.scene.script import Script
from tocsin_demo.traces import Emergency

LOOK_S: Final = 0.05
PLAN_S: Final = 30.0  # for every broker to have backups
HOLD_S: Final = 60.0  # for the pipeline to know of everybody's subscription
EXECUTE_S: Final = 120.0  # for the last emergencies to be taken in and executed
SETTLE_S: Final = 60.0  # for the last notifications to arrive
SETTLE_LOOK_S: Final = 0.5
LATE_S: Final = 1.0  # for what comes once more
NOWHERE: Final = Emergency(0.0, "crash-nowhere", "crash", -1e6, -1e6, 1.0)


class Scene:
    """See the package's text; made by ``scene``."""

    def __init__(self, script: Script, network: Running, backend: Backend, down: Down) -> None:
        self.script = script
        self.network = network
        self.backend = backend
        self.chronicle = Chronicle(network.settings.network)
        self.notices = Notices()
        self.names = [name for name, _ in script.cast()]
        servers = {f"{host}:{port}": broker for broker, (host, port) in network.servers.items()}
        self.ledger = Ledger([home.broker for _, home in script.cast()], servers)
        self.publisher = EmergencyPublisher(network.servers.values())
        self.failures: list[Failure] = []
        self.begun_s: float | None = None  # when the play began
        self._crowd = CrowdProcesses(self.ledger)
        self._down = down
        self._tasks: list[asyncio.Task[None]] = []
        self._playing: asyncio.Task[None] | None = None
        self._rehearsed = 0  # emergencies that were before the play
        self._taken: dict[
            tuple[float, str, str], float
        ] = {}  # failure, broker and stand-in → when that said so

    # ── beginning ───────────────────────────────────────────────────────────────────────────────────────────

    async def enter(self, stack: AsyncExitStack, tell: Callable[[str], None]) -> None:
        """Everything up to the moment before the play begins; what is to be undone goes onto the stack."""
        stack.push_async_callback(self._leave)
        await self._follow_log(stack)
        tell("the application is defined: datasets, feeds and a channel, in SQL")
        await self.backend.define(self.script.period_s)
        await self.publisher.enter(stack)
        tell("backups are chosen")
        await self.until(lambda: self.chronicle.planned(self.network.servers), "backups", PLAN_S)
        tell(f"{self.script.subscribers - len(self.script.later)} subscribers come")
        await self._crowd.enter(stack, self.script, self.network.servers)
        self._keep(self._crowd.listen())
        await self.backend.held(self._crowd.there, HOLD_S)
        tell("a rehearsal: Spark compiles the channel")
        await self._rehearse()

    async def _rehearse(self) -> None:
        """Let something happen that concerns nobody, so that the first execution of the play is like any other."""
        before = (await self.backend.channel())["executions"]
        await self.strike(NOWHERE)
        await self.backend.executes(self.publisher.published, before, EXECUTE_S)
        self._rehearsed = self.publisher.published

    async def _follow_log(self, stack: AsyncExitStack) -> None:
        settings = self.network.settings
        store = await JetStreamStore.open(settings.nats, "operator", name="scene")
        stack.push_async_callback(store.close)
        log = await store.log(StoreNames(settings.network).commands)

        async def follow() -> None:
            async for entry in log.follow(f"{settings.network}.>", 0):
                self.chronicle.take(entry.subject, entry.payload, entry.at_us / 1e6 - _offset_s())

        places = ChannelNames(settings.network)
        notices = await store.log(places.notices)

        async def hear() -> None:
            async for entry in notices.follow(places.notices_subject, 0):
                self.notices.take(entry.payload)

        self._keep(follow())
        self._keep(hear())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _leave(self) -> None:
        tasks = [*self._tasks, *([] if self._playing is None else [self._playing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check(self) -> None:
        """Raise what has gone wrong beside: a process of subscribers ended, an emergency could not be published."""
        for task in (*self._tasks, *([] if self._playing is None else [self._playing])):
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error

    async def until(self, holds: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Wait for something; ``DeadlineExceeded`` names it if it does not come."""
        try:
            async with asyncio.timeout(deadline_s):
                while not holds():
                    self.check()
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise DeadlineExceeded(f"the scene ({what})", deadline_s) from None

    # ── the play ────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Let people walk, and emergencies happen, from now on."""
        self.begun_s = time.monotonic()
        await self._crowd.begin(self.begun_s)
        self._playing = asyncio.create_task(self.publisher.play(self.script.happenings(), self.begun_s))

    async def strike(self, emergency: Emergency) -> int:
        """Let an emergency happen that is not in the script; its number, once it is published."""
        return await self.publisher.strike(emergency)

    async def come(self, subscribers: Collection[int], deadline_s: float) -> None:
        """Have these come, for the first time or again, and return when they are subscribed."""
        await self._crowd.come(subscribers)
        await self._attended(self.ledger.absent - {*subscribers}, deadline_s)

    async def go(self, subscribers: Collection[int], deadline_s: float) -> None:
        """Have these take leave, and return when they are gone. Their sessions stay."""
        await self._crowd.go(subscribers)
        await self._attended(self.ledger.absent | {*subscribers}, deadline_s)

    async def _attended(self, absent: set[int], deadline_s: float) -> None:
        self.ledger.absent = absent
        present = self.script.subscribers - len(absent)
        await self.until(lambda: self._crowd.there == present, f"{present} subscribers", deadline_s)

    @property
    def happened(self) -> int:
        """How many emergencies were published since the play began."""
        return self.publisher.published - self._rehearsed

    @property
    def brokers(self) -> dict[str, Row]:
        """The brokers' current processes; a broker that is kept down is ``starting``."""
        rows = {row.name: row for row in self.network.rows()}
        return {home.broker: rows[broker_address(home.broker)] for home in self.script.homes}

    @property
    def down(self) -> tuple[str, ...]:
        """The brokers that are kept down."""
        return self._down.brokers

    # ── failures ────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self, *brokers: str) -> Failure:
        """Kill brokers (SIGKILL), all at once, and keep them down."""
        return self._end(brokers, signal.SIGKILL)

    def kill_cluster(self, cluster: str) -> Failure:
        """Kill all brokers of a cluster at once."""
        return self.kill(*self.script.clusters()[cluster])

    def stop(self, *brokers: str) -> Failure:
        """Ask brokers to stop (SIGTERM), so that they send their clients elsewhere, and keep them down."""
        return self._end(brokers, signal.SIGTERM)

    def freeze(self, *brokers: str) -> Failure:
        """Stop brokers where they are (SIGSTOP): their connections stay open, and nothing is said on them."""
        return self._end(brokers, signal.SIGSTOP)

    def _end(self, brokers: Sequence[str], number: signal.Signals) -> Failure:
        unknown = [broker for broker in brokers if broker not in self.network.servers]
        if unknown:
            known = ", ".join(self.network.servers)
            raise OperatorError(f"there is no broker {unknown[0]}", f"Name one of {known}")
        at_s = time.monotonic()
        frozen = number is signal.SIGSTOP
        down, network = self._down, self.network
        pids = down.freeze(network, brokers) if frozen else down.take(network, brokers, number)
        failure = Failure(tuple(brokers), at_s, self.ledger.at(brokers, at_s), pids, frozen)
        self.failures.append(failure)
        return failure

    def bring_back(self, *brokers: str) -> None:
        """Let brokers start again, or go on; all that are down if none is named."""
        self._down.release(brokers or None)

    def course(self, failure: Failure) -> Course:
        """How far the recovery is. The affected are those who were connected when it happened, told or not by now."""
        affected = self.ledger.at(failure.brokers, failure.at_s)
        lost = {each: self.chronicle.first("lost", each, failure.at_s) for each in failure.brokers}
        moved = {each: self.chronicle.stand_in(each, failure.at_s) for each in failure.brokers}
        stands_in = {each: None if mark is None else mark.to for each, mark in moved.items()}
        return Course(
            failure,
            lost_s={each: None if mark is None else mark.at_s for each, mark in lost.items()},
            stands_in=stands_in,
            taken_s={each: self._taken_s(each, by, failure.at_s) for each, by in stands_in.items()},
            passages=tuple(self.ledger.passage(each, failure.at_s) for each in affected),
        )

    def _taken_s(self, broker: str, by: str | None, failed_s: float) -> float | None:
        if by is None:
            return None
        if (failed_s, broker, by) not in self._taken:
            offset_s = _offset_s()
            after = datetime.datetime.fromtimestamp(failed_s + offset_s, datetime.UTC)
            log = log_path(self.network.directory / "logs", broker_address(by))
            at = took_over(log, broker, after)
            if at is None:
                return None
            self._taken[failed_s, broker, by] = at.timestamp() - offset_s
        return self._taken[failed_s, broker, by]

    async def recovered(self, failure: Failure, deadline_s: float) -> Course:
        """Until all subscribers that were affected are served again; ``DeadlineExceeded`` if they are not."""

        def all_back() -> bool:
            return all(
                self.ledger.passage(each, failure.at_s).back_s is not None
                for each in self.ledger.at(failure.brokers, failure.at_s)
            )

        await self.until(all_back, f"recovery of {', '.join(failure.brokers)}", deadline_s)
        return self.course(failure)

    async def healthy(self, deadline_s: float) -> None:
        """Until all brokers are ready, and everybody is at home."""

        def holds() -> bool:
            ready = all(row.health == "ready" for row in self.brokers.values())
            return ready and not self.ledger.away and not self.ledger.abroad

        await self.until(holds, "brokers are ready, everybody is at home", deadline_s)

    async def at_home(self, deadline_s: float) -> None:
        """Until everybody is connected to the broker that is its home, however that is otherwise."""
        await self.until(
            lambda: not self.ledger.away and not self.ledger.abroad, "everybody is at home", deadline_s
        )

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self) -> None:
        """Let nothing more happen, and have everything that did executed. Then nothing more is committed."""
        await self._crowd.rest()
        self.publisher.rest()
        if self._playing is not None:
            await asyncio.wait((self._playing,))
            self.check()
        await self.backend.executed(self.publisher.published, EXECUTE_S)

    async def account(self, settle_s: float = SETTLE_S) -> Account:
        """Hold what was committed against what was received, once all has arrived, or ``settle_s`` are over.

        Call it behind ``finish``.
        """
        committed = await self.backend.committed()
        until_s = time.monotonic() + settle_s
        while self._account(committed).lost and time.monotonic() < until_s:
            self.check()
            await asyncio.sleep(SETTLE_LOOK_S)
        await asyncio.sleep(LATE_S)
        return self._account(committed)

    def _account(self, committed: Mapping[str, Sequence[Result]]) -> Account:
        got = {name: self.ledger.results(number) for number, name in enumerate(self.names)}
        return account(committed, got, repeats=sum(self.ledger.repeats.values()))


def _offset_s() -> float:
    """From the machine's monotonic clock to that of the day, by which logs say when something was."""
    return time.time() - time.monotonic()


@asynccontextmanager
async def scene(
    script: Script,
    tell: Callable[[str], None] = lambda words: None,
    *,
    settings: Settings | None = None,
) -> AsyncIterator[Scene]:
    """A scene that is ready to begin, while the context lasts; it leaves nothing behind, however the context ends.

    ``tell`` is told what is being done. ``settings``: of the network, instead of ``script.settings()``. Raises
    ``OperatorError`` without the extra ``tocsin[spark]``.
    """
    extra.check_installed()
    script.check()
    down = Down()
    async with AsyncExitStack() as stack:
        tell("the network starts: store, coordinator, brokers, Spark")
        network = await stack.enter_async_context(
            running(settings or script.settings(), on_change=down.watch)
        )
        stack.callback(down.release)
        tell("brokers are ready; Spark starts")
        found = await stack.enter_async_context(backend(network))
        played = Scene(script, network, found, down)
        await played.enter(stack, tell)
        yield played
