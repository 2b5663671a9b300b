"""Table 4: so many brokers are killed at once (SIGKILL) and stay away; when is who served again?

Four clusters of four brokers and two standbys, each broker with subscribers that have sessions. Those of a broker that
is to fail have a message published every 100 ms, at QoS 1, at a broker that never fails. From the kill on, of each
broker:

- *detected*: the coordinators' log says that it is lost;
- *taken over*: its backup stands in for it, by the backup's own log;
- *back*: the last of its subscribers is connected elsewhere;
- *first*, *served*: the first, and the last, of its subscribers has a message that was sent after the kill;
- *replaced*: a standby has joined under its name.

The paper calls a broker recovered when another one is in its place, with its queues and routes: that is *replaced*.
Here no client waits for that, so **recovered** is when a broker is both taken over and served; if its two backups
failed with it, when it is served. Standbys are promoted at once, as by default. Afterwards the brokers are started
again, and when all subscribers are at home the next run begins.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final

import msgspec

from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.config import Broker, Log, Membership, Recovery, Settings
from tocsin.errors import OperatorError
from tocsin_demo.network import network_of
from tocsin_labs.fleet import Fleet, fleet
from tocsin_labs.landmark.crowd import Account, Publisher, Subscriber, account, crowd, total
from tocsin_labs.landmark.plan import Detect, Latency
from tocsin_labs.stage import Stage

STANDS_IN: Final = "stands in for a broker that is gone"  # as a broker logs it
LEAD_S: Final = 0.5  # of messages before the kill
ARRIVE_S: Final = 15.0  # after the last message
CALM_S: Final = 60.0
WARM_S: Final = 3.0  # for backups to be planned, and told of everything, before the first run


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one killed broker: seconds from the kill, None if that was not seen in time."""

    broker: str
    detected_s: float | None
    taken_over_s: float | None
    by: str | None  # the stand-in
    back_s: float | None
    first_s: float | None
    served_s: float | None
    replaced_s: float | None
    bereft: bool = False  # both of its backups failed with it: nobody could stand in, and the store has to do
    at_backup: int  # subscribers that went straight to the stand-in
    subscribers: int

    @property
    def recovered_s(self) -> float | None:
        return self.served_s if self.bereft else _last((self.taken_over_s, self.served_s))


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    detect: Detect
    failures: int
    run: int
    outcomes: tuple[Outcome, ...]
    account: Account
    wrongly: int  # brokers that were wrongly taken for lost during the run
    # When all brokers were back: subscribers that were not at home again in time, as text …
    strays: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()  # … and those that a message which was published then did not reach

    def last(self, name: str) -> float | None:
        """When it is so of all brokers that failed; None if it is not of one."""
        return _last(getattr(outcome, name) for outcome in self.outcomes)


def _last(times: Iterable[float | None]) -> float | None:
    found = list(times)
    known = [each for each in found if each is not None]
    return max(known) if known and len(known) == len(found) else None


def network_settings(
    brokers: Sequence[Broker], detect: Detect = "default", promote_after_ms: int = 0
) -> Settings:
    """The settings of a network whose brokers are killed: they log what happens to them."""
    return msgspec.structs.replace(
        network_of(brokers=tuple(brokers)),
        membership=Membership(detect=detect),
        recovery=Recovery(promote_after_ms=promote_after_ms),
        log=Log(level="warning"),
    )


def stood_in(lines: Iterable[bytes], broker: str, since: float) -> float | None:
    """When (POSIX time) a broker's log says first that it stands in for another, since then."""
    for line in lines:
        if STANDS_IN.encode() not in line:
            continue
        try:
            found: dict[str, Any] = msgspec.json.decode(line)
            at = datetime.fromisoformat(str(found["timestamp"])).timestamp()
        except (msgspec.DecodeError, KeyError, ValueError):
            continue
        if found.get("event") == STANDS_IN and found.get("broker") == broker and at >= since:
            return at
    return None


