"""The plan of measurements: waves of subscribers, the failures in each, and the subscribers' homes.

The paper has 400 subscribers, assigned to four brokers by chance, and failures of a broker with 23, 50, 74 and 97 of
them. That is what chance gives one of four brokers with 100, 200, 300 and 400 subscribers, so these are the waves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from tocsin.config.membership import Detect
from tocsin.errors import OperatorError
from tocsin_demo.city import City
from tocsin_demo.scene import Home, Script, homes

Way = Literal["migration", "local", "remote", "frozen", "frozen remote"]
WAYS: Final[tuple[Way, ...]] = ("migration", "local", "remote", "frozen", "frozen remote")
BY_SIZE: Final[tuple[Way, ...]] = ("local", "remote", "frozen")  # those of Fig 3b
WITHOUT_NEIGHBOUR: Final[tuple[Way, ...]] = ("remote", "frozen remote")
FROZEN: Final[tuple[Way, ...]] = ("frozen", "frozen remote")
FIGURES: Final = ("3a", "3b")
VICTIM: Final = "south-1"
NEIGHBOUR: Final = "south-2"  # the other broker of its cluster
SEED_MAX: Final = 2**32 - 1
RUNS: Final = 20
RUNS_MAX: Final = 25  # more places of 400 people than a script takes would be needed
FAILURE_S: Final = 60  # that people walk for each failure: longer than it takes


class Wave(msgspec.Struct, frozen=True):
    """So many subscribers, and so many of them at home at the broker that fails."""

    subscribers: int
    at_victim: int
    runs: int = RUNS  # of each way


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The waves and runs of a measurement."""

    words: str = "the paper's parameters"
    seed: int = 1
    figures: tuple[str, ...] = FIGURES
    waves: tuple[Wave, ...] = (Wave(100, 23), Wave(200, 50), Wave(300, 74), Wave(400, 97))
    period_s: int = 10  # of the channel
    detect: Detect = "default"
    seconds_least: int = 600  # that people walk
    # From when everything is well again to the next failure: until a client's back-off is forgotten, and its watch
    # connection, which it makes 1 to 2 s after it is connected, is there.
    settle_s: float = 4.0
    deadline_s: float = 90.0  # for anything that is waited for

    @property
    def failures(self) -> list[tuple[int, Way, int]]:
        """The runs: number of the wave, kind of failure and number of the run, in order."""
        last = len(self.waves) - 1
        return [
            (number, way, run)
            for number, wave in enumerate(self.waves)
            for run in range(wave.runs)
            for way in WAYS
            if ("3a" in self.figures and number == last) or ("3b" in self.figures and way in BY_SIZE)
        ]

    @property
    def seconds(self) -> int:
        """How long people walk: until the last failure is over. Whoever stood still would soon be nowhere."""
        return max(self.seconds_least, FAILURE_S * len(self.failures))

    def homes(self) -> list[tuple[Home, ...]]:
        """The homes of each wave: brokers with their number of subscribers. A wave has all of the one before."""
        counts: Counter[str] = Counter()
        found: list[tuple[Home, ...]] = []
        before = Wave(0, 0, 0)
        for number, wave in enumerate(self.waves):
            new = homes(
                wave.subscribers - before.subscribers,
                exactly={VICTIM: wave.at_victim - before.at_victim},
                seed=self.seed * 1_000 + number,
            )
            for home in new:
                counts[home.broker] += home.subscribers
            found.append(
                tuple(msgspec.structs.replace(each, subscribers=counts[each.broker]) for each in new)
            )
            before = wave
        return found

    def crowd(self, wave: int) -> set[int]:
        """The numbers of the subscribers who are there in a wave: the first of each broker's."""
        every, begin, found = self.homes(), 0, set[int]()
        for here, all_there in zip(every[wave], every[-1], strict=True):
            found.update(range(begin, begin + here.subscribers))
            begin += all_there.subscribers
        return found

    def script(self, first: int, movements: Path | None = None, emergencies: Path | None = None) -> Script:
        """The script, with the wave ``first`` there from the beginning."""
        last = self.homes()[-1]
        everybody = range(sum(home.subscribers for home in last))
        return Script(
            homes=last,
            city=City(seed=self.seed, people=len(everybody), seconds=self.seconds),
            movements=movements,
            emergencies=emergencies,
            period_s=self.period_s,
            detect=self.detect,
            keep_alive_s=None,
            later=tuple(sorted({*everybody} - self.crowd(first))),
        )


QUICK: Final = Plan(
    words="a quick form with few subscribers: its figures are not to be compared with the paper's",
    waves=(Wave(32, 8, 1),),  # so there is no line for Fig 3b: one more wave would take as long again
    period_s=2,
    detect="aggressive",
    settle_s=3.0,
)


def plan(*, quick: bool, seed: int, figures: Sequence[str] | None = None, runs: int | None = None) -> Plan:
    """The plan that the command line asks for; ``runs``: of each way in each wave. Raises ``OperatorError``."""
    if not 0 <= seed <= SEED_MAX:
        raise OperatorError(f"--seed {seed} is out of range", f"Give 0 to {SEED_MAX}")
    if runs is not None and not 1 <= runs <= RUNS_MAX:
        raise OperatorError(f"--runs {runs} is out of range", f"Give 1 to {RUNS_MAX}")
    chosen = tuple(figures or FIGURES)
    made = QUICK if quick else Plan()
    waves = made.waves if "3b" in chosen else made.waves[-1:]
    if runs is not None:
        waves = tuple(msgspec.structs.replace(each, runs=runs) for each in waves)
    return msgspec.structs.replace(made, seed=seed, figures=chosen, waves=waves)
