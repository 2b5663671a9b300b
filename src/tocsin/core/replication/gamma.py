"""Γ, the client state of a broker that its backups copy: clients, subscriptions and positions.

The broker has it in many places already (connections, attendances, sessions). So it is not kept a second time: a
**view** of it is read when something is sent. Clients that are away are part of it while their sessions last.

A backup's copy is handed out client by client, as ``ClientSnapshot``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from tocsin.core.forwarding.table import Subscription
from tocsin.wire.replication import Bequest, Head, Option, Positions


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
