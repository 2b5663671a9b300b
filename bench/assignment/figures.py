"""The figures of backup plans."""

from __future__ import annotations

import msgspec


class Reached(msgspec.Struct, frozen=True):
    """The result of a strategy on a network: the two objectives, backups without room, and its time."""

    strategy: str
    overhead: float
    largest: float
    short: float
    ms: float


class Row(msgspec.Struct, frozen=True):
    """All strategies on one network, with the bounds. Those of max R are for the locals of ``search``."""

    network: str
    brokers: int
    own: int  # subscriptions that brokers hold themselves
    reached: list[Reached]
    bound: int
    bound_exact: bool
    bound_how: str
    largest_bound: int
    largest_exact: bool


class Timed(msgspec.Struct, frozen=True):
    """How long things take at one size, in milliseconds of processor time."""

    kind: str
    brokers: int
    pairs: int
    read_ms: float
    random_ms: float
    paper_ms: float
    search_ms: float
    replan_ms: float
    moved: int  # by replan, after the loss of a broker
    orphaned: int  # backups that the lost broker had been
    moved_anew: int  # if everything were planned from scratch


class Growth(msgspec.Struct, frozen=True):
    """The power of the number of pairs by which a time grows."""

    kind: str
    what: str
    slope: float


class Report(msgspec.Struct, frozen=True):
    python: str
    quick: bool
    rows: list[Row]
    timed: list[Timed]
    growth: list[Growth]
