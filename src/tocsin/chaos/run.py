"""One run: the load, the faults at their times, time to recover and to settle, and the account.

``stop`` ends the faults early: everything is healed, and the account is given all the same. ``hurry`` ends the waiting
for what is still outstanding as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tocsin.chaos import workload
from tocsin.chaos.account import Account, Totals
from tocsin.chaos.breaking import Breaker
from tocsin.chaos.load import Access, Load
from tocsin.chaos.parts import Running
from tocsin.chaos.plan import ON_LINKS, OWN, WEATHER, Fault, Kind
from tocsin.chaos.targets import Part

LOOK_S: Final = 0.1  # between two looks at what has recovered or settled
BEGIN_S: Final = 30.0  # for everybody to hear something before the first fault


class Choices(msgspec.Struct, frozen=True):
    """The operator's options of a run, beside the faults."""

    subscribers: int
    publishers: int
    rate: float  # messages a second of each publisher
    seconds: float  # how long there are faults
    settle_s: float  # how long recovery, and then the last deliveries, are waited for
    access: Access = Access()


class Suffered(msgspec.Struct, frozen=True):
    """A fault that was carried out, or missed because the target had no process just then."""

    kind: Kind
    target: str
    at_s: float
    seconds: float
    pids: dict[str, int]  # the processes that it met; of a fault of one's own, the program's
    clients: int  # of the load that were connected to them
    recovery_s: float | None  # None: missed, or never
    others: str = ""
    amount: float = 0.0  # of weather

    @property
    def missed(self) -> bool:
        return not self.pids


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a run."""

    run: str
    seconds: float
    totals: Totals
    faults: tuple[Suffered, ...]
    dropped_repeats: int  # came to a client of the load again, and not to its program
    skipped: int  # turns that publishers let pass, because too much was under way
    ended: dict[str, str]  # clients that the network threw out for good
    cut_short: bool
    network_ended: bool
    # Messages that came to clients that had unsubscribed before the first was published, by client.
    unasked: dict[str, int] = {}

    @property
    def kept(self) -> bool:
        """Whether every promise was."""
        return self.totals.kept and not (self.unasked or self.ended or self.network_ended)


class Run:
    """Runs one load with its faults and gives the account. ``tell`` gets a line whenever something happens."""

    def __init__(
        self, network: Running, breaker: Breaker, choices: Choices, tell: Callable[[str], None]
    ) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self._network = network
        self._breaker = breaker
        self._choices = choices
        self._tell = tell
        self._account = Account()
        self._began_s = 0.0
        self._suffered: list[tuple[int | None, Suffered]] = []  # with the fault's number in the account
        self._told: set[int] = set()  # faults whose recovery was told
        self._network_ended = False

    async def perform(self, faults: Sequence[Fault]) -> Outcome:
        choices, name = self._choices, secrets.token_hex(4)
        plan = workload.make(name, publishers=choices.publishers, subscribers=choices.subscribers)
        homes = serving(self._network.parts)
        load = Load(plan, homes, self._account, rate=choices.rate, access=choices.access)
        try:
            await load.start()
            self._tell(
                f"load {name}: {choices.publishers} publishers at {choices.rate:g} messages a second each, "
                f"{choices.subscribers} subscribers, at {len(homes)} brokers"
            )
            try:
                await self._break(faults, load)
            finally:
                await self._breaker.heal()
                for problem in self._breaker.problems:
                    self._say(problem)
            await self._until(lambda: self._account.recovered, "recovery")
            self._tell_recoveries()
            await load.stop_publishing()
            await self._until(lambda: self._account.settled, "the last deliveries")
            return self._outcome(name, load)
        finally:
            await load.close()

    async def _break(self, faults: Sequence[Fault], load: Load) -> None:
        await self._until(lambda: self._account.begun, "everybody's first message", BEGIN_S)
        self._began_s = time.monotonic()
        for fault in faults:
            assert fault.at_s is not None
            await self._pause_until(fault.at_s)
            if self.stop.is_set() or self._network_ended:
                return
            await self._suffer(fault, load)
        await self._pause_until(self._choices.seconds)

    async def _suffer(self, fault: Fault, load: Load) -> None:
        names = () if fault.kind == OWN else await self._breaker.met(fault.target)
        brokers = [part for part in self._network.parts if part.kind == "broker" and part.name in names]
        clients = sum(map(load.at, brokers))
        at_s = time.monotonic()
        done = await self._breaker.carry_out(fault, names)
        number = self._account.broken(at_s) if done.pids else None
        suffered = Suffered(
            fault.kind,
            fault.target,
            at_s - self._began_s,
            fault.seconds,
            done.pids,
            clients,
            None,
            fault.others,
            fault.amount,
        )
        self._suffered.append((number, suffered))
        met = ", ".join(f"{name} {pid}" for name, pid in done.pids.items())
        met = met or f"{done.problem or 'nobody was there'}: missed"
        there = f"; {clients} clients there" if clients else ""
        how = "with it" if fault.kind in WEATHER else "cut"
        cut = f"; {done.connections} connections {how}" if fault.kind in ON_LINKS and done.pids else ""
        self._say(f"{fault} ({met}{there}{cut})")

    async def _pause_until(self, at_s: float) -> None:
        """Until that time of the run, or until it is to stop."""
        while (left_s := self._began_s + at_s - time.monotonic()) > 0:
            self._tell_recoveries()
            if self.stop.is_set() or not self._check_network():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_S)):
                    await self.stop.wait()

    async def _until(self, holds: Callable[[], bool], what: str, deadline_s: float | None = None) -> None:
        """Wait for something, as long as the choices allow."""
        waits_s = self._choices.settle_s if deadline_s is None else deadline_s
        end_s = time.monotonic() + waits_s
        while not holds() and not self.hurry.is_set():
            self._tell_recoveries()
            if time.monotonic() > end_s:
                self._tell(f"{what}: not within {waits_s:g} s")
                return
            if not self._check_network():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self.hurry.wait()

    def _check_network(self) -> bool:
        if not self._network_ended and not self._network.alive:
            self._network_ended = True
            self._say("the network has ended")
        return not self._network_ended

    def _tell_recoveries(self) -> None:
        for number, suffered in self._suffered:
            if number is None or number in self._told:
                continue
            recovery_s = self._account.recovery_s(number)
            if recovery_s is not None:
                self._told.add(number)
                self._say(f"{suffered.kind} {suffered.target}: all hear again after {recovery_s:.2f} s")

    def _say(self, words: str) -> None:
        self._tell(f"{time.monotonic() - self._began_s:6.1f} s  {words}")

    def _outcome(self, name: str, load: Load) -> Outcome:
        faults = tuple(
            each
            if number is None
            else msgspec.structs.replace(each, recovery_s=self._account.recovery_s(number))
            for number, each in self._suffered
        )
        for number, each in self._suffered:
            if number is not None and (waiting := self._account.waiting(number)):
                who = ", ".join(f"{receiver} ({stream})" for receiver, stream in waiting[:3])
                self._tell(f"{each.kind} {each.target}: never heard again: {len(waiting)}, such as {who}")
        return Outcome(
            run=name,
            seconds=time.monotonic() - self._began_s,
            totals=self._account.totals(),
            faults=faults,
            dropped_repeats=load.dropped_repeats,
            skipped=load.skipped,
            ended=dict(load.ended),
            cut_short=self.stop.is_set(),
            network_ended=self._network_ended,
            unasked=load.unasked,
        )


def serving(parts: Sequence[Part]) -> list[Part]:
    """The brokers that the load's clients are at home at: edge ones, or any that is not a standby."""
    brokers = [part for part in parts if part.kind == "broker" and part.role != "standby"]
    return [part for part in brokers if part.role == "edge"] or brokers
