"""Bugs that are planted in the shipped classes, one precaution less at a time: what ``durable`` has to find."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from tocsin.broker.connection.publish import ClientPublisher
from tocsin.broker.delivery.client_delivery import DurableDelivery
from tocsin.broker.delivery.message_log import MessageLog, Stored
from tocsin.core.delivery.machine import ClientDelivery
from tocsin.core.delivery.session_cell import SessionCell
from tocsin.core.delivery.signals import Began, Subscribed
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import MESSAGES, DeliveryWindow, Progress
from tocsin.core.machine import Effect, Event
from tocsin.model.publication import Publication

Bug = Callable[[pytest.MonkeyPatch], None]
Act = Callable[[], None]


# ── what clients publish ─────────────────────────────────────────────────────────────────────────────────────


def acknowledges_early(patch: pytest.MonkeyPatch) -> None:
    """A message is acknowledged when its append is asked for."""
    commit = MessageLog.commit

    def hasty(
        self: MessageLog, publication: Publication, record_id: str, stored: Stored, behind: int | None = None
    ) -> None:
        stored(None, self.tail + 1)
        commit(self, publication, record_id, lambda error, position: None, behind)

    patch.setattr(MessageLog, "commit", hasty)


def appends_before_the_id_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A message at QoS 2 goes into the log under an id that nobody knows after a crash."""
    when_durable = DurableDelivery.when_durable

    def at_once(self: DurableDelivery, act: Act) -> None:
        appends = isinstance(act, partial) and getattr(act.func, "__func__", None) is ClientPublisher._write
        act() if appends else when_durable(self, act)

    patch.setattr(DurableDelivery, "when_durable", at_once)


def completes_early(patch: pytest.MonkeyPatch) -> None:
    """PUBCOMP goes out before it is stored that the packet id is free."""
    release = DurableDelivery.release

    def hasty(self: DurableDelivery, packet_id: int, act: Act) -> None:
        release(self, packet_id, lambda: None)
        act()

    patch.setattr(DurableDelivery, "release", hasty)


def trusts_every_id(patch: pytest.MonkeyPatch) -> None:
    """A message whose id is stored is taken for one that is in the log."""
    patch.setattr(
        ClientDelivery, "inbound_ids", property(lambda self: tuple(self.record_ids.inbound)), raising=True
    )


# ── what clients are sent ────────────────────────────────────────────────────────────────────────────────────


def _around(
    patch: pytest.MonkeyPatch,
    before: Callable[[ClientDelivery, Event], Event] = lambda machine, event: event,
    after: Callable[[ClientDelivery], None] = lambda machine: None,
) -> None:
    """Have something done whenever a delivery handles an event."""
    handle = ClientDelivery.handle

    def handled(self: ClientDelivery, event: Event, now_us: int) -> list[Effect]:
        effects = handle(self, before(self, event), now_us)
        after(self)
        return effects

    patch.setattr(ClientDelivery, "handle", handled)


def _stores(patch: pytest.MonkeyPatch, change: Callable[[StoredSession], StoredSession]) -> None:
    """Have something else stored of a session than what is so."""
    current = ClientDelivery._current

    def changed(self: ClientDelivery, custody: SessionCell) -> StoredSession:
        return change(current(self, custody))

    patch.setattr(ClientDelivery, "_current", changed)


def releases_early(patch: pytest.MonkeyPatch) -> None:
    """PUBREL does not wait for the write that has the PUBREC."""

    def hurry(machine: ClientDelivery) -> None:
        for each in machine.messages.deliveries:
            each._durable = False

    _around(patch, after=hurry)


def settles_at_sending(patch: pytest.MonkeyPatch) -> None:
    """What was sent counts as settled."""

    def sent(session: StoredSession) -> StoredSession:
        progress = Progress(session.progress.next, (), session.progress.releasing)
        return msgspec.structs.replace(session, progress=progress)

    _stores(patch, sent)


def counts_packet_ids(patch: pytest.MonkeyPatch) -> None:
    """Packet ids come from a counter in memory."""
    hand_in = DeliveryWindow.hand_in
    counts: dict[DeliveryWindow, int] = {}

    def counting(self: DeliveryWindow, position: int, qos: int) -> int:
        identifier = hand_in(self, position, qos)
        if identifier <= 0 or self._ids is not MESSAGES:
            return identifier
        counts[self] = counts.get(self, 0) + 1
        self._window[counts[self]] = self._window.pop(identifier)
        return counts[self]

    patch.setattr(DeliveryWindow, "hand_in", counting)


def subscribes_anew(patch: pytest.MonkeyPatch) -> None:
    """A client that subscribes again, as most do when they come back, loses what it has not got yet."""

    tails: dict[ClientDelivery, int] = {}  # where the log was when the client came

    def forget(machine: ClientDelivery, event: Event) -> Event:
        if isinstance(event, Began):
            tails[machine] = event.tail
        elif isinstance(event, Subscribed) and event.topic_filter in machine.subscriptions:
            del machine.subscriptions[event.topic_filter]
            subscription = msgspec.structs.replace(event.subscription, since=tails[machine])
            return msgspec.structs.replace(event, subscription=subscription)
        return event

    _around(patch, before=forget)


def forgets_how_far_critical_ones_are(patch: pytest.MonkeyPatch) -> None:
    """The session is stored with one position, as if critical messages were among the others."""
    _stores(patch, lambda session: msgspec.structs.replace(session, critical_messages=None))


def settles_critical_ones_with_the_others(patch: pytest.MonkeyPatch) -> None:
    """Critical messages count as settled up to where the others are."""
    _stores(
        patch,
        lambda session: msgspec.structs.replace(session, critical_messages=Progress(session.progress.next)),
    )


def knows_of_no_critical_ones(patch: pytest.MonkeyPatch) -> None:
    """Who was away is not looked for among the critical messages of that time."""

    def overlook(machine: ClientDelivery, event: Event) -> Event:
        return msgspec.structs.replace(event, critical_tail=0) if isinstance(event, Began) else event

    _around(patch, before=overlook)


def reads_both_at_once(patch: pytest.MonkeyPatch) -> None:
    """Who is behind with critical messages gets others meanwhile."""

    def let_go(machine: ClientDelivery, event: Event) -> Event:
        for each in machine.messages.deliveries:
            each.first = None
        return event

    _around(patch, before=let_go)


def uses_the_same_packet_ids(patch: pytest.MonkeyPatch) -> None:
    """Critical messages have the packet ids of the others."""

    def confuse(machine: ClientDelivery, event: Event) -> Event:
        if machine.messages.critical is not None:
            machine.messages.critical.delivery._ids = MESSAGES
        return event

    _around(patch, before=confuse)
