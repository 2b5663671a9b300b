"""Watchers: connections of clients at another broker, which want to be told at once when that broker is lost.

A client knows by itself that its broker has closed the connection. It does not know that its broker is frozen, or
without power: then it waits for its keep-alive. REAPS (section V-A) gives each subscriber a second connection, to the
coordination service, for this. Here it goes to another broker, the first of those to which the client would go: every
broker hears of every loss from the leader.

A **watch connection** is an MQTT 5 connection with ``PROPERTY_WATCH`` in its CONNECT: the id of the broker that the
client is at. It has no session and no will, takes no part in the network and may say nothing but PINGREQ. The CONNACK
answers with the same property: LOST or THERE. Later the broker sends ``LOST_TOPIC`` or ``BACK_TOPIC``, at QoS 0, with
the id as payload.

A broker counts as lost while the leader says so, or while this broker stands in for it in a cluster that is cut off
(``core.survival.landmark``). Either may be wrong: the client asks its broker for a sign of life before it leaves
(``core.links.dialler``).

Costs: a loss costs its watchers, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Final, Generic, TypeVar

LOST_TOPIC: Final = "$home/lost"  # broker → watcher: the broker that it watches is lost
BACK_TOPIC: Final = "$home/back"  # … or counts as lost no longer
LOST: Final = "lost"
THERE: Final = "there"

Watcher = TypeVar("Watcher", bound=Hashable)


class Watchers(Generic[Watcher]):
    """The watch connections of one broker, and the brokers that it knows to be lost."""

    def __init__(self) -> None:
        self._told: frozenset[str] = frozenset()  # lost, as the leader says
        self._meanwhile: frozenset[str] = frozenset()  # lost, as the own cluster says while it is cut off
        self._of: dict[str, dict[Watcher, None]] = {}  # by broker; never empty
        self._watches: dict[Watcher, str] = {}

    def __len__(self) -> int:
        return len(self._watches)

    @property
    def lost(self) -> frozenset[str]:
        """The brokers that count as lost."""
        return self._told | self._meanwhile

    def came(self, watcher: Watcher, broker: str) -> str:
        """A connection watches a broker from now on; how it is with that."""
        self.went(watcher)
        self._watches[watcher] = broker
        self._of.setdefault(broker, {})[watcher] = None
        return LOST if broker in self.lost else THERE

    def went(self, watcher: Watcher) -> None:
        """A connection is over, of a watcher or not."""
        broker = self._watches.pop(watcher, None)
        if broker is None:
            return
        del self._of[broker][watcher]
        if not self._of[broker]:
            del self._of[broker]

    def told(self, lost: Collection[str]) -> list[tuple[str, str, tuple[Watcher, ...]]]:
        """These are lost, as the leader says: the brokers for which that is news, the topic, and whom to tell."""
        before, self._told = self.lost, frozenset(lost)
        return self._news(before)

    def meanwhile(self, broker: str, *, lost: bool) -> list[tuple[str, str, tuple[Watcher, ...]]]:
        """This broker stands in for another until a leader is heard, or no longer."""
        before = self.lost
        self._meanwhile = self._meanwhile | {broker} if lost else self._meanwhile - {broker}
        return self._news(before)

    def _news(self, before: frozenset[str]) -> list[tuple[str, str, tuple[Watcher, ...]]]:
        return [
            *self._changed(self.lost - before, LOST_TOPIC),
            *self._changed(before - self.lost, BACK_TOPIC),
        ]

    def _changed(self, brokers: Iterable[str], topic: str) -> Iterable[tuple[str, str, tuple[Watcher, ...]]]:
        return ((each, topic, tuple(self._of.get(each, ()))) for each in sorted(brokers))
