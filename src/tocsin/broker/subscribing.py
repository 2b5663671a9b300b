"""What one connection subscribes to: filters, queries, groups, channels; and SUBACK, sent when what it says is so.

A subscription is durable before it is acknowledged, a member of a group is one (``broker.partaking``), a query is
answered (``broker.inquiring``), a channel is held (``broker.channelling``), and the broker's backups know of it
(``broker.replicating``). Retained messages come after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, Protocol

import msgspec
from mqtt5 import RetainHandling, SubAckPacket, SubAckReasonCode

from tocsin.broker.channelling import Channelling
from tocsin.broker.exchange import Exchange, Subscriber
from tocsin.broker.inquiring import Inquiring
from tocsin.broker.partaking import Partaking, Refused
from tocsin.broker.retained import Kept
from tocsin.core.access import Rights
from tocsin.core.budget import Account, Kind, Refusal
from tocsin.core.channel_request import is_channel
from tocsin.core.forwarding import Subscription
from tocsin.core.grant import Grant
from tocsin.core.inquiry import is_inquiry
from tocsin.core.session import Subscribe
from tocsin.core.stored_group import Claim
from tocsin.core.stored_session import StoredSession
from tocsin.errors import StoreFull

SUBSCRIPTION_BYTES: Final = 1_400  # of a subscription in all that knows of it, beside its name: measured

_numbers = count()
Send = Callable[[SubAckPacket, Refused], None]


class Client(Subscriber, Protocol):
    """The connection, as it is seen from here."""

    @property
    def expiry_s(self) -> int: ...

    @property
    def user(self) -> str: ...

    @property
    def account(self) -> Account:
        """Of the bytes that the client makes the broker hold."""
        ...

    def exhausted(self, refusal: Refusal | StoreFull) -> None:
        """A budget has no room for what the client has: it has to go."""
        ...

    def rights(self) -> Rights: ...

    def queue(self, *frames: bytes) -> None:
        """Send frames with this tick's others."""
        ...

    def sever(self) -> None:
        """Break the connection."""
        ...

    def acknowledge(self, packet: SubAckPacket, refused: Refused) -> None:
        """Send a SUBACK, in which some subscriptions are refused after all."""
        ...


