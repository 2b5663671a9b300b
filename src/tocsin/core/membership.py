"""Who is in the network and what they want: the broker's side of the talk with the coordinator.

A ``Member`` tells the coordinator what its clients are interested in and applies the routes that come back.
It works with a bus that loses, repeats and reorders: its heartbeat carries the number of its interests and of
its routes, and either side answers a number it did not expect with (or asks for) the whole state. The
coordinator's side is ``core.registry``.

States: ``new`` → ``joining`` (no routes yet) → ``member`` → ``left``. In ``member`` the routes are kept and
used however long the coordinator stays silent: existing traffic never depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

import msgspec

from tocsin.core.machine import (
    Effect,
    Event,
    Handler,
    Received,
    Send,
    SetTimer,
    Started,
    TableMachine,
    TimerFired,
)
from tocsin.core.parts import Assembly, split
from tocsin.model.message import COORDINATOR
from tocsin.model.network import BrokerInfo, Route, RoutesVersion
from tocsin.wire.control import Heartbeat, Interests, Leave, Resync, Routes

COALESCE_US = 2_000  # how long interests gather before they are told: a burst of subscriptions is one message
HEARTBEAT = "heartbeat"
TELL = "tell"


class InterestsChanged(Event, frozen=True, kw_only=True):
    """The first local subscriber of a filter came, or the last one went."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Leaving(Event, frozen=True, kw_only=True):
    """The broker stops on purpose."""


class RoutesChanged(Effect, frozen=True, kw_only=True):
    """Change the forwarding table, and have a link to each peer and to nobody else."""

    added: tuple[Route, ...]
    removed: tuple[Route, ...]
    peers: tuple[BrokerInfo, ...]


class Member(TableMachine):
    """One broker's membership."""

    def __init__(self, info: BrokerInfo, heartbeat_us: int) -> None:
        self._info = info
        self._heartbeat_us = heartbeat_us
        self._incarnation = 0
        self._interests: dict[str, None] = {}  # what the clients want now, oldest first
        self._version = 0  # of the interests as last told
        self._added: dict[str, None] = {}  # wanted, not yet told
        self._removed: dict[str, None] = {}  # told, no longer wanted
        self._telling = False  # the TELL timer runs
        self._assembly: Assembly[Routes] = Assembly()
        self._peers: dict[str, BrokerInfo] = {}
        self.routes: dict[Route, None] = {}  # what the forwarding table holds, oldest first
        self.routes_version = RoutesVersion()

    @property
    def interests(self) -> Collection[str]:
        """What the broker's clients want now."""
        return self._interests.keys()

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self._incarnation = event.incarnation
        self.state = "joining"
        return [*self._tell_all(event.cause), *self._beat(event.cause)]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == HEARTBEAT:
            return self._beat(event.cause)
        self._telling = False
        return self._tell(event.cause)

    def _beat(self, cause: str) -> list[Effect]:
        beat = Heartbeat(self._info.id, self._incarnation, self._version, self.routes_version)
        return [
            Send(cause=cause, to=COORDINATOR, message=beat),
            SetTimer(cause=cause, name=HEARTBEAT, delay_us=self._heartbeat_us),
        ]

    # ── interests ───────────────────────────────────────────────────────────────────────────────────────────

    def _on_interests(self, event: InterestsChanged, now_us: int) -> list[Effect]:
        for topic_filter in event.added:
            if topic_filter not in self._interests:
                self._interests[topic_filter] = None
                if topic_filter in self._removed:
                    del self._removed[topic_filter]
                else:
                    self._added[topic_filter] = None
        for topic_filter in event.removed:
            if topic_filter in self._interests:
                del self._interests[topic_filter]
                if topic_filter in self._added:
                    del self._added[topic_filter]
                else:
                    self._removed[topic_filter] = None
        if self._telling or self.state == "new":
            return []
        self._telling = True
        return [SetTimer(cause=event.cause, name=TELL, delay_us=COALESCE_US)]

    def _tell(self, cause: str) -> list[Effect]:
        if not self._added and not self._removed:
            return []
        base, self._version = self._version, self._version + 1
        return self._send_interests(cause, base, self._added, self._removed)

    def _tell_all(self, cause: str) -> list[Effect]:
        self._version += 1
        return self._send_interests(cause, 0, self._interests, ())

    def _send_interests(
        self, cause: str, base: int, added: Iterable[str], removed: Iterable[str]
    ) -> list[Effect]:
        changes = [*((each, True) for each in added), *((each, False) for each in removed)]
        runs = split(changes, lambda change: len(change[0]) * 4 + 8)  # at most four bytes a character
        self._added, self._removed = {}, {}
        return [
            Send(
                cause=cause,
                to=COORDINATOR,
                message=Interests(
                    info=self._info,
                    incarnation=self._incarnation,
                    base=base,
                    version=self._version,
                    added=tuple(each for each, wanted in run if wanted),
                    removed=tuple(each for each, wanted in run if not wanted),
                    part=part,
                    parts=len(runs),
                ),
            )
            for part, run in enumerate(runs)
        ]

    # ── what the coordinator says ───────────────────────────────────────────────────────────────────────────

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        message = event.message
        if isinstance(message, Resync):
            return self._tell_all(event.cause)
        if isinstance(message, Routes):
            return self._take_routes(event.cause, message)
        return []

    def _take_routes(self, cause: str, message: Routes) -> list[Effect]:
        mine, theirs = self.routes_version, message.version
        if message.base:
            fits = mine == msgspec.structs.replace(theirs, number=message.base)
        else:
            fits = mine.incarnation != theirs.incarnation or mine.number < theirs.number
        if not fits:
            return []  # late, or built on something that did not arrive; the next heartbeat says what we have
        parts = self._assembly.add((theirs, message.base), message)
        if parts is None:
            return []
        added = [route for part in parts for route in part.added]
        removed = [route for part in parts for route in part.removed]
        if not message.base:
            whole = dict.fromkeys(added)
            added = [route for route in whole if route not in self.routes]
            removed = [route for route in self.routes if route not in whole]
            self._peers = {}
        for part in parts:
            self._peers.update((peer.id, peer) for peer in part.peers)
        self.routes.update(dict.fromkeys(added))
        for route in removed:
            self.routes.pop(route, None)
        self.routes_version = theirs
        self.state = "member"
        needed = {route.peer for route in self.routes}
        self._peers = {peer: info for peer, info in self._peers.items() if peer in needed}
        return [
            RoutesChanged(
                cause=cause,
                added=tuple(added),
                removed=tuple(removed),
                peers=tuple(self._peers.values()),
            )
        ]

    def _leave(self, event: Leaving, now_us: int) -> list[Effect]:
        self.state = "left"
        return [Send(cause=event.cause, to=COORDINATOR, message=Leave(self._info.id, self._incarnation))]

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[dict[tuple[str, type[Event]], Handler]] = {
        ("new", Started): _start,
        ("new", InterestsChanged): _on_interests,
        ("joining", TimerFired): _on_timer,
        ("joining", InterestsChanged): _on_interests,
        ("joining", Received): _on_message,
        ("joining", Leaving): _leave,
        ("member", TimerFired): _on_timer,
        ("member", InterestsChanged): _on_interests,
        ("member", Received): _on_message,
        ("member", Leaving): _leave,
        ("left", TimerFired): _ignore,
        ("left", InterestsChanged): _ignore,
        ("left", Received): _ignore,
        ("left", Leaving): _ignore,
    }
