"""Moving frames to many outlets with few writes.

The messages of a tick of the event loop are gathered and sent at its end: encoded once for a **group** of outlets
that get the same messages, and written once to each outlet. If only one group has something (a burst on one
topic, or on many topics with the same subscribers), or no outlet is in two of them, the frames of each are joined once
for its members. Otherwise each outlet gets the frames of the groups that it is in, in the order in which they came;
outlets that are in the same groups share the joined bytes.

Cost of a flush: one write per outlet that has something, one look-up per (group, member), and one join for each
distinct combination of groups.

**Past the transports.** A delivery is mostly the kernel's work; what a transport does around it is most of the rest.
While nothing waits in a transport, and it makes no other bytes of what it is given, the socket's **descriptor** may be
written to as well: both ways end in the same ``write``, at once, so that order is kept. Bytes that the kernel does not
take, as its buffer is full or the connection is broken, go to the transport, which finds out which of the two it is.

A descriptor is a number that the kernel reuses for the next socket. A holder must drop it before ``connection_lost``
returns: transports close their sockets after that, and not before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

NOWHERE: Final = -1  # the descriptor of an outlet that can be written to through its transport only
# Gathered before a flush is made at once: a bound on memory, above any useful write.
FLUSH_BYTES: Final = 256 << 10
# Joined combinations kept during one flush, so that many different ones do not pile up.
SHARED_MAX: Final = 64


class SocketSink(Protocol):
    """Something with a descriptor."""

    def spill(self, data: bytes) -> None:
        """Send these bytes, which the descriptor did not take, before any others. Never raises."""
        ...


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """Where bytes can be written as they are; NOWHERE if the transport makes others of them: TLS, WebSocket."""
    if transport.get_extra_info("ssl_object") is not None:
        return NOWHERE
    found = transport.get_extra_info("socket")
    return NOWHERE if found is None else int(found.fileno())


def write(descriptor: int, spout: SocketSink, data: bytes) -> None:
    """Write to one."""
    try:
        sent = os.write(descriptor, data)
    except OSError:
        sent = 0
    if sent < len(data):
        spout.spill(data[sent:])


def write_each(spouts: Mapping[int, SocketSink], data: bytes) -> None:
    """Write the same to all of them. The hot loop: nothing but the call and a comparison for each."""
    call, size, remaining = os.write, len(data), iter(spouts)
    while True:
        sent = 0
        try:
            for descriptor in remaining:
                sent = call(descriptor, data)
                if sent != size:
                    break
            else:
                return
        except OSError:
            sent = 0
        spouts[descriptor].spill(data[sent:])


class Outlet(SocketSink, Protocol):
    """Something that takes frames: a client's connection or a link."""

    def __hash__(self) -> int: ...

    @property
    def group(self) -> OutletSet:
        """The group of this outlet alone."""
        ...

    @property
    def send_max_bytes(self) -> int:
        """The largest frame that it takes."""
        ...

    @property
    def descriptor(self) -> int:
        """Where bytes for it may be written just now; NOWHERE: through ``deliver`` only."""
        ...

    def aliased(self, frame: bytes) -> bytes:
        """The same message for this outlet, with a topic alias if it takes those."""
        ...

    def deliver(self, data: bytes, messages: int) -> None:
        """Send these bytes, which are so many whole messages, or drop and count them. Never raises, never waits."""
        ...


_NOBODY: Final[Mapping[int, Outlet]] = {}


