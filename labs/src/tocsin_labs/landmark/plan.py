"""The parameters of the experiments: the paper's as far as it says them, and those of a quick form.

It does not say how often the publisher of Figure 8 sends, how many runs a mean is of, or how 24 brokers are grouped.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Detect = Literal["default", "aggressive"]
Way = Literal["backup", "standby", "frozen", "expiry"]


class Control(msgspec.Struct, frozen=True):
    """Table 1: nobody but brokers, and nothing happens."""

    brokers: tuple[int, ...] = (10, 20, 30, 40)
    clusters: int = 4
    settle_s: float = (
        70.0  # from the last broker's coming: it says for a minute that it began, more and more seldom
    )
    looks: int = 12  # of which the deviation is
    look_s: float = 5.0
    trace_s: float = 30.0  # in which the store's server says what messages are about


class Objects(msgspec.Struct, frozen=True):
    """Tables 2 and 3: one broker fails, with more and more that has to be taken over."""

    queues: tuple[int, ...] = (0, 10, 20, 30, 40)  # sessions with one durable subscription, all the same
    routes: tuple[int, ...] = (5, 10, 15, 20)  # durable subscriptions, all different, of one session
    runs: int = 3
    idle_s: float = 6.0  # over which what flows anyway is measured, before each run
    settle_s: float = 3.0  # for backups to be planned, and to have everything
    window_s: float = 14.0  # from the kill: long enough for all to be at home again
    promote_after_ms: int = 0


class Latency(msgspec.Struct, frozen=True):
    """Table 4: so many brokers fail at once."""

    failures: tuple[int, ...] = (1, 2, 3, 4, 5)
    detects: tuple[Detect, ...] = ("default", "aggressive")
    runs: int = 4
    clusters: int = 4
    brokers_each: int = 4  # a cluster, beside its standbys: 24 processes
    standbys_each: int = 2  # so that as many as fail can be replaced
    subscribers_each: int = 10  # a broker
    period_s: float = 0.1  # between two messages to the subscribers of a broker that fails
    await_standbys: bool = True  # until these have the places of those that failed
    promote_after_ms: int = 0
    deadline_s: float = 40.0
    settle_s: float = 4.0


class Condition(msgspec.Struct, frozen=True):
    """What the network can carry, and what it carries besides."""

    mbit: float | None = None  # a second; None: as much as the machine can
    background: float = 0.0  # share of it that is taken by traffic of others

    @property
    def words(self) -> str:
        if self.mbit is None:
            return "no limit"
        taken = f", {self.background:.0%} of it taken" if self.background else ""
        return f"{self.mbit:g} Mbit/s{taken}"


class Bandwidth(msgspec.Struct, frozen=True):
    """Table 4 with fewer brokers, over a loopback interface that carries less, and something else."""

    conditions: tuple[Condition, ...] = (
        Condition(),
        Condition(100.0),
        Condition(10.0),  # as each of the paper's links
        Condition(10.0, 0.5),
        Condition(10.0, 0.9),
        Condition(2.0),
    )
    latency: Latency = Latency(
        failures=(1, 3), detects=("default",), runs=3, clusters=3, brokers_each=3, standbys_each=1
    )


class Sequence(msgspec.Struct, frozen=True):
    """Figure 8: one publisher and one subscriber."""

    ways: tuple[Way, ...] = ("backup", "standby", "frozen", "expiry")
    period_s: float = 0.25
    fails_s: float = 5.0  # from the first message to the kill
    down_s: float = 20.0  # until the broker is started again
    after_s: float = 10.0  # from then to the last message
    detect: Detect = "default"
    promote_after_ms: int = 0
    keep_alive_s: int = 2  # of the subscriber
    expiry_s: int = 1  # of every second message, where messages expire …
    silent_s: int = (
        6  # … and the keep-alive there, by which alone the subscriber notices that its broker is frozen
    )
    settle_s: float = 3.0


class Size(msgspec.Struct, frozen=True):
    """A network of the simulator."""

    brokers: int
    runs: int  # of each kind of failure
    interests: bool = True  # every broker has subscribers of its own, to which all others have a route


class Scale(msgspec.Struct, frozen=True):
    """Tables 1 and 4 in virtual time, with as many brokers as there is time for."""

    sizes: tuple[Size, ...] = (Size(24, 5), Size(100, 3), Size(300, 2), Size(1_000, 1))
    at_rest: tuple[int, ...] = (10, 20, 30, 40)  # sizes of which only that is asked
    detects: tuple[Detect, ...] = ("default", "aggressive")
    failures: tuple[int, ...] = (1, 2, 3, 4, 5)  # then a cluster, and a tenth of all
    brokers_each: int = 5  # a cluster, beside its standby
    standbys_each: int = 1
    promote_after_ms: int = 0
    rest_s: float = 10.0
    settle_s: float = 3.0
    deadline_s: float = 90.0


class Plan(msgspec.Struct, frozen=True):
    """All of them."""

    words: str = "the paper's parameters"
    seed: int = 1
    control: Control = Control()
    objects: Objects = Objects()
    latency: Latency = Latency()
    bandwidth: Bandwidth = Bandwidth()
    sequence: Sequence = Sequence()
    scale: Scale = Scale()


QUICK = Plan(
    words="a quick form with few brokers, for less time: its figures are not to be compared with the paper's",
    control=Control(brokers=(2, 3), clusters=2, settle_s=0.5, looks=2, look_s=0.5, trace_s=1.0),
    objects=Objects(
        queues=(2,), routes=(2,), runs=1, idle_s=0.5, settle_s=1.0, window_s=4.0, promote_after_ms=200
    ),
    latency=Latency(
        failures=(1, 2),
        detects=("aggressive",),
        runs=1,
        clusters=2,
        brokers_each=2,
        standbys_each=1,
        subscribers_each=2,
        settle_s=0.5,
    ),
    bandwidth=Bandwidth(
        conditions=(Condition(), Condition(10.0, 0.5)),
        latency=Latency(
            failures=(1,),
            detects=("aggressive",),
            runs=1,
            clusters=2,
            brokers_each=2,
            standbys_each=0,
            subscribers_each=2,
            await_standbys=False,
            settle_s=0.5,
        ),
    ),
    sequence=Sequence(
        ways=("standby", "expiry"),
        period_s=0.1,
        fails_s=1.0,
        down_s=3.0,
        after_s=0.5,
        detect="aggressive",
        promote_after_ms=200,
        settle_s=1.0,
    ),
    scale=Scale(sizes=(Size(6, 1), Size(12, 1)), at_rest=(10,), failures=(1, 2), rest_s=5.0, settle_s=1.0),
)


def plan(*, quick: bool, seed: int, runs: int | None = None) -> Plan:
    """The plan that the command line asks for. ``runs``: so many of each number of failures in Table 4."""
    found = msgspec.structs.replace(QUICK if quick else Plan(), seed=seed)
    if runs is None:
        return found
    return msgspec.structs.replace(found, latency=msgspec.structs.replace(found.latency, runs=runs))
