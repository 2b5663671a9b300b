"""Γ, the client state of a broker that its backups copy: clients, subscriptions and positions.

The broker has it in many places already (connections, attendances, sessions). So it is not kept a second time: a
**view** of it is read when something is sent. Clients that are away are part of it while their sessions last.

A backup has a ``Copy`` of it. A series brings it (``wire.internal.replication``). A newer series writes over what is
there, client by client, and drops what it did not repeat when it has said everything: until then the copy has the old
and the new, because the broker may fail in the middle of it. It is handed out client by client, as ``ClientSnapshot``.

Which subscriptions to channels and queries the clients have is counted, so that it is known when the first one of a
name comes and the last one goes: a local backup prepares these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import msgspec

from tocsin.core.budgets.budget import weight_of_publication
from tocsin.core.channels.channel_filter import ChannelFilter
from tocsin.core.filters import QueryFilter, filter_type
from tocsin.core.forwarding.table import Subscription
from tocsin.wire.internal.replication import Bequest, Delta, Head, Option, Positions, Role, Series

CLIENT_BYTES: Final = 600  # of a client in memory, beside its names and its will
NAME_BYTES: Final = 150  # of a subscription, beside its name
PREPARED: Final = (ChannelFilter, QueryFilter)


class CopiedState(Protocol):
    """A broker's client state as it is now. Reading changes nothing."""

    def clients(self) -> Iterable[str]: ...

    def head(self, client: str) -> Head | None:
        """None: there is no such client."""
        ...

    def names(self, client: str) -> Iterable[str]:
        """Its subscriptions."""
        ...

    def option(self, client: str, name: str) -> Option | None: ...

    def positions(self, client: str) -> Positions | None:
        """None: nothing is delivered to it by position."""
        ...

    def volume(self, client: str) -> int:
        """The bytes above QoS 0 that it was sent so far on its connection; 0 if it is away."""
        ...

    def void(self, client: str) -> str:
        """The id of its newest will that was settled here lately; empty: there is none."""
        ...

    def voided(self) -> Iterable[str]:
        """The clients that have one."""
        ...


class ClientSnapshot(msgspec.Struct, frozen=True):
    """One client, as a backup knows it."""

    client: str
    head: Head
    subscriptions: dict[str, Subscription]
    positions: Positions
    since_us: int = 0  # when the backup heard that it is there


class Left(msgspec.Struct, frozen=True):
    """A will of a client that a broker's process had, and the next one has not."""

    client: str
    will: Bequest
    since_us: int  # when the backup heard that the client is there


def option_of(subscription: Subscription) -> Option:
    return Option(*msgspec.structs.astuple(subscription))


def subscription_of(option: Option) -> Subscription:
    return Subscription(*msgspec.structs.astuple(option))


class Replica:
    """One client in a backup's copy."""

    __slots__ = ("head", "positions", "series", "since_us", "subscriptions")

    def __init__(self, series: Series, head: Head, since_us: int) -> None:
        self.series = series  # that said it last as a whole
        self.since_us = since_us  # when its arrival was reported
        self.head = head
        self.subscriptions: dict[str, Option] = {}
        self.positions = Positions()


