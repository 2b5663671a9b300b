"""Fig 4d: how often positions are sent to the backups, against what would be said twice after a failure.

One broker with its share of the subscribers, and the machines of ``core.replication`` in their modes: *periodic*; and
by threshold, when so many *clients*' positions differ (``replication.threshold``), or when clients were sent so many
bytes that the backups do not know of (*volume*, ``replication.threshold_bytes``). The paper's threshold is of the
volume that was fetched, not of what was delivered, and nothing in it takes time: a model has that (``Ledger``,
*ideal*), which also knows the periodic mode, for tests to hold it against the machines.

A duplicate is what was delivered in (eta, t]: *retrieved* counts a result once for each subscription that the
backup fetches, *delivered* once for each subscriber. Means over moments at which the broker might fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec

from tocsin.core.coordination.state.backups import Backups
from tocsin.core.replication.signals import Policy
from tocsin.sim.chance import Chance
from tocsin.sim.schedule import Schedule
from tocsin_labs.reaps.backend import Backend
from tocsin_labs.reaps.parameters import Parameters
from tocsin_labs.reaps.replicas import Home, Replicas, homes_of
from tocsin_labs.reaps.retrieval import MB
from tocsin_labs.reaps.workload import SECOND_US, Workload

Mode = Literal["periodic", "clients", "volume", "ideal"]
SETTLED_S: Final = 10  # by then the backups have everything once
BACKUPS: Final = 2
NEAR, FAR = "near", "far"  # the broker's two backups


class Replicated(msgspec.Struct, frozen=True):
    """One way to send positions: what it costs, and what it saves."""

    mode: Mode
    setting: float  # seconds, clients or MB
    messages_min: float  # updates a minute, to both backups
    bytes_s: float | None  # None: the model does not know
    retrieved_mb: float
    delivered_mb: float


class Volumes:
    """The repeats that a failure would cause, summed over moments."""

    def __init__(self, workload: Workload) -> None:
        self._sizes = workload.sizes
        self.moments = self.retrieved = self.delivered = 0

    def add(self, repeated: Iterable[tuple[int, list[int]]]) -> None:
        """By k, how many results each client would get twice."""
        self.moments += 1
        for k, counts in repeated:
            self.retrieved += self._sizes[k] * max(counts)
            self.delivered += self._sizes[k] * sum(counts)

    def means_mb(self) -> tuple[float, float]:
        return self.retrieved / self.moments / MB, self.delivered / self.moments / MB


class Ledger:
    """The model: all positions are sent at once, to both backups, and are there at once."""

    def __init__(self, home: Home, workload: Workload, mode: Mode, setting: float) -> None:
        self._home = home
        self._workload = workload
        self._volume_max = setting * MB if mode == "ideal" else None
        self.unsynced: dict[int, int] = {}  # k → results since the last time
        self.volume = 0
        self.messages = 0

    def hear(self, channel: int, notice: int) -> None:
        for k in self._workload.of_channel(channel):
            if k in self._home.by_k:
                self.unsynced[k] = self.unsynced.get(k, 0) + 1
                self.volume += self._workload.sizes[k]
        if self._volume_max is not None and self.volume > self._volume_max:
            self.sync()

    def sync(self) -> None:
        if self.unsynced:
            self.messages += BACKUPS
            self.unsynced, self.volume = {}, 0

    def repeated(self) -> Iterable[tuple[int, list[int]]]:
        for k, count in self.unsynced.items():
            yield k, [count] * len(self._home.by_k[k])


def run(workload: Workload, given: Parameters, tell: Callable[[float], None]) -> list[Replicated]:
    """Every mode with every setting."""
    ways: list[tuple[Mode, float]] = [
        *(("periodic", period) for period in given.replicating.periods_s),
        *(("clients", clients) for clients in given.replicating.clients),
        *(("volume", volume) for volume in given.replicating.volumes_mb),
        *(("ideal", volume) for volume in given.replicating.volumes_mb),
    ]
    found = []
    for number, (mode, setting) in enumerate(ways):
        tell(number / len(ways))
        found.append((_by_model if mode == "ideal" else _by_machines)(workload, given, mode, setting))
    return found


def moments_us(given: Parameters) -> list[int]:
    """When the broker might fail."""
    chance = Chance(given.seed, "failures")
    first, last = SETTLED_S * SECOND_US, given.replicating.seconds * SECOND_US
    return sorted(chance.between(first, last) for _ in range(given.replicating.failures))


def _by_machines(workload: Workload, given: Parameters, mode: Mode, setting: float) -> Replicated:
    schedule = Schedule()
    backend = Backend(workload, schedule)
    replicas = replicas_of_one(workload, backend, schedule, mode, setting)
    broker = next(iter(replicas.homes))
    schedule.run_until(SETTLED_S * SECOND_US)
    said, sent = replicas.messages, replicas.bytes
    volumes = Volumes(workload)
    for moment_us in moments_us(given):
        schedule.run_until(moment_us)
        volumes.add(replicas.repeated(broker).items())
    schedule.run_until(given.replicating.seconds * SECOND_US)
    assert not replicas.troubles(), "nothing is lost in this network"
    seconds = given.replicating.seconds - SETTLED_S
    return Replicated(
        mode,
        setting,
        (replicas.messages - said) * 60 / seconds,
        (replicas.bytes - sent) / seconds,
        *volumes.means_mb(),
    )


def replicas_of_one(
    workload: Workload, backend: Backend, schedule: Schedule, mode: Mode, setting: float
) -> Replicas:
    """The first broker, with two backups that are nothing else."""
    match mode:
        case "periodic":
            policy = Policy(mode="periodic", period_us=round(setting * SECOND_US))
        case "clients":
            policy = Policy(mode="threshold", threshold=round(setting))
        case _:
            policy = Policy(mode="threshold", threshold_bytes=round(setting * MB))
    homes = homes_of(workload, (0,))
    plan = {broker: Backups(NEAR, FAR) for broker in homes}
    return Replicas(homes, plan, policy, backend, schedule, workload, dict.fromkeys(homes, 0))


def _by_model(workload: Workload, given: Parameters, mode: Mode, setting: float) -> Replicated:
    schedule = Schedule()
    backend = Backend(workload, schedule)
    ledger = Ledger(next(iter(homes_of(workload, (0,)).values())), workload, mode, setting)
    backend.listeners.append(ledger.hear)
    schedule.run_until(SETTLED_S * SECOND_US)
    said = ledger.messages
    volumes = Volumes(workload)
    for moment_us in moments_us(given):
        schedule.run_until(moment_us)
        volumes.add(ledger.repeated())
    schedule.run_until(given.replicating.seconds * SECOND_US)
    seconds = given.replicating.seconds - SETTLED_S
    return Replicated(mode, setting, (ledger.messages - said) * 60 / seconds, None, *volumes.means_mb())
