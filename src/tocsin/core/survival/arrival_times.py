"""When each client came to this broker, so that late news of it being elsewhere does no harm.

A client id is one over the whole network. A broker to which a client comes says so, and whoever else has the client
lets it go. But the word may take longer than the client: one that moves on at once is there before it, and would be
thrown out for having been somewhere *before*. So a word says when the client came, by the clock on the wall, and who
has had it since keeps it.

Clocks of machines differ. If the word's is behind, an old connection stays until its keep-alive is over, or until its
session is written elsewhere with a larger epoch; if it is ahead, a client may have to come again. Nothing else depends
on it: who may write a session is decided by its epoch.
"""

from __future__ import annotations


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