class Experiment:
    """One network with its clients, while it runs."""

    def __init__(self, plan: Latency, detect: Detect, network: Fleet, publisher: AsyncClient) -> None:
        self._plan = plan
        self._detect = detect
        self._network = network
        self.serving = [name for name, each in network.brokers.items() if each.role != "standby"]
        self.standbys = [name for name, each in network.brokers.items() if each.role == "standby"]
        self.subscribers = {
            name: [
                Subscriber(f"{name}-{number}", network.address(name), [f"alarms/{name}"])
                for number in range(plan.subscribers_each)
            ]
            for name in self.serving[1:]
        }
        self._publishers = {
            name: Publisher(publisher, f"alarms/{name}", plan.period_s) for name in self.subscribers
        }

    def everybody(self) -> list[Subscriber]:
        return [each for some in self.subscribers.values() for each in some]

    async def run(self, failures: int, run: int, chance: random.Random) -> Trial:
        plan, network = self._plan, self._network
        at_home = [name for name, some in self.subscribers.items() if all(each.is_home for each in some)]
        victims = chance.sample(at_home, failures)
        publishers = [self._publishers[name] for name in victims]
        since = {name: self._publishers[name].next for name in victims}
        for each in publishers:
            each.start()
        await asyncio.sleep(LEAD_S + chance.uniform(0.0, 0.5))
        first = {name: self._publishers[name].next for name in victims}
        backups = {name: network.chronicle.backups.get(name, (None, None)) for name in victims}
        bereft = {name for name in victims if {*backups[name]} <= {*victims, None}}
        wall_s, killed_s = time.time(), network.kill(victims)

        def settled() -> bool:
            return self._recovered(victims, first, killed_s) and self._replaced(victims, killed_s)

        await network.chronicle.until(settled, plan.deadline_s)
        backed = [name for name in victims if name not in bereft]
        await network.chronicle.until(lambda: all(self._taken(name, wall_s) for name in backed), ARRIVE_S)
        await asyncio.gather(*(each.stop() for each in publishers))
        await network.chronicle.until(lambda: not self._account(victims, since).lost, ARRIVE_S)
        outcomes = tuple(
            self._outcome(name, first[name], killed_s, wall_s, bereft=name in bereft) for name in victims
        )
        wrongly = {
            entry.broker
            for entry in network.chronicle.entries
            if entry.kind == "lost" and entry.at_s >= killed_s and entry.broker not in victims
        } - {*self.standbys}
        return Trial(
            detect=self._detect,
            failures=failures,
            run=run,
            outcomes=outcomes,
            account=self._account(victims, since),
            wrongly=len(wrongly),
        )

    async def restore(self, victims: Sequence[str]) -> tuple[list[str], list[str]]:
        """Start the brokers that failed, and wait until everything is as it was; returns the subscribers that are not
        at home by then, and those that are not served, as text.
        """
        await self._network.start(victims)

        def as_before() -> bool:
            return self._are_members() and all(each.is_home for each in self.everybody())

        await self._network.chronicle.until(as_before, self._plan.deadline_s)
        if not self._are_members():
            problem = "brokers that were started again have not joined"
            raise OperatorError(problem, "Try again on a machine that has less to do")
        await self._network.calm(CALM_S)
        await asyncio.sleep(self._plan.settle_s)
        names = {"{}:{}".format(*self._network.address(name)): name for name in self._network.brokers}
        strays = [each.whereabouts(names) for each in self.everybody() if not each.is_home]
        return strays, [each.whereabouts(names) for each in await self._unserved()]

    async def _unserved(self) -> list[Subscriber]:
        """The subscribers that a message to everybody does not reach."""
        first = {name: each.next for name, each in self._publishers.items()}
        await asyncio.gather(*(each.once() for each in self._publishers.values()))

        def lacking() -> list[Subscriber]:
            return [
                each
                for name, some in self.subscribers.items()
                for each in some
                if first[name] in self._publishers[name].acknowledged and each.served(first[name]) is None
            ]

        await self._network.chronicle.until(lambda: not lacking(), ARRIVE_S)
        return lacking()

    def _are_members(self) -> bool:
        chronicle = self._network.chronicle
        for name in self.serving:
            joined, lost = chronicle.last("joined", name), chronicle.last("lost", name)
            own = joined is not None and joined.port == self._network.link_port(name)
            if not own or (lost is not None and joined is not None and lost.at_s > joined.at_s):
                return False
        return True

    def _recovered(self, victims: Sequence[str], first: dict[str, int], killed_s: float) -> bool:
        chronicle = self._network.chronicle
        return all(chronicle.first("lost", name, killed_s) is not None for name in victims) and all(
            each.served(first[name]) is not None for name in victims for each in self.subscribers[name]
        )

    def _replaced(self, victims: Sequence[str], killed_s: float) -> bool:
        if not self._plan.await_standbys:
            return True
        came = sum(self._replaced_s(name, killed_s) is not None for name in victims)
        return came >= min(len(victims), len(self.standbys))

    def _replaced_s(self, name: str, killed_s: float) -> float | None:
        joined = self._network.chronicle.first("joined", name, killed_s)
        return None if joined is None else joined - killed_s

    def _account(self, victims: Sequence[str], since: dict[str, int]) -> Account:
        return total(
            account(self.subscribers[name], self._publishers[name].acknowledged, since[name])
            for name in victims
        )

    def _taken(self, name: str, wall_s: float) -> dict[str, float]:
        """The stand-in for a broker since then, and when it began (POSIX time)."""
        return {
            by: at
            for by in self.serving
            if by != name and (at := stood_in(self._network.words(by), name, wall_s)) is not None
        }

    def _outcome(self, name: str, first: int, killed_s: float, wall_s: float, *, bereft: bool) -> Outcome:
        network, subscribers = self._network, self.subscribers[name]
        taken = self._taken(name, wall_s)
        by = min(taken, key=lambda each: taken[each]) if taken else None
        backup = "" if by is None else "{}:{}".format(*network.address(by))
        detected = network.chronicle.first("lost", name, killed_s)
        came = [each.came_back(killed_s) for each in subscribers]
        served = [each.served(first) for each in subscribers]
        places = [next((s.server for s in each.stays if s.at_s >= killed_s), "") for each in subscribers]

        def since(moment: float | None) -> float | None:
            return None if moment is None else moment - killed_s

        return Outcome(
            broker=name,
            detected_s=since(detected),
            taken_over_s=None if by is None else taken[by] - wall_s,
            by=by,
            back_s=since(_last(came)),
            first_s=since(min((each for each in served if each is not None), default=None)),
            served_s=since(_last(served)),
            replaced_s=self._replaced_s(name, killed_s),
            bereft=bereft,
            at_backup=sum(place == backup for place in places),
            subscribers=len(subscribers),
        )