class Copy:
    """A backup's copy of one broker's clients."""

    def __init__(self, role: Role) -> None:
        self.role: Role = role
        self.series: Series = (0, 0, 0)
        self.number = 0  # everything of the series up to here is applied
        self.whole = False  # everything was sent once, in this series or an earlier one
        self.condemned_us: int | None = None  # when it is to be dropped
        self.kept = False  # it is needed, whatever the plan says
        self.used = False  # … or was, and nothing was heard since of a process in that place
        self._meanwhile = False  # … by a broker that published its wills at QoS 0, and put none into the log
        self.had: frozenset[str] = (
            frozenset()
        )  # the clients of the process that was lost last, until another copy is whole
        self._kept_us = 0  # when it was kept last …
        self._lost = -1  # … the process that was lost then …
        self.settled: set[str] = set()  # … and those of them whose wills it has settled since
        self._process: int | None = None  # the one of the last series that was whole
        self.bytes = 0  # about
        self.clients: dict[str, Replica] = {}
        self.prepared: dict[str, int] = {}  # subscriptions of PREPARED kinds → how many clients have them
        self.subscriptions = 0
        self.turned: set[str] = set()  # of these, those that nobody had, or has, since this was last emptied
        self.moved = False  # the role is another than when that was

    def begin(self, series: Series, role: Role) -> None:
        self.moved = self.moved or role != self.role
        self.series, self.number, self.role = series, 0, role

    @property
    def seen_to(self) -> bool:
        """Whether somebody has the wills in hand that were here when the copy was kept, those for the log, too."""
        return self.used and not self._meanwhile

    def keep(self, now_us: int, *, meanwhile: bool = False) -> None:
        """A backup stands in for the broker, and awaits its current clients; ``meanwhile``: it publishes their wills at
        QoS 0, but puts none into the log.
        """
        if self._lost != self.series[1]:
            self.settled, self._lost = set(), self.series[1]
        self.kept, self.used, self._kept_us, self._meanwhile = True, True, now_us, meanwhile
        self.had = frozenset(self.clients)

    def heard(self) -> None:
        """The broker goes on with the series that is known. If that is the process that was taken for lost, it was not:
        nobody stood in for what it has now."""
        if self.series[1] == self._process:
            self.used = self.kept

    def apply(self, delta: Delta, now_us: int) -> bool:
        """Apply a delta of a client; False if it makes no sense: something before it is missing."""
        if delta == Delta(delta.client, void=delta.void):
            return True  # nothing, but that a will of it is settled
        if delta.gone or delta.head is not None:
            self._settle(delta.client, None if delta.head is None else delta.head.will)
        if delta.gone:
            self._drop(delta.client)
            return True
        if delta.begin:
            before = self._drop(delta.client)
            if delta.head is None:
                return False
            known = before is not None and before.series[1] == self.series[1] and before.head == delta.head
            since_us = before.since_us if before is not None and known else now_us  # said once more, or new
            self.clients[delta.client] = Replica(self.series, delta.head, since_us)
            self.bytes += CLIENT_BYTES + len(delta.client) + _weight(delta.head)
        replica = self.clients.get(delta.client)
        if replica is None or replica.series != self.series:
            return False
        if delta.head is not None and not delta.begin:
            self.bytes += _weight(delta.head) - _weight(replica.head)
            if delta.head.connected and not replica.head.connected:
                replica.since_us = now_us
            replica.head = delta.head
        for name, option in delta.subscriptions:
            self._subscribe(replica, name, option)
        if delta.positions is not None:
            replica.positions = delta.positions
        return True

    def sweep(self) -> list[Left]:
        """The series has said everything: what it did not say is gone. The wills of clients that a process had which
        is over, and of which nothing is known here since; none of those that somebody who stands, or stood, in for it
        awaits, or did, unless they belong into the log and it stood in meanwhile."""
        self.whole = True
        forgotten = {each: old for each, old in self.clients.items() if old.series != self.series}
        wills = [
            Left(client, replica.head.will, replica.since_us)
            for client, replica in forgotten.items()
            if replica.head.will is not None
            and replica.series[1] != self.series[1]
            and not (self.used and replica.since_us <= self._kept_us and not self._is_owed(replica.head.will))
        ]
        for client in forgotten:
            self._settle(client, None)
            self._drop(client)
        if self.series[1] != self._process:
            self.had = frozenset()
        self.used, self._process = self.kept, self.series[1]
        return wills

    def wills(self) -> list[Left]:
        """All that it knows."""
        return [
            Left(client, replica.head.will, replica.since_us)
            for client, replica in self.clients.items()
            if replica.head.will is not None
        ]

    def over(self, incarnation: int) -> list[Left]:
        """A younger process began, and sends nothing here: the wills of clients that those before it had. All else that
        is known of these clients is stale. If one of those goes on all the same, it has to say it again.
        """
        old = {each: one for each, one in self.clients.items() if one.series[1] < incarnation}
        wills = [
            Left(client, replica.head.will, replica.since_us)
            for client, replica in old.items()
            if replica.head.will is not None
        ]
        for client in old:
            self._drop(client)
        if old:
            self.number = 0
        return wills

    def _is_owed(self, will: Bequest) -> bool:
        """Whether a will belongs into the log, and the stand-in has only published it at QoS 0."""
        return self._meanwhile and will.publication.qos > 0

    def _settle(self, client: str, will: Bequest | None) -> None:
        """The process whose series that is has this will of a client, or none."""
        if will is not None:
            self.settled.discard(client)
        elif self.kept and self.series[1] == self._lost and client in self.had:
            self.settled.add(client)

    def _drop(self, client: str) -> Replica | None:
        replica = self.clients.pop(client, None)
        if replica is not None:
            for name in tuple(replica.subscriptions):
                self._subscribe(replica, name, None)
            self.bytes -= CLIENT_BYTES + len(client) + _weight(replica.head)
        return replica

    def _subscribe(self, replica: Replica, name: str, option: Option | None) -> None:
        had = name in replica.subscriptions
        if option is not None:
            replica.subscriptions[name] = option
        elif had:
            del replica.subscriptions[name]
        change = (option is not None) - had
        self.subscriptions += change
        self.bytes += change * (NAME_BYTES + len(name))
        if change and filter_type(name) in PREPARED:
            count = self.prepared.get(name, 0) + change
            if count:
                self.prepared[name] = count
            else:
                del self.prepared[name]
            if count == max(0, change):
                self.turned.add(name)

    def standings(self) -> Iterator[ClientSnapshot]:
        """All of it, client by client; clients that come or go during the iteration may be there or not."""
        for client in tuple(self.clients):
            standing = self.standing(client)
            if standing is not None:
                yield standing

    def standing(self, client: str) -> ClientSnapshot | None:
        """The state of one client."""
        replica = self.clients.get(client)
        if replica is None:
            return None
        subscriptions = {name: subscription_of(each) for name, each in replica.subscriptions.items()}
        return ClientSnapshot(client, replica.head, subscriptions, replica.positions, replica.since_us)


def _weight(head: Head) -> int:
    return 0 if head.will is None else weight_of_publication(head.will.publication)
