"""The parameters of the experiments.

The paper's, as far as it says them. It does not say how long V-A and V-C ran, how often the publishers of V-C sent
(here as often as those of V-A), or how many changes followed in V-B once all publishers were there.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tocsin.errors import OperatorError


class Single(msgspec.Struct, frozen=True):
    """V-A."""

    subscribers: tuple[int, ...] = (1, 10, 100)
    publishers_each: int = 10
    rate: float = 5.0  # messages a second of a publisher
    seconds: float = 60.0  # for each number of subscribers


class Coordination(msgspec.Struct, frozen=True):
    """V-B."""

    brokers: int = 10
    subscribers: int = 500  # each with a query that one publisher in ten satisfies
    different: int | None = (
        None  # queries that they ask, each somebody's by chance; None: one for each of them
    )
    publishers: int = 1_000  # that come
    changes: int = 400  # of metadata, afterwards
    interval_s: tuple[float, float] = (0.05, 0.5)  # between two of either, uniformly
    coordinators: Literal[3, 5] = 3  # where it is replicated
    kill_after: float = 0.5  # of the changes: then the leader is killed


class Whole(msgspec.Struct, frozen=True):
    """V-C."""

    brokers: int = 3
    coordinators: Literal[1, 3, 5] = 3
    subscribers_each: int = 10  # a broker
    publishers_each: int = 4  # for a subscriber, at every broker
    rate: float = 5.0
    change_s: tuple[float, float] = (30.0, 60.0)  # between two changes of one publisher, uniformly
    seconds: float = 300.0


Design = Literal["logged", "ahead", "broadcast", "unshared"]


class Designs(msgspec.Struct, frozen=True):
    """VI-B: V-B's load, for a shorter time."""

    load: Coordination = Coordination(publishers=150, changes=150)
    designs: tuple[Design, ...] = ("logged", "ahead", "broadcast")
    equal: Coordination = Coordination(publishers=150, changes=150, different=10)  # many ask the same
    equal_designs: tuple[Design, ...] = ("logged", "unshared")
    servers: tuple[Literal[1, 3], ...] = (1, 3)  # of the store


class Plan(msgspec.Struct, frozen=True):
    """All four."""

    words: str = "the paper's parameters"  # its name, for readers of the results
    seed: int = 1
    servers: Literal[1, 3] = 3  # of the store, where coordinators are replicated
    single: Single = Single()
    coordination: Coordination = Coordination()
    whole: Whole = Whole()
    designs: Designs = Designs()


QUICK = Plan(
    words="a quick form with fewer clients, for less time: its figures are not to be compared with the paper's",
    single=Single(subscribers=(1, 5), seconds=1.0),
    coordination=Coordination(brokers=4, subscribers=40, publishers=40, changes=20, interval_s=(0.01, 0.05)),
    whole=Whole(subscribers_each=2, publishers_each=2, change_s=(0.5, 1.0), seconds=2.0),
    designs=Designs(
        load=Coordination(brokers=4, subscribers=40, publishers=20, changes=20, interval_s=(0.01, 0.05)),
        equal=Coordination(
            brokers=4, subscribers=40, different=4, publishers=20, changes=20, interval_s=(0.01, 0.05)
        ),
        servers=(1,),
    ),
)


def plan(*, quick: bool, scale: float, minutes: float | None, seed: int) -> Plan:
    """The plan that the command line asks for. Raises ``OperatorError``."""
    if not 0.01 <= scale <= 10:
        raise OperatorError(
            f"--scale {scale:g} is out of range", "Give 0.01 to 10, 1 for the paper's numbers"
        )
    if minutes is not None and not 0.01 <= minutes <= 1_440:
        raise OperatorError(f"--minutes {minutes:g} is out of range", "Give 0.01 to 1440")
    chosen = msgspec.structs.replace(QUICK if quick else Plan(), seed=seed)
    if scale != 1:
        chosen = _scaled(chosen, scale)
    if minutes is not None:
        seconds = minutes * 60
        chosen = msgspec.structs.replace(
            chosen,
            words=f"{chosen.words}; V-A and V-C for {minutes:g} minutes",
            single=msgspec.structs.replace(chosen.single, seconds=seconds),
            whole=msgspec.structs.replace(chosen.whole, seconds=seconds),
        )
    return chosen


def _scaled(given: Plan, scale: float) -> Plan:
    def times(number: int) -> int:
        return max(1, round(number * scale))

    def load(given: Coordination) -> Coordination:
        return msgspec.structs.replace(
            given,
            subscribers=times(given.subscribers),
            publishers=times(given.publishers),
            changes=times(given.changes),
        )

    whole = given.whole
    return msgspec.structs.replace(
        given,
        words=f"{given.words}, with {scale:g} times the clients and changes",
        single=msgspec.structs.replace(
            given.single, subscribers=tuple(dict.fromkeys(map(times, given.single.subscribers)))
        ),
        coordination=load(given.coordination),
        designs=msgspec.structs.replace(
            given.designs, load=load(given.designs.load), equal=load(given.designs.equal)
        ),
        whole=msgspec.structs.replace(whole, subscribers_each=times(whole.subscribers_each)),
    )
