"""Bridges of mosquitto: clients that say of themselves whether they are connected, on a topic of the broker.

A bridge publishes 1 on ``$SYS/broker/connection/ID/state`` when it has connected, and leaves a will of 0 there (its
*notifications*). It may do so for its own client id and for no other. The will is no message of ours: a broker says 0
by itself when the bridge has gone, in whatever way.

A broker remembers BRIDGES_MAX of them. One more takes the place of the one that has been gone longest, whose topic is
cleared; while all are connected it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

PREFIX: Final = "$SYS/broker/connection/"
SUFFIX: Final = "/state"
UP: Final = b"1"
DOWN: Final = b"0"
CLEARED: Final = b""
BRIDGES_MAX: Final = 100


def state_topic(client_id: str) -> str:
    """Where a bridge with this client id says whether it is connected."""
    return f"{PREFIX}{client_id}{SUFFIX}"


def is_state_topic(topic: str) -> bool:
    """Whether a bridge says there whether it is connected."""
    return topic.startswith(PREFIX) and topic.endswith(SUFFIX)


class Bridges:
    """The bridges that have said something to one broker."""

    __slots__ = ("_up",)

    def __init__(self) -> None:
        self._up: dict[str, bool] = {}  # client id → whether it is connected; who changed last comes last

    def said(self, client_id: str, payload: bytes) -> list[tuple[str, bytes]] | None:
        """What to publish, by topic, when a bridge says this; None: it is refused."""
        if payload not in (UP, DOWN):
            return None
        cleared = list(self._make_room(client_id))
        if client_id not in self._up and len(self._up) >= BRIDGES_MAX:
            return None
        self._note(client_id, payload == UP)
        return [*cleared, (state_topic(client_id), payload)]

    def went(self, client_id: str) -> list[tuple[str, bytes]]:
        """What to publish when a client has gone."""
        if not self._up.get(client_id):
            return []
        self._note(client_id, False)
        return [(state_topic(client_id), DOWN)]

    def _note(self, client_id: str, up: bool) -> None:
        self._up.pop(client_id, None)
        self._up[client_id] = up

    def _make_room(self, client_id: str) -> Iterator[tuple[str, bytes]]:
        if client_id in self._up or len(self._up) < BRIDGES_MAX:
            return
        gone = next((each for each, up in self._up.items() if not up), None)
        if gone is not None:
            del self._up[gone]
            yield state_topic(gone), CLEARED
