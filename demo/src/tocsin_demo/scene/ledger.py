"""The subscribers at any moment: where each is, what it got, and how it came through a failure.

Subscribers are numbers, brokers are ids, times are seconds of one clock that all processes share (monotonic). The
subscribers' processes say what happened a moment later, each in order, so that a look back is exact and the present
is a fraction of a second old. Nothing here reads a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tocsin_demo.scene.account import Result


class Presence(msgspec.Struct, frozen=True):
    """The subscribers that are connected to a broker."""

    at_home: int
    guests: int


class Passage(msgspec.Struct, frozen=True):
    """How one subscriber came through a failure; None: not, as far as is known."""

    subscriber: int
    home: str
    lost_s: float | None  # its connection broke
    back_s: float | None  # a broker has taken its session: it is served again
    at: str | None  # that broker
    heard_s: float | None  # its program was given a notification, for the first time after that


class Ledger:
    """Records each subscriber's broker, results and passages."""

    def __init__(self, homes: Sequence[str], servers: Mapping[str, str]) -> None:
        """``homes``: the broker of each subscriber; ``servers``: the broker behind each host:port."""
        self.homes = tuple(homes)
        self.received = 0  # given to programs
        self.absent: set[int] = set()  # those who are not there because they are not meant to be
        self.repeats: dict[str, int] = {}  # by process: came to clients again, and not to their programs
        self.skipped: dict[
            str, int
        ] = {}  # by process: places that were not told, as the one before was not yet
        self._servers = dict(servers)
        self._moves: list[list[tuple[float, str | None]]] = [
            [] for _ in homes
        ]  # when, and where it is from then on
        self._got: list[list[tuple[float, Result]]] = [[] for _ in homes]
        self._by_second: Counter[int] = Counter()  # notifications

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def moved(self, subscriber: int, at_s: float, server: str | None) -> None:
        """A subscriber is connected to a server (host:port) now, or (None) to nobody."""
        where = None if server is None else self._servers.get(server, server)
        self._moves[subscriber].append((at_s, where))

    def got(self, subscriber: int, at_s: float, result: Result) -> None:
        """A subscriber's program was given a notification."""
        self._got[subscriber].append((at_s, result))
        self._by_second[int(at_s)] += 1
        self.received += 1

    # ── where everybody is ──────────────────────────────────────────────────────────────────────────────────

    def where(self, subscriber: int) -> str | None:
        """The broker that it is connected to."""
        moves = self._moves[subscriber]
        return moves[-1][1] if moves else None

    def where_at(self, subscriber: int, at_s: float) -> str | None:
        """The broker that it was connected to at that time."""
        before = bisect_right(self._moves[subscriber], at_s, key=lambda move: move[0])
        return self._moves[subscriber][before - 1][1] if before else None

    def connected_s(self, subscriber: int, broker: str, after_s: float) -> float | None:
        """When it was connected to a broker, for the first time after that time."""
        moves = self._moves[subscriber]
        first = bisect_right(moves, after_s, key=lambda move: move[0])
        return next((at_s for at_s, where in moves[first:] if where == broker), None)

    def presence(self) -> dict[str, Presence]:
        """The subscribers at each broker that is a home or has some."""
        at_home: Counter[str] = Counter()
        guests: Counter[str] = Counter()
        for subscriber, home in enumerate(self.homes):
            where = self.where(subscriber)
            if where is not None:
                (at_home if where == home else guests)[where] += 1
        names = dict.fromkeys((*self.homes, *guests))
        return {name: Presence(at_home[name], guests[name]) for name in names}

    @property
    def away(self) -> int:
        """How many are connected to nobody, and are not absent."""
        return sum(
            self.where(subscriber) is None
            for subscriber in range(len(self.homes))
            if subscriber not in self.absent
        )

    @property
    def abroad(self) -> int:
        """How many are connected, but not at home."""
        return sum(
            where is not None and where != home
            for where, home in ((self.where(each), home) for each, home in enumerate(self.homes))
        )

    # ── what they got ───────────────────────────────────────────────────────────────────────────────────────

    def rate(self, now_s: float, window_s: int = 5) -> float:
        """Notifications a second, over the last whole seconds."""
        last = int(now_s)
        return sum(self._by_second[second] for second in range(last - window_s, last)) / window_s

    def per_second(self, from_s: float, to_s: float) -> list[int]:
        """Notifications in each whole second of that time."""
        return [self._by_second[second] for second in range(int(from_s), int(to_s))]

    def results(self, subscriber: int) -> list[Result]:
        """All that its program was given, in that order."""
        return [result for _, result in self._got[subscriber]]

    def arrivals(self, subscriber: int) -> list[tuple[float, Result]]:
        """The same, with the time of each."""
        return list(self._got[subscriber])

    # ── failures ────────────────────────────────────────────────────────────────────────────────────────────

    def at(self, brokers: Iterable[str], at_s: float) -> tuple[int, ...]:
        """The subscribers that were connected to these brokers at that time."""
        wanted = set(brokers)
        return tuple(each for each in range(len(self.homes)) if self.where_at(each, at_s) in wanted)

    def passage(self, subscriber: int, failed_s: float) -> Passage:
        """How a subscriber that was connected to a broker which failed at that time has come through it."""
        lost_s: float | None = None
        back_s: float | None = None
        where: str | None = None
        for at_s, to in self._moves[subscriber]:
            if at_s < failed_s:
                continue
            if to is None:
                lost_s = at_s if lost_s is None else lost_s
            elif lost_s is not None:
                back_s, where = at_s, to
                break
        heard_s = None
        if back_s is not None:
            after = bisect_right(self._got[subscriber], back_s, key=lambda arrival: arrival[0])
            heard_s = self._got[subscriber][after][0] if after < len(self._got[subscriber]) else None
        return Passage(subscriber, self.homes[subscriber], lost_s, back_s, where, heard_s)
