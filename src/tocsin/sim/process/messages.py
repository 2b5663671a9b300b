"""Promises about the messages of the log that several scenarios make: once at QoS 2, durable, and in order.

A message is known by its publisher and number (``Key``). A scenario says how to read that from an entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tocsin.core.machine import Say
from tocsin.model.network import Address
from tocsin.model.publication import Publication, decode_publication
from tocsin.model.subjects import is_critical, said_reference
from tocsin.ports import Entry
from tocsin.sim.process.packets import Key
from tocsin.sim.process.stage import LOG
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.world import World

IsDue = Callable[[Address, int, str], bool]  # whether a position and its topic are somebody's due


def key_in(say: Say) -> Key:
    return cast(Key, say.facts["key"])


class Written(Invariant):
    """Notes the log's messages. A message at QoS 2 is in the log once."""

    name = "a message at QoS 2 is in the log once"

    def __init__(self, key_of: Callable[[Publication], Key]) -> None:
        self._key_of = key_of
        self.entries: list[tuple[int, Key, str, int]] = []  # position, message, topic, QoS
        self.topics: dict[Key, str] = {}
        self.copies: dict[Key, int] = {}
        self.first: dict[Key, int] = {}  # message → its first position
        self.critical: dict[Key, None] = {}

    def attach(self, world: World) -> None:
        world.observers.on_entry(LOG.name, self._look)

    def end(self, world: World) -> int:
        """The newest position."""
        return world.store.logs[LOG.name].last_position

    def _look(self, entry: Entry) -> None:
        if said_reference(entry.subject) is not None:
            return
        publication = decode_publication(entry.payload)
        key = self._key_of(publication)
        if publication.qos == 2 and key in self.copies:
            self.broken(f"message {key} is at {self.first[key]} and at {entry.position}")
        self.copies[key] = self.copies.get(key, 0) + 1
        self.first.setdefault(key, entry.position)
        self.topics[key] = publication.topic
        if is_critical(entry.subject):
            self.critical[key] = None
        self.entries.append((entry.position, key, publication.topic, publication.qos))


class AcknowledgedIsDurable(Invariant):
    """A publisher that was told so can forget its message."""

    name = "what is acknowledged is in the log"

    def __init__(self, written: Written) -> None:
        self._written = written

    def attach(self, world: World) -> None:
        world.observers.on_say("acknowledged", self._look)

    def _look(self, publisher: Address, say: Say) -> None:
        if key_in(say) not in self._written.copies:
            self.broken(f"{publisher} was told so of message {key_in(say)}; the log does not have it")


class Receipts:
    """The messages that came to clients: on one connection nothing twice, and what is due in the order of the log.

    The order is that of critical messages, and that of the others. ``broken`` is told what is wrong.
    """

    def __init__(self, written: Written, is_due: IsDue, broken: Callable[[str], None]) -> None:
        self._written = written
        self._is_due = is_due
        self._broken = broken
        self._seen: dict[tuple[Address, Key], None] = {}
        # Client, critical or not → the first position of the newest such message that was new to it.
        self._last: dict[tuple[Address, bool], int] = {}
        self._on_connection: dict[Address, tuple[object, dict[Key, int]]] = {}

    def has(self, who: Address, key: Key) -> bool:
        return (who, key) in self._seen

    def take(self, who: Address, say: Say) -> None:
        """A message came to a client, over one of its connections."""
        key = key_in(say)
        connection, counts = self._on_connection.get(who, (None, {}))
        if connection != say.facts["connection"]:
            counts = {}
            self._on_connection[who] = (say.facts["connection"], counts)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > self._written.copies.get(key, 0):
            self._broken(f"{who} got message {key} again on one connection")
        if (who, key) not in self._seen:
            self._seen[who, key] = None
            self._keep_order(who, key)

    def _keep_order(self, who: Address, key: Key) -> None:
        position, track = self._written.first[key], (who, key in self._written.critical)
        if not self._is_due(who, position, self._written.topics[key]):
            return  # from before it subscribed, or perhaps so: a repeat of it may have come later
        if position < self._last.get(track, 0):
            self._broken(f"{who} got message {key} of position {position} after {self._last[track]}")
        self._last[track] = position
