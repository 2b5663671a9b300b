"""The queue of log-ins in front of a broker's few hashing threads: which password is checked next.

A check is slow on purpose, so a flood of wrong passwords could keep everybody else out. The queue is fair
by **source** (an address, ``core.access.admission.source_of``), then by **name**:

1. The waiting source with the smallest *debt* is next; among equals, the one that was served longest ago. Every wrong
   password adds one to the debt of its source. A debt shrinks by one a second.
2. Among a source's names, those that were proven at this broker before are next, then those with the fewest recent
   wrong passwords from there, then the first that asked.
3. One source and name has one check at a time: guesses of one password wait for each other.

A source whose debt is over ``failures_max`` is refused unseen, but for names that were proven before: a device that
comes back from behind the same address as an attacker is still let in. The machine's own address is never refused so,
as a proxy on it speaks for everybody; there the order has to do.

Invariants
- At most ``waiting_max`` tickets wait, and of one source a tenth of them (two at least). A newcomer with a smaller
  debt takes the place of the newest ticket of the source with the largest.
- At most ``sources_max`` debts are remembered; when there are more, the smallest go.
- A ticket is in one place: waiting, running, or unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

WAITING_MAX: Final = 1_000  # on two cores, some ten seconds' worth
SOURCE_SHARE: Final = 10  # one source may have a tenth of the queue
SOURCES_MAX: Final = 10_000  # whose debt is remembered; at some 200 B each, 2 MB
NAMES_MAX: Final = 64  # of one source whose wrong passwords are told apart
PROVEN_MAX: Final = 20_000  # names that are remembered; as the passwords that are (runtime.users)
FORGIVEN_US: Final = 1_000_000  # for one wrong password

Why = Literal["crowded", "failures"]


class Turned(msgspec.Struct, frozen=True):
    """A password that is not looked at: why, and when to try again."""

    why: Why
    after_s: int

    def __str__(self) -> str:
        if self.why == "failures":
            return f"too many wrong passwords came from this address; try again in {self.after_s} s"
        return "too many clients wait for their password to be checked"


class LoginTurn(msgspec.Struct, eq=False):
    """One password that is to be checked."""

    source: str
    name: str
    number: int  # in order of asking


class _Source:
    """The recent log-ins of one address."""

    __slots__ = ("_debt_us", "_names", "_seen_us", "served", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[LoginTurn, None] = {}  # in order of asking
        self.served = 0  # when its last turn was, by the number of turns
        self._debt_us = 0
        self._seen_us = 0
        self._names: dict[str, int] = {}  # wrong passwords, while there is a debt

    def debt(self, now_us: int) -> int:
        """Wrong passwords that are not forgiven yet, rounded up."""
        gone_us = max(0, now_us - self._seen_us)
        self._debt_us = max(0, self._debt_us - gone_us)
        self._seen_us = max(self._seen_us, now_us)
        if not self._debt_us:
            self._names.clear()
        return -(-self._debt_us // FORGIVEN_US)

    def fail(self, name: str, now_us: int) -> None:
        self.debt(now_us)
        self._debt_us += FORGIVEN_US
        if name in self._names or len(self._names) < NAMES_MAX:
            self._names[name] = self._names.get(name, 0) + 1

    def failures(self, name: str) -> int:
        return self._names.get(name, 0)


class Logins:
    """Queues password checks in front of the hashing threads, fairly and within bounds."""

    def __init__(
        self,
        failures_max: int,
        *,
        waiting_max: int = WAITING_MAX,
        sources_max: int = SOURCES_MAX,
    ) -> None:
        self._failures_max = failures_max
        self._waiting_max = waiting_max
        self._sources_max = sources_max
        self._sources: dict[str, _Source] = {}
        self._proven: dict[str, None] = {}  # names, oldest proof first
        self._running: dict[tuple[str, str], LoginTurn] = {}
        self._waiting = 0
        self._count = 0
        self._turns = 0

    @property
    def waiting(self) -> int:
        return self._waiting

    def ask(
        self, source: str, name: str, now_us: int, *, local: bool = False
    ) -> tuple[LoginTurn | None, Turned | None, tuple[LoginTurn, ...]]:
        """A ticket for this password, or why it is not looked at; and tickets of others that had to make room."""
        known = self._sources.get(source)
        debt = 0 if known is None else known.debt(now_us)
        if debt > self._failures_max and not local and name not in self._proven:
            return None, Turned("failures", debt - self._failures_max), ()
        share = max(2, self._waiting_max // SOURCE_SHARE)
        if known is not None and len(known.waiting) >= share:
            return None, Turned("crowded", 1), ()
        gone: tuple[LoginTurn, ...] = ()
        if self._waiting >= self._waiting_max:
            worst = max(
                (each for each in self._sources.values() if each.waiting),
                key=lambda each: (each.debt(now_us), len(each.waiting)),
            )
            if (worst.debt(now_us), len(worst.waiting)) <= (debt, len(known.waiting) if known else 0):
                return None, Turned("crowded", 1), ()
            gone = (next(reversed(worst.waiting)),)
            self.forget(gone[0])
        self._count += 1
        ticket = LoginTurn(source, name, self._count)
        self._source(source, now_us).waiting[ticket] = None
        self._waiting += 1
        return ticket, None, gone

    def next(self, now_us: int) -> LoginTurn | None:
        """The ticket whose turn it is; None if nobody waits who may."""
        best: tuple[tuple[int, int], tuple[bool, int, int], LoginTurn] | None = None
        for source in self._sources.values():
            candidates = [
                ((each.name not in self._proven, source.failures(each.name), each.number), each)
                for each in source.waiting
                if (each.source, each.name) not in self._running
            ]
            if not candidates:
                continue
            rank, ticket = min(candidates, key=lambda pair: pair[0])
            place = (source.debt(now_us), source.served)
            if best is None or (place, rank) < best[:2]:
                best = (place, rank, ticket)
        if best is None:
            return None
        ticket = best[2]
        self._turns += 1
        self._sources[ticket.source].served = self._turns
        del self._sources[ticket.source].waiting[ticket]
        self._waiting -= 1
        self._running[ticket.source, ticket.name] = ticket
        return ticket

    def done(self, ticket: LoginTurn, good: bool | None, now_us: int) -> None:
        """A check is over: well, badly, or (None) before it began."""
        self._running.pop((ticket.source, ticket.name), None)
        if good:
            self.prove(ticket.name)
        elif good is not None:
            self._source(ticket.source, now_us).fail(ticket.name, now_us)

    def prove(self, name: str) -> None:
        """Somebody proved this name."""
        self._proven.pop(name, None)
        if len(self._proven) >= PROVEN_MAX:
            del self._proven[next(iter(self._proven))]
        self._proven[name] = None

    def unprove(self, names: Iterable[str]) -> None:
        """These users are gone, or have another password."""
        for name in names:
            self._proven.pop(name, None)

    def forget(self, ticket: LoginTurn) -> None:
        """The client that asked has given up. One that runs is over with ``done``."""
        source = self._sources.get(ticket.source)
        if source is not None and ticket in source.waiting:
            del source.waiting[ticket]
            self._waiting -= 1

    def _source(self, name: str, now_us: int) -> _Source:
        source = self._sources.get(name)
        if source is None:
            if len(self._sources) >= self._sources_max:
                self._make_room(now_us)
            source = self._sources[name] = _Source()
        return source

    def _make_room(self, now_us: int) -> None:
        """Forget the sources with the smallest debts, a tenth of all; not those that wait."""
        idle = [name for name, each in self._sources.items() if not each.waiting]
        idle.sort(key=lambda name: self._sources[name].debt(now_us))
        for name in idle[: max(1, self._sources_max // 10)]:
            del self._sources[name]
