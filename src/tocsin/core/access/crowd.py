"""A crowd at the entrance: clients that come all at once are let in by turns, and the sickest of them last.

When a broker is lost its clients come to its backup within a second. Each costs the broker a fraction of a millisecond,
and meanwhile it has others to serve. So of the CONNECTs that arrive in one turn of the loop SLICE are answered at once,
and the others wait in line: SLICE of them in each of the next turns, with everybody else's packets in between.

In line the healthy come first. **Sick** is a client or an address that was refused lately, whose handshake failed, or
that comes and goes: it has FAULTS_MAX faults or more, and each fault is forgotten after FORGIVEN_US. A sick client is
not refused, and waits only while others wait: SICK_SHARE places of every turn are for the sick, so that nobody waits
for ever.

Invariants: nobody waits while there is a free place in a turn; each turn lets SLICE in at most; no more than
REMEMBERED_MAX faults are remembered, the newest. Who waits is bounded by the listener: each has a socket.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

SLICE: Final = 32  # at 0.3 ms each some ten milliseconds of a turn
SICK_SHARE: Final = 4  # of those, at least, if there are sick ones
FAULTS_MAX: Final = 3  # within FORGIVEN_US: once or twice happens to everybody
FORGIVEN_US: Final = 60_000_000
BRIEF_US: Final = 2_000_000  # a connection that ends sooner is a fault
REMEMBERED_MAX: Final = 10_000  # names with faults, some 150 B each

T = TypeVar("T")


class Crowd(Generic[T]):
    """The clients that come to one broker. Tokens stand for those that wait."""

    def __init__(self) -> None:
        self._taken = 0  # places of this turn
        self._well: deque[T] = deque()
        self._sick: deque[T] = deque()
        self._faults: dict[str, tuple[int, int]] = {}  # name → how many, and when the last; oldest first

    def __len__(self) -> int:
        """How many wait."""
        return len(self._well) + len(self._sick)

    def comes(self, token: T, names: tuple[str, ...], now_us: int) -> bool:
        """A client has come, which has these names (its id, its address): whether it is its turn at once."""
        if self._taken < SLICE and not len(self):
            self._taken += 1
            return True
        (self._sick if self.is_sick(names, now_us) else self._well).append(token)
        return False

    def turn(self) -> list[T]:
        """A turn begins: those that are let in now."""
        self._taken = 0
        found: list[T] = []
        sick = min(len(self._sick), max(SICK_SHARE, SLICE - len(self._well)))
        while self._well and len(found) < SLICE - sick:
            found.append(self._well.popleft())
        while self._sick and len(found) < SLICE:
            found.append(self._sick.popleft())
        self._taken = len(found)
        return found

    # ── who is sick ─────────────────────────────────────────────────────────────────────────────────────────

    def fault(self, name: str, now_us: int) -> None:
        """A client, or an address, was refused, failed its handshake, or came and went."""
        if not name:
            return
        count, at_us = self._faults.pop(name, (0, now_us))
        self._faults[name] = (count + 1 if now_us - at_us < FORGIVEN_US else 1, now_us)
        if len(self._faults) > REMEMBERED_MAX:
            del self._faults[next(iter(self._faults))]

    def is_sick(self, names: tuple[str, ...], now_us: int) -> bool:
        for name in names:
            count, at_us = self._faults.get(name, (0, 0))
            if count >= FAULTS_MAX and now_us - at_us < FORGIVEN_US:
                return True
        return False
