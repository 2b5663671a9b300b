"""What takeovers took, as it is kept."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TypeVar

import msgspec

Figure = TypeVar("Figure")


class Spent(msgspec.Struct, frozen=True, array_like=True):
    """One takeover: seconds that passed, and of processor time (0: not measured)."""

    passed_s: float
    broker_s: float
    store_s: float


class Point(msgspec.Struct, frozen=True):
    """One size: until all clients are served, or have a message, in each round."""

    subscriptions: int
    local: list[Spent]
    remote: list[Spent]

    def rounds(self, way: str) -> list[Spent]:
        return self.local if way == "local" else self.remote

    def median_s(self, way: str) -> float:
        return statistics.median(each.passed_s for each in self.rounds(way))

    def processor_s(self, way: str) -> float:
        """Of the backup and the store: the least, since whatever else ran only adds to it."""
        return min(each.broker_s + each.store_s for each in self.rounds(way))

    @property
    def ratio(self) -> float:
        """How many times longer the remote backup takes."""
        return self.median_s("remote") / self.median_s("local")


class Again(msgspec.Struct, frozen=True):
    """One way of copying positions: repeats for each client, and bytes a second to the backups, in each round."""

    settings: list[str]
    repeats: list[float]
    copied_bytes_s: list[float]

    @property
    def words(self) -> str:
        """The setting that counts, with its unit: ``5 s`` or ``100 kB``."""
        value = int(self.settings[-1].partition("=")[2])
        if self.periodic:
            return f"{value / 1_000:g} s"
        return f"{value / 1_000:g} kB" if value < 1_000_000 else f"{value / 1_000_000:g} MB"

    @property
    def periodic(self) -> bool:
        return self.settings[0].endswith("periodic")


def read(path: Path, kind: type[Figure]) -> list[Figure]:
    """The points of a file of results; none if there is no such file."""
    if not path.exists():
        return []
    return msgspec.convert(msgspec.json.decode(path.read_bytes())["points"], list[kind])  # type: ignore[valid-type]
