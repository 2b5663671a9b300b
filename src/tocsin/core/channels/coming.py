"""Sessions that come with subscriptions that this broker has prepared, until these are taken up.

A takeover brings many sessions in a moment, some with thousands of subscriptions. Standby cells cover these, so that
nobody waits for a write. Nor need anybody wait until each of them has its entries here: that is done behind the
client's first delivery, some names at a time, and before anything else happens to the holdings.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.core.channels.signals import Wanted

SOON_US: Final = 200_000  # after the last session came: until then the broker has others to let in …
SOON_MOST_US: Final = 1_000_000  # … and after the first, whoever comes
SLICE: Final = 500  # names that are taken up at once: a few milliseconds of the loop …
SLICE_PAUSE_US: Final = 10_000  # … and what it has for others in between


class ComingSessions:
    """The sessions, in the order in which they came, with the names that are not taken up yet."""

    def __init__(self) -> None:
        self._sessions: dict[str, Wanted] = {}  # by uid; nobody waits for these any more
        self._names: set[str] = set()  # at least those of these sessions
        self._first_us = self._last_us = 0  # when sessions came, since there was none

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def __contains__(self, session: str) -> bool:
        return session in self._sessions

    def add(self, event: Wanted, now_us: int) -> None:
        """A session came, and was answered."""
        self._first_us = self._first_us if self._sessions else now_us
        self._last_us = now_us
        self._sessions[event.session] = msgspec.structs.replace(event, ticket=0, all=False)
        self._names.update(event.names)

    def wants(self, name: str) -> bool:
        """Whether one of these sessions has, or had, this name."""
        return name in self._names

    def wait_us(self, now_us: int) -> int:
        """For how long more others are let in first; 0: no longer."""
        return max(0, min(self._last_us + SOON_US, self._first_us + SOON_MOST_US) - now_us)

    @property
    def names(self) -> frozenset[str]:
        """All names that are not taken up yet."""
        return frozenset(name for event in self._sessions.values() for name in event.names)

    def take(self, most: int | None = None) -> list[Wanted]:
        """Those that came first, with so many names in all; None: everything."""
        taken: list[Wanted] = []
        left = most
        while self._sessions and (left is None or left > 0):
            session, event = next(iter(self._sessions.items()))
            if left is None or len(event.names) <= left:
                del self._sessions[session]
                taken.append(event)
            else:
                self._sessions[session] = msgspec.structs.replace(event, names=event.names[left:])
                taken.append(msgspec.structs.replace(event, names=event.names[:left]))
            left = None if left is None else left - len(event.names)
        if not self._sessions:
            self._names = set()
        return taken
