"""Γ of this broker (``core.replication.gamma``): the clients that are here, and those that are away and may come back.

A will is part of it while its client may publish it: the rules are asked whenever it is read.

The state of a connected client is read off its connection. The last state of an absent client is kept while its session
lasts or its will waits, and while the broker has backups at all: only they ask for it. At most AWAY_MAX are; those that
went first are forgotten first. They are in the store all the same, but for their wills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from tocsin.broker.client import Client
from tocsin.core.access.ownership import may_take
from tocsin.core.access.rights import Who
from tocsin.core.forwarding.table import Subscription
from tocsin.core.replication.gamma import ClientSnapshot, option_of
from tocsin.model.network import Scheme
from tocsin.wire.internal.replication import Bequest, Head, Option, Positions

if TYPE_CHECKING:
    pass

AWAY_MAX: Final = 50_000  # some kilobyte each
VOID_S: Final = 180.0  # longer than any former backup has an old copy, and waits with a will of it
VOID_MAX: Final = 10_000  # clients whose wills are told to be settled, some 200 B each


PresentT = TypeVar("PresentT", bound=Client)


class ConnectedClients(Protocol[PresentT]):
    """The clients that are connected."""

    @property
    def present(self) -> Mapping[str, PresentT]:
        """The connections of clients, by their ids."""
        ...

    def scheme(self, connection: PresentT) -> Scheme: ...

    def who(self, connection: PresentT) -> Who: ...

    def has_user(self, client_id: str, user: str) -> bool:
        """Whether a client is connected here, or about to be, with what belongs to this user."""
        ...

    def may_publish(self, who: Who, topic: str) -> bool:
        """Whether the rules currently let a client publish to a topic, even if it is not here."""
        ...


class _Away(msgspec.Struct):
    head: Head
    subscriptions: Mapping[str, Subscription]
    positions: Positions | None
    until_s: float  # when its session is over, by the clock


class ClientState:
    """Γ of one broker: ``clients`` are those who are in."""

    def __init__(self, clients: ConnectedClients[Any], clock: Callable[[], float]) -> None:
        self._people = clients
        self._clock = clock
        self._away: dict[str, _Away] = {}
        # Client → the id of its newest will that is settled, and until when that is told; oldest first.
        self._void: dict[str, tuple[str, float]] = {}

    # ── wills that are settled ──────────────────────────────────────────────────────────────────────────────

    def void(self, client: str) -> str:
        will_id, until_s = self._void.get(client, ("", 0.0))
        return will_id if until_s >= self._clock() else ""

    def voided(self) -> Iterable[str]:
        return [client for client in tuple(self._void) if self.void(client)]

    def _note_void(self, client: str, will_id: str) -> None:
        if will_id:
            self._void.pop(client, None)
            self._void[client] = will_id, self._clock() + VOID_S
            if len(self._void) > VOID_MAX:
                del self._void[next(iter(self._void))]

    # ── as it is read ───────────────────────────────────────────────────────────────────────────────────────

    def clients(self) -> Iterable[str]:
        yield from [client for client in self._people.present if self._here(client) is not None]
        yield from [client for client in self._away if self._here(client) is None]

    def head(self, client: str) -> Head | None:
        here = self._here(client)
        if here is not None:
            will = here.bequest()
            will = will if will is None or self.allows(will) else None
            return self._head(here, connected=True, expiry_s=here.expiry_s, will=will)
        away = self._away.get(client)
        if away is None or away.head.will is None or self.allows(away.head.will):
            return None if away is None else away.head
        return msgspec.structs.replace(away.head, will=None)

    def allows(self, will: Bequest) -> bool:
        """Whether the client that left a will may publish it, by the rules as they are now."""
        who = Who(will.owner, will.publication.client)
        return self._people.may_publish(who, will.publication.topic)

    def bequeathing(self) -> Iterator[str]:
        """The clients that have left a will, whether they may or not."""
        for client in self.clients():
            here, away = self._here(client), self._away.get(client)
            will = here.bequest() if here is not None else away and away.head.will
            if will is not None:
                yield client

    def names(self, client: str) -> Iterable[str]:
        return tuple(self._subscriptions(client))

    def option(self, client: str, name: str) -> Option | None:
        subscription = self._subscriptions(client).get(name)
        return None if subscription is None else option_of(subscription)

    def positions(self, client: str) -> Positions | None:
        here = self._here(client)
        if here is not None:
            return here.delivery.positions
        away = self._away.get(client)
        return None if away is None else away.positions

    def volume(self, client: str) -> int:
        here = self._here(client)
        return 0 if here is None else here.delivery.sent_bytes

    def standing(self, client: str) -> ClientSnapshot | None:
        """All of a client that is away; None if it is not, or nothing is known of it."""
        away = self._away.get(client)
        if away is None:
            return None
        return ClientSnapshot(client, away.head, dict(away.subscriptions), away.positions or Positions())

    def _subscriptions(self, client: str) -> Mapping[str, Subscription]:
        here = self._here(client)
        if here is not None:
            return here.delivery.subscriptions
        away = self._away.get(client)
        return {} if away is None else away.subscriptions

    def served_elsewhere(self, connection: Client) -> bool:
        """Whether a newer connection of the same client has its session; one without it may never get it."""
        present = self._people.present.get(connection.client_id)
        return present is not None and present is not connection and present.delivery.here

    def _here(self, client: str) -> Client | None:
        """Its connection, once it has its session, and until it goes."""
        connection: Client | None = self._people.present.get(client)
        return connection if connection is not None and connection.delivery.here else None

    def _head(self, client: Client, *, connected: bool, expiry_s: int, will: Bequest | None) -> Head:
        scheme, owner = self._people.scheme(client), self._people.who(client).user
        delivery = client.delivery
        return Head(connected, scheme, expiry_s, delivery.session, owner, will, delivery.session_epoch)

    # ── absent clients ──────────────────────────────────────────────────────────────────────────────────────

    def came(self, client: str) -> None:
        self._away.pop(client, None)

    def went(self, connection: Client, expiry_s: int, will: Bequest | None) -> str | None:
        """A connection is about to be over; its session is kept for so long, and its will waits. The clients that are
        forgotten for that.
        """
        if will is None:
            self._note_void(connection.client_id, connection.will_id)
        if not expiry_s and will is None:
            return None
        self._away[connection.client_id] = _Away(
            self._head(connection, connected=False, expiry_s=expiry_s, will=will),
            dict(connection.delivery.subscriptions),
            connection.delivery.positions,
            self._clock() + expiry_s,
        )
        if len(self._away) <= AWAY_MAX:
            return None
        oldest = next(iter(self._away))
        del self._away[oldest]
        return oldest

    def owned_by(self, client: str, user: str) -> bool:
        """Whether a client that is away is this user's, or nobody's in particular."""
        away = self._away.get(client)
        return away is not None and may_take(away.head.owner, user)

    def gone(self, client: str, session: str | None = None) -> bool:
        """An absent client is at another broker, or its session (the named one) is over; returns whether it is
        forgotten now.
        """
        away = self._away.get(client)
        if away is None or session not in (None, away.head.session):
            return False
        del self._away[client]
        return True

    def will_settled(self, client: str) -> bool:
        """The will of a client waits no longer; whether that changes anything."""
        away = self._away.get(client)
        if away is None or away.head.will is None:
            return False
        self._note_void(client, away.head.will.record_id)
        away.head = msgspec.structs.replace(away.head, will=None)
        if not away.head.expiry_s:
            del self._away[client]
        return True

    def expired(self) -> Iterator[str]:
        """Those whose time is over, and whose wills do not wait: they are forgotten."""
        now = self._clock()
        for client in [each for each, away in self._away.items() if away.until_s < now]:
            if self._away[client].head.will is None:
                del self._away[client]
                yield client

    def forget(self) -> None:
        """Nobody keeps a copy: only clients with a waiting will still matter, to backups that come later."""
        self._away = {client: away for client, away in self._away.items() if away.head.will is not None}

    def __len__(self) -> int:
        """How many are away."""
        return len(self._away)
