"""When each client came to this broker, so that late news of it being elsewhere does no harm.

A client id is one over the whole network. A broker announces a client that comes to it, and any other broker that has
the client lets it go. But the announcement may be slower than the client: a client that moves on at once arrives before
it, and would be disconnected for an *earlier* stay. So an announcement carries the wall-clock time of the arrival, and
a broker that has had the client since keeps it.

Clocks of machines differ. So that is a hybrid logical clock (``ArrivalClock``): no broker gives a time before one of
which another has told it, and a client that moves on has come later, whatever the clocks say. If the word does not come
before the client does, the clocks decide. If the word's is behind, an old connection stays until its keep-alive is
over, or until its session is written elsewhere with a larger epoch; if it is ahead, a client may have to come again.
Who may write a session is decided by its epoch, and not by this.
"""

from __future__ import annotations

from typing import Final

LATEST_US: Final = 1 << 53  # in the year 2255: whoever tells of a later time is wrong
STEP_US: Final = 2  # between two times that one clock gives: others use the number between them


class ArrivalClock:
    """Gives the times at which clients come to one broker: each later than all before, here and as others told."""

    __slots__ = ("_last_us",)

    def __init__(self) -> None:
        self._last_us = 0  # the latest time that was given here, or heard of

    def next(self, wall_us: int) -> int:
        """A client comes now, by the clock on the wall."""
        self._last_us = max(self._last_us + STEP_US, wall_us)
        return self._last_us

    def heard(self, came_us: int) -> None:
        """Another broker says that a client came to it then."""
        if came_us <= LATEST_US:
            self._last_us = max(self._last_us, came_us)


class ArrivalTimes:
    """The clients of one broker."""

    __slots__ = ("_came_us",)

    def __init__(self) -> None:
        self._came_us: dict[str, int] = {}

    def came(self, client: str, now_us: int) -> None:
        self._came_us[client] = now_us

    def went(self, client: str) -> None:
        self._came_us.pop(client, None)

    def came_us(self, client: str) -> int:
        """When a client came here; 0 if it did not."""
        return self._came_us.get(client, 0)

    def since(self, client: str, came_us: int) -> bool:
        """Whether a client has come here after it came elsewhere, at that time."""
        return self._came_us.get(client, came_us) > came_us
