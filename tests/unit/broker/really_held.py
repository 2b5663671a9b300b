"""What a broker and a coordinator really hold: measured where it lies, whatever any account says of it.

``Held.by_kind`` looks into the places that each budget is for, which takes a moment, and finds a bound that is broken
soon. ``Held.total`` walks over every object that can be reached from the broker, as the garbage collector does: it
finds what is kept anywhere, also where nobody would look. What the store in memory has is not the broker's.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import types
from collections.abc import Iterable
from typing import Any, Final

from tests.unit.broker.harness import Door
from tests.unit.broker.spenders import HeldLog
from tocsin.core.budgets.budget import Kind
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.ports import Record

# Of everybody: whoever refers to one of these refers to all of the process, or is the process's own.
SHARED: Final = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType, asyncio.AbstractEventLoop)


def reached(roots: Iterable[object], seen: set[int]) -> int:
    """The bytes of all objects that can be reached, but for those that were seen; they are from now on."""
    waiting, size = list(roots), 0
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, SHARED):
            continue
        seen.add(id(item))
        size += sys.getsizeof(item)
        if isinstance(item, types.FunctionType):
            waiting.extend(item.__closure__ or ())  # and not its module
        else:
            waiting.extend(gc.get_referents(item))
    return size


class Held:
    """The broker behind a door, the coordinator, and the log that is between them and the messages."""

    def __init__(self, door: Door, coordinator: Coordinator, log: HeldLog) -> None:
        self._door = door
        self._coordinator = coordinator
        self._log = log
        self._others = asyncio.all_tasks() - {door._running}  # the test's own, and the coordinator's shell
        self._at_rest = self._reached()

    def total(self) -> int:
        """The bytes of everything, less what there was at the beginning."""
        return self._reached() - self._at_rest

    def _reached(self) -> int:
        server: Any = self._door.store.server
        cells = [*server.logs.values(), *server.tables.values()]
        seen = {id(each) for each in (self._door.store, server, *cells)}
        reached([each.state for each in cells], seen)
        tasks = asyncio.all_tasks() - self._others
        seen.update(map(id, self._others))
        return reached([self._door.parts, self._door.participant, self._coordinator, *tasks], seen)

    def said(self) -> int:
        """The bytes of what the coordinator knows of streams and queries."""
        replica = self._coordinator.replica
        return reached([replica.presence, replica.matching], set())

    def by_kind(self) -> dict[Kind, int]:
        """The bytes that lie in the broker, by what for."""
        parts = self._door.parts
        connections: list[Any] = list(self._door.listener._connections)
        queue = parts.message_log._queue
        wills: Any = [each.will.publication.payload for each in parts.wills._machine._wills.values()]
        wills += [each._session.will.payload for each in connections if each._session.will is not None]
        left = {id(each): len(each) for each in wills}  # one that changes hands is still one
        groups: list[Any] = list(parts.groups.local.values())
        return {
            Kind.OUTBOUND: sum(each for each in self.unread()),
            Kind.COMMITS: sum(_waiting(each, commits=True) for each in connections)
            + sum(len(each[0].payload) for each in (*queue._waiting, *queue._batch) if not _is_will(each[0])),
            Kind.HELD: sum(_waiting(each, commits=False) for each in connections),
            Kind.PACKETS: sum(each._decoder.held_bytes for each in connections),
            Kind.PAGES: self._log.on_its_way,
            Kind.SESSIONS: sum(left.values()) + sum(_subscribed(each) for each in connections),
            Kind.GROUPS: sum(len(each.entry.payload) for group in groups for each in group._machine._backlog),
        }

    def clients(self) -> int:
        """How many have come in."""
        return sum(bool(each.client_id) for each in self._door.listener._connections)

    def unread(self) -> list[int]:
        """What each client has not read."""
        connections: list[Any] = list(self._door.listener._connections)
        return [
            each._transport.get_write_buffer_size() for each in connections if each._transport is not None
        ]

    def retained(self) -> int:
        return sum(len(each.publication.payload) for each in self._door.parts.retained.matching("#"))


def _waiting(connection: Any, *, commits: bool) -> int:
    """The payloads that wait until their stream is known; ``commits``: those that go to the log then, or the others."""
    publisher = connection._publisher
    return (
        0
        if publisher is None
        else sum(each.size for each in publisher._gate._held if each.commits is commits)
    )


def _is_will(record: Record) -> bool:
    """Whether a record is a will: it counts with those that wait."""
    return record.subject.endswith(".will")


def _subscribed(connection: Any) -> int:
    """The texts of what a client subscribed to."""
    return sum(map(len, connection.delivery.subscriptions))