def brokers_of(plan: Latency) -> list[Broker]:
    found = []
    for cluster in range(1, plan.clusters + 1):
        for number in range(1, plan.brokers_each + 1):
            found.append(Broker(id=f"c{cluster}-b{number}", cluster=f"c{cluster}"))
        for number in range(1, plan.standbys_each + 1):
            found.append(Broker(id=f"c{cluster}-s{number}", cluster=f"c{cluster}", role="standby"))
    return found


async def run(
    plan: Latency,
    seed: int,
    stage: Stage,
    trials: list[Trial],
    resting: dict[str, float],
    title: str = "Table 4",
) -> None:
    """Add all runs, each as it ends, and how busy each network was at rest (a share of one processor)."""
    for detect in plan.detects:
        if not stage.is_cut:
            await _run(plan, detect, seed, stage, trials, resting, title)


async def _run(
    plan: Latency,
    detect: Detect,
    seed: int,
    stage: Stage,
    trials: list[Trial],
    resting: dict[str, float],
    title: str,
) -> None:
    chance = random.Random(f"{seed} {detect}")
    brokers = brokers_of(plan)
    words = f"{title}, {detect} detection"
    stage.tell(f"{words}: {len(brokers)} brokers start", 0.0)
    async with fleet(network_settings(brokers, detect, plan.promote_after_ms)) as network:
        await network.start(network.brokers)
        async with AsyncExitStack() as stack:
            home = Server(*network.address(brokers[0].id))
            publisher = await stack.enter_async_context(AsyncClient([home], client_id="publisher"))
            experiment = Experiment(plan, detect, network, publisher)
            everybody = experiment.everybody()
            await stack.enter_async_context(crowd(everybody))
            await network.chronicle.until(lambda: all(each.has_others for each in everybody), CALM_S)
            await network.calm(CALM_S)
            resting[detect] = await network.busy(WARM_S)
            order = [(failures, run) for run in range(1, plan.runs + 1) for failures in plan.failures]
            for done, (failures, run) in enumerate(order):
                if stage.is_cut:
                    return
                stage.tell(f"{words}: {failures} of {len(brokers)} brokers fail", done / len(order))
                trial = await experiment.run(failures, run, chance)
                trials.append(trial)
                if done + 1 < len(order) and not stage.is_cut:
                    strays, unserved = await experiment.restore([each.broker for each in trial.outcomes])
                    trials[-1] = msgspec.structs.replace(
                        trial, strays=tuple(strays), unserved=tuple(unserved)
                    )