class OutletSet:
    """Outlets that get the same bytes, and what this tick has for them so far."""

    __slots__ = ("_as_of", "_direct", "_others", "frames", "members", "messages")

    def __init__(self, *members: Outlet) -> None:
        self.members = members
        self.frames: list[tuple[int, bytes]] = []  # (number of the message, its frame)
        self.messages = 0  # in those frames: one may hold several
        self._as_of = -1  # the number of changes when the next two were found
        self._direct: Mapping[int, Outlet] = _NOBODY  # members by descriptor
        self._others: Sequence[Outlet] = ()  # members without one

    def send(self, data: bytes, messages: int, changes: int) -> None:
        """Write the same to every member. ``changes`` is how often any outlet's descriptor has changed."""
        if self._as_of != changes:
            self._as_of = changes
            self._direct = {each.descriptor: each for each in self.members if each.descriptor != NOWHERE}
            self._others = [each for each in self.members if each.descriptor == NOWHERE]
        write_each(self._direct, data)
        for outlet in self._others:
            outlet.deliver(data, messages)


class Outbox:
    """The frames that wait for the end of the tick. Call ``begin`` once a message, then ``add`` for each group that
    gets it.
    """

    def __init__(self, at_end_of_tick: Callable[[Callable[[], None]], object]) -> None:
        self._at_end_of_tick = at_end_of_tick
        self._active: list[OutletSet] = []  # groups with frames, in the order of their first
        self._number = 0
        self._bytes = 0
        self._scheduled = False
        self._changes = 0  # of any outlet's descriptor
        self.flushes = 0  # that were begun

    def outlet_changed(self) -> None:
        """An outlet has another descriptor than before, or none. To be said before it can be another outlet's."""
        self._changes += 1

    def begin(self) -> None:
        """A new message: what is added from now on comes after everything before."""
        self._number += 1
        if self._bytes > FLUSH_BYTES:
            self.flush()

    def add(self, group: OutletSet, frame: bytes, messages: int = 1) -> None:
        if not group.frames:
            self._active.append(group)
            if not self._scheduled:
                self._scheduled = True
                self._at_end_of_tick(self._end_of_tick)
        group.frames.append((self._number, frame))
        group.messages += messages
        self._bytes += len(frame)

    def _end_of_tick(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write everything that was added."""
        active, self._active, self._bytes = self._active, [], 0
        self.flushes += 1
        gathered: list[_Gathered] = []
        for group in active:
            gathered.append((group, group.frames, group.messages))
            group.frames, group.messages = [], 0
        if not _overlap(active):
            for group, frames, messages in gathered:
                group.send(_joined(frames), messages, self._changes)
        else:
            _deliver_mixed(gathered)


_Gathered = tuple[
    OutletSet, list[tuple[int, bytes]], int
]  # a group, its frames, and how many messages they are


def _overlap(groups: list[OutletSet]) -> bool:
    """Whether an outlet is in two of them."""
    if len(groups) < 2:
        return False
    members = [group.members for group in groups]
    return len(set().union(*members)) < sum(map(len, members))


def _deliver_mixed(gathered: list[_Gathered]) -> None:
    alone: dict[Outlet, int] = {}  # outlet → the first of the gathered groups that it is in
    several: dict[Outlet, list[int]] = {}  # outlet → all of them, if they are more than one
    for index, (group, _, _) in enumerate(gathered):
        for outlet in group.members:
            first = alone.setdefault(outlet, index)
            if first != index:
                if outlet in several:
                    several[outlet].append(index)
                else:
                    several[outlet] = [first, index]
    shared: dict[int | tuple[int, ...], tuple[bytes, int]] = {}
    for outlet, first in alone.items():
        indices = several.get(outlet) if several else None
        key = first if indices is None else tuple(indices)
        batch = shared.get(key)
        if batch is None:
            if indices is None:
                frames, messages = gathered[first][1:]
            else:
                # Numbers differ within one outlet's holdings, so that frames are never compared.
                frames = sorted(entry for index in indices for entry in gathered[index][1])
                messages = sum(gathered[index][2] for index in indices)
            if len(shared) >= SHARED_MAX:
                shared.clear()
            batch = shared[key] = (_joined(frames), messages)
        outlet.deliver(*batch)


def _joined(frames: list[tuple[int, bytes]]) -> bytes:
    return frames[0][1] if len(frames) == 1 else b"".join([frame for _, frame in frames])