class Subscribing:
    """See the module's text."""

    __slots__ = (
        "_cause",
        "_channelling",
        "_client",
        "_counted",
        "_excess",
        "_exchange",
        "_inquiring",
        "_part",
        "_session",
        "_unsure",
    )

    def __init__(self, client: Client, exchange: Exchange, cause: str) -> None:
        self._client = client
        self._exchange = exchange
        self._cause = cause
        self._counted: set[str] = set()  # subscriptions that the budget knows of
        # Of one SUBSCRIBE: filters for which there is no room.
        self._excess: dict[int, tuple[str, str, SubAckReasonCode]] = {}
        # Made when needed: most clients need neither.
        self._part: Partaking | None = None
        self._inquiring: Inquiring | None = None
        self._channelling: Channelling | None = None
        self._session = ""  # the uid of the stored one
        # What waits for the store, and need not if that cannot be reached.
        self._unsure: dict[int, Callable[[], None]] = {}

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────

    async def rejoin(self, session: StoredSession) -> tuple[tuple[str, Claim], ...]:
        """Be a member again of the groups in a stored session; what the client has of each."""
        self._session = session.uid
        return await self._partaking(session).resume(session)

    def restore(self, *, channels: bool = True) -> None:
        """Have what a stored session is subscribed to."""
        for name, subscription in self._client.attendant.subscriptions.items():
            if is_channel(name) and not channels:
                continue
            if name not in self._counted:
                refusal = self._client.account.charge(Kind.SESSIONS, SUBSCRIPTION_BYTES + len(name))
                if refusal is not None:
                    self._client.exhausted(refusal)
                    return
                self._counted.add(name)
            self._exchange.subscribe(self._client, name, subscription, bound=False)
            if is_channel(name):
                self._channels()

    def begin(self) -> None:
        """The client of a stored session is welcomed."""
        for name in self._client.attendant.subscriptions:
            self._exchange.queries.listings.begin(self._client, name)
        self.room_made()

    def room_made(self) -> None:
        """The client may take more of its groups' messages than before."""
        if self._part is not None:
            self._part.room_made()

    def end(self, expiry_s: int) -> None:
        """The connection is over; its session is kept for so long."""
        if self._part is not None:
            self._part.end(expiry_s)
        if self._channelling is not None:
            self._channelling.end(expiry_s)

    def _channels(self) -> Channelling:
        if self._channelling is None:
            durability = self._exchange.durability
            session = self._session or f"{durability.groups.life} {self._cause}"  # nobody else's
            self._channelling = Channelling(durability.channels, self._client, session)
        return self._channelling

    def _partaking(self, session: StoredSession | None = None) -> Partaking:
        if self._part is None:
            groups, client = self._exchange.durability.groups, self._client
            self._part = Partaking(groups, client, self._cause, session=session, expiry_s=client.expiry_s)
        return self._part

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, asked: Subscribe) -> None:
        """One subscription of a SUBSCRIBE; ``acknowledge`` follows."""
        attendant, name = self._client.attendant, asked.name
        if not self._count(name, asked.index):
            return
        if is_channel(name):
            self._channels().subscribe(asked)
            return
        subscription = Subscription(
            asked.no_local,
            asked.subscription_id,
            int(asked.qos),
            asked.retain_as_published,
            self._exchange.durability.journal.tail,
        )
        before = attendant.subscriptions.get(name)
        quota = self._exchange.durability.quota
        if before is None and attendant.session and not quota.may_grow(self._client.user):
            problem = "stored sessions take too much room already (shares.sessions_bytes)"
            self._excess[asked.index] = (name, problem, SubAckReasonCode.QUOTA_EXCEEDED)
            return
        if before is not None:  # its options change; it is not a new one
            subscription = msgspec.structs.replace(subscription, since=before.since)
        if not self._exchange.subscribe(self._client, name, subscription):
            most = self._exchange.interests.most
            reason = f"this broker's clients have {most} different filters already"
            self._excess[asked.index] = (name, reason, SubAckReasonCode.QUOTA_EXCEEDED)
            self._uncount(name)
            return
        attendant.subscribed(name, subscription)
        wanted = asked.retain_handling == RetainHandling.SEND_ALWAYS or (
            asked.retain_handling == RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS and not asked.existed
        )
        if asked.group is not None:
            self._partaking().subscribe(name, subscription, asked.index)
        elif is_inquiry(name):
            self._inquire(asked, subscription if wanted else None)
        elif wanted:  # a group gets no retained messages (MQTT 5, section 3.3.1.3)
            attendant.when_durable(lambda: self._replay(name, subscription))

    def _count(self, name: str, index: int) -> bool:
        """Have the budget know of a subscription; False if there is no room for it."""
        if name in self._counted:
            return True
        refusal = self._client.account.take(Kind.SESSIONS, SUBSCRIPTION_BYTES + len(name))
        if refusal is None:
            self._counted.add(name)
            return True
        self._excess[index] = (name, str(refusal), SubAckReasonCode.QUOTA_EXCEEDED)
        return False

    def _uncount(self, name: str) -> None:
        if name in self._counted:
            self._counted.remove(name)
            self._client.account.give(Kind.SESSIONS, SUBSCRIPTION_BYTES + len(name))

    def unsubscribe(self, name: str) -> None:
        self._uncount(name)
        self._exchange.unsubscribe(self._client, name)
        self._client.attendant.unsubscribed(name)
        if self._part is not None:
            self._part.unsubscribe(name)
        if self._channelling is not None:
            self._channelling.unsubscribe(name)

    def _inquire(self, asked: Subscribe, subscription: Subscription | None) -> None:
        """A query is answered when its SUBACK is sent; with a subscription, by retained messages as well."""
        queries = self._exchange.queries

        def answer() -> None:
            queries.listings.begin(self._client, asked.name)
            if subscription is not None:
                self._replay(asked.name, subscription)

        if self._inquiring is None:
            self._inquiring = Inquiring(queries)
        self._inquiring.subscribe(asked.index, asked.name, answer)

    def acknowledge(self, packet: SubAckPacket) -> None:
        """Have a SUBACK sent when what it says is so."""
        excess, self._excess = self._excess, {}

        def send(packet: SubAckPacket, refused: Refused) -> None:
            self._client.acknowledge(packet, {**excess, **refused})

        self._send_when_so(packet, self._replicated(send if excess else self._client.acknowledge))

    def _replicated(self, send: Send) -> Send:
        """The same, when the backups know what is said; ``send`` itself if there are none."""
        replicating, client = self._exchange.durability.replicating, self._client.client_id
        if not replicating.active:
            return send
        return lambda packet, refused: replicating.when_synced(client, lambda: send(packet, refused))

    def confirm(self, send: Callable[[], None]) -> None:
        """Have an UNSUBACK sent when what it says is durable, and the backups know."""
        replicating, client = self._exchange.durability.replicating, self._client.client_id
        self._when_durable(lambda: replicating.when_synced(client, send))

    def _when_durable(self, act: Callable[[], None]) -> None:
        """Do something when what was changed is durable; at once, if the store cannot be reached: then it is later."""
        if self._exchange.durability.provisional.cut_off:
            act()
            return
        unsure, key = self._unsure, next(_numbers)
        unsure[key] = act

        def durable() -> None:
            if unsure.pop(key, None) is not None:
                act()

        self._client.attendant.when_durable(durable)

    def hurry(self) -> None:
        """The store cannot be reached."""
        for key in tuple(self._unsure):
            self._unsure.pop(key)()

    def _send_when_so(self, packet: SubAckPacket, send: Send) -> None:
        if self._inquiring is not None:
            send = self._inquiring.acknowledging(send)
        if self._channelling is not None:
            send = self._channelling.acknowledging(send)
        if self._part is not None and self._part.asked:
            self._part.acknowledge(packet, send)
        else:
            self._when_durable(lambda: send(packet, {}))

    def withdraw(self, refused: Refused) -> None:
        """The client cannot have some subscriptions after all."""
        for name, _, _ in refused.values():
            self._uncount(name)
            self._exchange.unsubscribe(self._client, name)
            self._client.attendant.unsubscribed(name)
            if self._channelling is not None:
                self._channelling.unsubscribe(name)

    def _replay(self, name: str, subscription: Subscription) -> None:
        """Have the client get what is retained for a filter, or for the streams of a query."""
        client, retained = self._client, self._exchange.durability.retained
        if name not in client.attendant.subscriptions:
            return  # it has unsubscribed meanwhile
        identifiers = () if subscription.identifier is None else (subscription.identifier,)
        grants = [Grant(qos, identifiers, True) for qos in range(subscription.qos + 1)]

        streams: list[str] | None = None  # of a query, once it has its turn

        def pages(after: str | None) -> Iterator[tuple[Kept, Grant | None]]:
            nonlocal streams
            rights = client.rights()
            if is_inquiry(name) and streams is None:
                streams = sorted(self._exchange.queries.topics(name))
            for kept in retained.all(name, after) if streams is None else retained.of(streams, after):
                wanted = not kept.over and (rights.open or rights.may_receive(kept.publication.topic))
                yield kept, grants[min(subscription.qos, kept.publication.qos)] if wanted else None

        client.attendant.replay(name, pages, retained)
