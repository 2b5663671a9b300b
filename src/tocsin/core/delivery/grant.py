"""The grant of one message to one client: its QoS and subscription identifiers."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tocsin.core.forwarding.table import Subscription
from tocsin.model.publication import Publication


class Grant(msgspec.Struct, frozen=True):
    """How a client gets a message."""

    qos: int
    identifiers: tuple[int, ...]
    retain: bool  # the flag as it was published, for a subscription that asks for it


def grant(
    subscriptions: Iterable[Subscription], publication: Publication, position: int, client: str
) -> Grant | None:
    """From those subscriptions of a client that match the topic; None if the message is not for it.

    Overlapping subscriptions give one copy, at the highest QoS that any of them asks for and the publisher
    used (MQTT 5, section 3.3.4).
    """
    qos = -1
    identifiers: list[int] = []
    retain = False
    for subscription in subscriptions:
        if position <= subscription.since or (subscription.no_local and publication.client == client):
            continue
        qos = max(qos, min(subscription.qos, publication.qos))
        if subscription.identifier is not None:
            identifiers.append(subscription.identifier)
        retain = retain or (subscription.retain_as_published and publication.retain)
    return None if qos < 0 else Grant(qos, tuple(identifiers), retain)


def grant_of_results(subscription: Subscription) -> Grant:
    """How a client gets the results of a channel that it subscribed to."""
    identifier = subscription.identifier
    return Grant(min(1, subscription.qos), () if identifier is None else (identifier,), False)
