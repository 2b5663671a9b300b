"""The places of watch connections at one broker: who gets one when all are taken.

While a place is free, everybody gets it. When none is, a newcomer takes the place of somebody who has many:

1. A newcomer whose address and user each have less than a share (a tenth of all places) takes one from the address, or
   the user, that has most, if that has more than a share.
2. Otherwise those with which it has its address or its user in common share among themselves: it takes one from the
   user at one address that has most of them, if that has at least two more than it has at its own.

Of those the oldest goes. A client without a proven name is nobody's user: only its address counts. So one address, or
one user at many, keeps nobody else out, and takes no more than a share from others.

Invariants: there are at most ``places_max`` watchers; a newcomer costs at most one other its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

SHARES: Final = 10  # as of the queue of log-ins (``core.access.logins``)

Watcher = TypeVar("Watcher", bound=Hashable)


class _Party(NamedTuple):
    """A user at an address."""

    source: str  # ``core.access.admission.source_of``
    user: str  # empty: no proven name

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """Those with whom it shares: at its address, and under its name."""
        at = ("address", self.source)
        return (at, ("user", self.user)) if self.user else (at,)


class WatcherPlaces(Generic[Watcher]):
    """The watchers that have a place, and how many each party has."""

    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._share = max(1, places_max // SHARES)
        self._party: dict[Watcher, _Party] = {}
        self._of: dict[_Party, dict[Watcher, None]] = {}  # oldest first; never empty
        self._parties: dict[tuple[str, str], dict[_Party, None]] = {}  # by group; never empty
        self._sizes: Counter[tuple[str, str]] = Counter()  # watchers of a group; never 0

    def __len__(self) -> int:
        return len(self._party)

    def comes(self, watcher: Watcher, source: str, user: str) -> tuple[bool, Watcher | None]:
        """Whether a connection gets a place, and the one that has to go for it."""
        self.went(watcher)
        party, gone = _Party(source, user), None
        if len(self._party) >= self._places_max:
            gone = self._outlived_by(party)
            if gone is None:
                return False, None
            self.went(gone)
        self._party[watcher] = party
        self._of.setdefault(party, {})[watcher] = None
        for group in party.groups:
            self._parties.setdefault(group, {})[party] = None
            self._sizes[group] += 1
        return True, gone

    def went(self, watcher: Watcher) -> None:
        """A connection is over, of a watcher or not."""
        party = self._party.pop(watcher, None)
        if party is None:
            return
        del self._of[party][watcher]
        is_last = not self._of[party]
        if is_last:
            del self._of[party]
        for group in party.groups:
            self._sizes[group] -= 1
            if is_last:
                del self._parties[group][party]
            if not self._sizes[group]:
                del self._sizes[group], self._parties[group]

    def _outlived_by(self, newcomer: _Party) -> Watcher | None:
        """The watcher that has to go for a newcomer; None: nobody has to."""
        if not self._party:
            return None
        if max(self._sizes[each] for each in newcomer.groups) < self._share:
            most = max(self._sizes, key=self._sizes.__getitem__)
            if self._sizes[most] > self._share:
                return self._oldest(self._largest(self._parties[most]))
        near = [each for group in newcomer.groups for each in self._parties.get(group, ())]
        if near and self._count(largest := self._largest(near)) > self._count(newcomer) + 1:
            return self._oldest(largest)
        return None

    def _largest(self, parties: Iterable[_Party]) -> _Party:
        return max(parties, key=self._count)

    def _oldest(self, party: _Party) -> Watcher:
        return next(iter(self._of[party]))

    def _count(self, party: _Party) -> int:
        return len(self._of.get(party, ()))
