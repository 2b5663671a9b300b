"""Watch connections: the clients of an event loop that are at one broker share one (``core.links.watch``).

A client joins when a broker has accepted it and has named others to go to, and leaves when it is at another broker or
closed. The connection is made WAIT_S to twice that later: programs that publish one message and end cost no second
connection, and clients that come in a crowd do not come twice at once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import msgspec
from mqtt5 import ConnAckPacket, Packet

from tocsin.core.links import watch
from tocsin.core.links.signals import Down, Heard
from tocsin.core.machine import Effect
from tocsin.runtime.machines.clock import random_bits
from tocsin.runtime.machines.line import Endpoint, Line
from tocsin.runtime.machines.shell import Shell

WAIT_S: Final = 1.0
WATCHES_MAX: Final = 64  # watch connections of one event loop; clients at further brokers go without


class Watched(msgspec.Struct, frozen=True):
    """A broker, and as whom a client watches it: clients with the same share a connection."""

    broker: str
    username: str | None
    password: bytes | None
    tls: ssl.SSLContext | None  # the client's own; None: the usual one, or none
    secure: bool
    web: bool


class Member(Protocol):
    """A client that is at the watched broker."""

    client_id: str

    def alarm(self, broker: str) -> None:
        """The network counts that broker as lost."""
        ...


class _Watch:
    """One watch connection, and the clients for which it is made."""

    def __init__(self, watched: Watched, how: Endpoint, client_id: str, ended: Callable[[], None]) -> None:
        self.watched = watched
        self._how = how
        self.members: dict[Member, None] = {}
        self._servers: tuple[tuple[str, int], ...] = ()
        self._client_id = client_id
        self._ended = ended
        self._cause = f"watch {watched.broker}"
        self._machine = watch.Watch(watched.broker)
        self._shell = Shell(self._machine, self._carry_out, lambda error: ended())
        self._line: Line | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def up(self) -> bool:
        return self._machine.state in (watch.WatchState.THERE, watch.WatchState.LOST)

    def add(self, member: Member, servers: tuple[tuple[str, int], ...]) -> None:
        self.members[member] = None
        if not self._servers or self._servers[0] not in servers:  # every broker hears of losses: any will do
            self._servers = servers
            self._call_later()
        self._shell.post(watch.Joined(cause=self._cause))

    def _call_later(self) -> None:
        """Dial these servers, in a while. A connection to others ends."""
        self._hang_up()
        wait_s = WAIT_S * (1 + random_bits(10) / 1_024)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._call)

    def _call(self) -> None:
        watched = self.watched
        places = [msgspec.structs.replace(self._how, host=host, port=port) for host, port in self._servers]
        hello = watch.greeting(self._client_id, watched.broker, watched.username, watched.password)
        self._line = Line(places, hello, self, redial=True, packet_max_bytes=watch.PACKET_MAX_BYTES)
        self._line.open()

    def _hang_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line is not None:
            self._line.close()
            self._line = None
        self._shell.post(watch.Hung(cause=self._cause))

    def close(self) -> None:
        self._hang_up()
        self._shell.close()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case watch.Alarm():
                for member in tuple(self.members):
                    member.alarm(self.watched.broker)
            case watch.EndCall():
                if self._line is not None:
                    self._line.close()
                    self._line = None
            case watch.CallAgain():
                self._call()
            case _:
                self._shell.carry_out(effect)

    # ── what the line tells ─────────────────────────────────────────────────────────────────────────────────

    def line_up(self, answer: ConnAckPacket) -> None:
        self._shell.post(watch.Called(answer=answer, cause=self._cause))

    def line_down(self, down: Down) -> None:
        self._shell.post(watch.Hung(cause=self._cause))

    def line_heard(self, packet: Packet) -> None:
        self._shell.post(Heard(packet=packet, cause=self._cause))


class Watches:
    """The watch connections of one event loop."""

    def __init__(self) -> None:
        self._watches: dict[Watched, _Watch] = {}
        self._of: dict[Member, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def join(
        self, member: Member, watched: Watched, how: Endpoint, servers: tuple[tuple[str, int], ...]
    ) -> None:
        """A client is at a broker, and speaks to it like this; from there it would go to these servers. Harmless when
        repeated.
        """
        found = self._of.get(member)
        if found is not None and found.watched != watched:
            self.leave(member)
            found = None
        if found is None:
            found = self._watches.get(watched)
            if found is None and len(self._watches) < WATCHES_MAX:
                ended = partial(self._end, watched)
                found = self._watches[watched] = _Watch(watched, how, member.client_id, ended)
        if found is not None:
            self._of[member] = found
            found.add(member, servers)

    def leave(self, member: Member) -> None:
        """A client is there no longer. Harmless when repeated."""
        found = self._of.pop(member, None)
        if found is None:
            return
        found.members.pop(member, None)
        if not found.members:
            self._end(found.watched)

    def _end(self, watched: Watched) -> None:
        found = self._watches.pop(watched, None)
        if found is not None:
            for member in found.members:
                self._of.pop(member, None)
            found.close()

    def watches(self, member: Member) -> bool:
        """Whether the loss of the client's broker would be told now."""
        found = self._of.get(member)
        return found is not None and found.up


_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, Watches] = WeakKeyDictionary()


def watches() -> Watches:
    """Those of the running loop."""
    return _OF_LOOPS.setdefault(asyncio.get_running_loop(), Watches())
