"""The course of a recovery: what was decided when, and how each subscriber came through. Nothing here reads a clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tocsin_demo.scene.ledger import Passage


class Failure(msgspec.Struct, frozen=True):
    """Brokers that failed at the same time, and the subscribers that were connected to them then."""

    brokers: tuple[str, ...]
    at_s: float
    affected: tuple[int, ...]
    pids: dict[str, int]
    frozen: bool = False  # stopped, with their connections open; else ended


class Course(msgspec.Struct, frozen=True):
    """How far a recovery is. Times are of the machine's monotonic clock; None: not yet."""

    failure: Failure
    lost_s: Mapping[str, float | None]  # broker → when the leader declared it lost
    stands_in: Mapping[str, str | None]  # broker → its stand-in
    taken_s: Mapping[str, float | None]  # broker → when the stand-in announced the takeover
    passages: tuple[Passage, ...]  # of the affected subscribers

    @property
    def back(self) -> int:
        """Subscribers that are served again."""
        return sum(each.back_s is not None for each in self.passages)

    @property
    def heard(self) -> int:
        """Subscribers that were given a notification since."""
        return sum(each.heard_s is not None for each in self.passages)

    @property
    def lost_after_s(self) -> float | None:
        """How long after the failure the last of the brokers was declared lost; None while one is not."""
        return self._last(self.lost_s.values())

    @property
    def taken_after_s(self) -> float | None:
        """How long after the failure the last stand-in said that it is one; None while one has not."""
        return self._last(self.taken_s.values())

    @property
    def back_after_s(self) -> float | None:
        """How long after the failure the last subscriber was served again; None while one is not, or if none was
        affected."""
        return self._last(each.back_s for each in self.passages)

    def _last(self, times: Iterable[float | None]) -> float | None:
        found = list(times)
        known = [each for each in found if each is not None]
        return max(known) - self.failure.at_s if known and len(known) == len(found) else None
