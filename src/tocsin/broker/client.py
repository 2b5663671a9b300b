"""A client, as the rooms of the broker see it.

- ``Recipient``: a client that frames are made for. Catching up, retained messages and results of channels use it.
- ``Client``: the same, connected here, with its outlet, its delivery and its account. Used by the rooms ``forwarding``,
  ``delivery``, ``shared``, ``streams``, ``channels`` and ``survival``.
- ``ClientConnection``: the same, as the parts of its connection see it: ``publish``, ``subscribe`` and ``writer``.

Each builds on the one before. ``broker.connection`` implements them; a link (``broker.links``) is no client, and shares
only the ``Outlet`` of ``broker.forwarding.fanout`` with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from mqtt5 import SubAckPacket

from tocsin.core.access.rights import Rights
from tocsin.core.budgets.budget import Account, Kind, Refusal
from tocsin.core.machine import Event
from tocsin.core.session.subscribe import Refused
from tocsin.errors import StoreFull
from tocsin.wire.internal.replication import Bequest
from tocsin.wire.mqtt.connect import Version

if TYPE_CHECKING:
    from tocsin.broker.delivery.client_delivery import DurableDelivery
    from tocsin.broker.forwarding.fanout import Outlet


class Recipient(Protocol):
    """A client that frames are made for."""

    @property
    def client_id(self) -> str: ...

    @property
    def version(self) -> Version: ...

    @property
    def send_max_bytes(self) -> int:
        """The largest frame that it takes."""
        ...

    def may_receive(self, topic: str) -> bool:
        """Whether the rules let it have the messages of a topic just now."""
        ...

    def queue(self, *frames: bytes) -> None:
        """Send frames with this tick's others; they are never dropped."""
        ...


class Client(Recipient, Protocol):
    """A client that is connected here."""

    def __hash__(self) -> int: ...

    # ── who it is ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def user(self) -> str:
        """The name that was proven; empty if none was."""
        ...

    @property
    def epoch(self) -> int:
        """The connection's number, as the coordinator knows it; 0 before it is accepted."""
        ...

    @property
    def expiry_s(self) -> int:
        """How long its session outlives the connection."""
        ...

    @property
    def heard_us(self) -> int:
        """When it was heard last, by the machines' clock."""
        ...

    def rights(self) -> Rights: ...

    def may_subscribe(self, pattern: str) -> bool:
        """Whether the rules let it have anything at all of what a filter matches, just now."""
        ...

    def bequest(self) -> Bequest | None:
        """Its will."""
        ...

    def will_announced(self) -> None:
        """The log has its will already, though it is connected."""
        ...

    @property
    def will_id(self) -> str:
        """The id of the will that it came with, also when it is settled; empty: it came without one."""
        ...

    # ── what it is sent ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def outlet(self) -> Outlet:
        """The sink for its frames."""
        ...

    @property
    def takes_aliases(self) -> bool:
        """Whether it may be told topics by number."""
        ...

    @property
    def full(self) -> bool:
        """Whether what is sent now would be dropped."""
        ...

    @property
    def delivery(self) -> DurableDelivery:
        """The delivery of its messages above QoS 0."""
        ...

    def when_level(self, act: Callable[[], None]) -> bool:
        """Whether it has got all messages of the log that there are; if not, ``act`` when it has."""
        ...

    # ── what becomes of it ──────────────────────────────────────────────────────────────────────────────────

    @property
    def account(self) -> Account:
        """The account of the bytes that it makes the broker hold."""
        ...

    def post(self, event: Event) -> None:
        """Hand an event to its session."""
        ...

    def exhausted(self, refusal: Refusal | StoreFull) -> None:
        """A budget, or the store, has no room for what it has already: it has to go."""
        ...

    def sever(self) -> None:
        """Break the connection."""
        ...


class ClientConnection(Client, Protocol):
    """A client, as the parts of its connection see it."""

    @property
    def prefix(self) -> str:
        """The prefix of the record ids of its messages."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that ends with the connection; if it fails, so does the connection."""
        ...

    def tell(self, event: Event) -> None:
        """Hand an outcome to the session, if it is still there to hear it."""
        ...

    def acknowledge(self, packet: SubAckPacket, refused: Refused) -> None:
        """Send a SUBACK, in which some subscriptions are refused after all."""
        ...

    def wait(self, waits: bool) -> None:
        """As many of its messages wait as may: read no more for now, or go on."""
        ...

    def spend(self, kind: Kind, size: int) -> bool:
        """Count bytes that the client made us hold; False if it has to go for it."""
        ...

    def missed(self) -> None:
        """Some of what was to be delivered was dropped."""
        ...

    def unread(self, refusal: Refusal) -> None:
        """More waits for it than may."""
        ...
