"""The script of a scene: its brokers, the users' homes and movements, and the emergencies.

People are the subscribers, by number. A city of ours (``city``) says where they go and what happens, or files
in the format of the ONE simulator do (``traces``); then the movement's file has as many people as there are
subscribers, or more, who are taken in the order in which they first appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

import msgspec

from tocsin.config import Broker, Feeds, Log, Membership, Nats, Pipeline, Settings, Spark
from tocsin.config.membership import Detect
from tocsin.errors import OperatorError
from tocsin.sim.chance import Chance
from tocsin_demo.city import City, disasters, movements
from tocsin_demo.traces import Emergency, Sample, Trace, emergencies

SUBSCRIBERS_MAX: Final = 10_000
PLACES_MAX: Final = 1_000_000  # of all people; each is some 30 bytes of a worker's job
EMERGENCIES_MAX: Final = 100_000
WORKERS_MAX: Final = 8
PERIOD_MAX_S: Final = 3_600


class Home(msgspec.Struct, frozen=True):
    """A broker, and how many subscribers are at home there."""

    broker: str
    cluster: str
    subscribers: int


def homes(
    subscribers: int,
    *,
    clusters: Mapping[str, int] | None = None,
    exactly: Mapping[str, int] | None = None,
    seed: int = 1,
) -> tuple[Home, ...]:
    """Brokers ``CLUSTER-1``, ``CLUSTER-2`` … (two clusters of two, unless told), with subscribers assigned by chance.

    ``exactly`` says how many some brokers have; the others share the rest. Raises ``OperatorError`` if that cannot be.
    """
    sizes = {"north": 2, "south": 2} if clusters is None else clusters
    names = [(f"{cluster}-{n}", cluster) for cluster, size in sizes.items() for n in range(1, size + 1)]
    fixed = dict(exactly or {})
    if unknown := fixed.keys() - {name for name, _ in names}:
        known = ", ".join(name for name, _ in names)
        raise OperatorError(f"there is no broker {min(unknown)}", f"Name one of {known}")
    others = [name for name, _ in names if name not in fixed]
    rest = subscribers - sum(fixed.values())
    if rest < 0 or (rest and not others) or min(fixed.values(), default=0) < 0:
        raise OperatorError(
            f"{subscribers} subscribers cannot be assigned so that {fixed} is true",
            "Give counts that fit together",
        )
    chance, counts = Chance(seed, "homes"), dict.fromkeys(others, 0) | fixed
    for _ in range(rest):
        counts[chance.one_of(others)] += 1
    return tuple(Home(name, cluster, counts[name]) for name, cluster in names)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """The brokers, users, movements and emergencies of a scene."""

    homes: tuple[Home, ...] = msgspec.field(default_factory=lambda: homes(400))
    city: City = City()  # its ``people`` are not looked at: there is one for each subscriber
    movements: Path | None = None  # a trace; None: those of the city
    emergencies: Path | None = None  # a trace; None: those of the city
    period_s: int = 10  # of the channel
    coordinators: Literal[1, 3, 5] = 1
    servers: Literal[1, 3] = 1  # of the store
    detect: Detect = "default"
    workers: int = 2  # processes that the subscribers are divided among
    keep_alive_s: int | None = 4  # of the subscribers; None: the default of the client
    later: tuple[int, ...] = ()  # subscribers, by number, who come when they are asked to

    @property
    def subscribers(self) -> int:
        return sum(home.subscribers for home in self.homes)

    def check(self) -> None:
        """Raise ``OperatorError`` for what cannot be played."""
        for name, value, most in (
            ("subscribers", self.subscribers, SUBSCRIBERS_MAX),
            ("period_s", self.period_s, PERIOD_MAX_S),
            ("workers", self.workers, WORKERS_MAX),
        ):
            if not 1 <= value <= most:
                raise OperatorError(f"a scene with {name} = {value}", f"Give 1 to {most}")
        msgspec.structs.replace(self.city, people=self.subscribers).check()

    def settings(self) -> Settings:
        """The network's settings: defaults, except the script's, and smaller sizes for a short life."""
        return Settings(
            coordinators=self.coordinators,
            nats=Nats(servers=self.servers),
            brokers=tuple(Broker(id=home.broker, cluster=home.cluster) for home in self.homes),
            membership=Membership(detect=self.detect),
            pipeline=Pipeline(enabled="always"),
            spark=Spark(heap="1g", ui_port=-1),
            feeds=Feeds(http_port=-1),
            log=Log(level="warning"),  # at which brokers say that they stand in for another
        )

    def places(self) -> list[tuple[float, int, float, float]]:
        """Where everybody is, by time: (seconds from the beginning, number of the subscriber, x, y in metres)."""
        if self.movements is None:
            city = msgspec.structs.replace(self.city, people=self.subscribers)
            return self._numbered(movements(city), 0.0)
        trace = Trace(self.movements, samples_max=PLACES_MAX)
        found = self._numbered(trace, trace.bounds.begin_s)
        people = len({number for _, number, _, _ in found})
        if people < self.subscribers:
            raise OperatorError(
                f"{self.movements} has {people} people for {self.subscribers} subscribers",
                "Give a trace with more, or fewer subscribers",
            )
        return found

    def _numbered(self, samples: Iterable[Sample], begin_s: float) -> list[tuple[float, int, float, float]]:
        numbers: dict[str, int] = {}
        found: list[tuple[float, int, float, float]] = []
        for each in samples:
            number = numbers.setdefault(each.id, len(numbers))
            if number < self.subscribers:
                found.append((each.at_s - begin_s, number, each.x_m, each.y_m))
                if len(found) > PLACES_MAX:
                    raise OperatorError(
                        f"more than {PLACES_MAX} places of people", "Say less often where they are"
                    )
        return found

    def happenings(self) -> list[Emergency]:
        """The emergencies by time: seconds from the beginning."""
        if self.emergencies is None:
            found = list(emergencies(disasters(self.city)))
        else:
            trace = Trace(self.emergencies, samples_max=EMERGENCIES_MAX)
            begin_s = trace.bounds.begin_s
            found = [msgspec.structs.replace(each, at_s=each.at_s - begin_s) for each in emergencies(trace)]
        return found

    def cast(self) -> list[tuple[str, Home]]:
        """The subscribers: name and home of each, by number."""
        numbered = (home for home in self.homes for _ in range(home.subscribers))
        return [(f"user-{number}", home) for number, home in enumerate(numbered)]

    def clusters(self) -> dict[str, tuple[str, ...]]:
        """The brokers of each."""
        by_cluster = groupby(sorted(self.homes, key=lambda home: home.cluster), lambda home: home.cluster)
        return {cluster: tuple(home.broker for home in group) for cluster, group in by_cluster}
