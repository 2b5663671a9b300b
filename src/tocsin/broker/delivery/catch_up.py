"""One client's part of the entries that are read for it: from the message log, and results of channels.

A client that is behind has both read in batches. Entries that are not for it (by its rights, its maximum packet size,
its subscriptions and their age) are left out here; the rest is offered to its delivery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tocsin.broker.client import Recipient
from tocsin.broker.links.link import NO_MAXIMUM
from tocsin.core.delivery.grant import Frames, Grant, grant, grant_of_results
from tocsin.core.delivery.signals import (
    BatchRead,
    Deliver,
    DeliverResult,
    Offered,
    ReadBatch,
    ReadFailed,
    ReadResults,
    ResultOffered,
    ResultsFailed,
    ResultsRead,
)
from tocsin.core.filters import QueryFilter, TopicFilter, filter_type, stored_filter
from tocsin.core.forwarding.table import Subscription
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication
from tocsin.model.results import Notice
from tocsin.ports import Entry
from tocsin.runtime.machines.clock import wall_s
from tocsin.wire.topics import matches

if TYPE_CHECKING:
    from tocsin.broker.channels.channels import Channels
    from tocsin.broker.delivery.message_log import MessageLog
    from tocsin.results.reader import Result

Subscriptions = Mapping[str, Subscription]


def too_large(recipient: Recipient, frames: Frames, granted: Grant) -> bool:
    """Whether the client takes no packet of that size: it is then as good as delivered (MQTT 5, 3.1.2.11.4)."""
    most, packet_id = recipient.send_max_bytes, 1 if granted.qos else 0
    return most < NO_MAXIMUM and len(frames.of(recipient.version, granted, packet_id)) > most


# ── messages ────────────────────────────────────────────────────────────────────────────────────────────────


async def read_messages(
    asked: ReadBatch, message_log: MessageLog, recipient: Recipient, subscriptions: Subscriptions
) -> BatchRead | ReadFailed:
    """The next batch of the log."""
    critical = asked.critical
    try:
        batch = await message_log.read(read_for(asked.filters), asked.start, critical=critical)
        entries = await message_log.resolved(batch.entries) if _judges(asked.filters) else batch.entries
        each = (_offered(entry, message_log, recipient, subscriptions) for entry in entries)
        offered = [one for one in each if one is not None]
    except TocsinError as error:
        return ReadFailed(error=error, critical=critical, cause=asked.cause)
    tail = message_log.critical_tail if critical else message_log.tail
    return BatchRead(entries=offered, next=batch.next, tail=tail, critical=critical, cause=asked.cause)


def _offered(
    entry: Entry, message_log: MessageLog, recipient: Recipient, subscriptions: Subscriptions
) -> Offered | None:
    """An entry of a batch, if the client is to get it above QoS 0."""
    publication = message_log.publication(entry)
    if publication is None or publication.expired(_waited_s(entry)):
        return None
    if not recipient.may_receive(publication.topic):
        return None
    granted = _grant(publication, entry.position, recipient, subscriptions)
    if granted is None or not granted.qos or too_large(recipient, Frames(publication, 0), granted):
        return None
    return Offered(entry, granted.qos, (publication, granted))


def message_frame(effect: Deliver, recipient: Recipient) -> bytes:
    """An entry that was offered, as it is sent: as it was read, and granted, then."""
    publication: Publication
    granted: Grant
    publication, granted = effect.message
    frames = Frames(publication, _waited_s(effect.entry))
    return frames.of(recipient.version, granted, effect.packet_id, effect.repeat)


def _grant(
    publication: Publication, position: int, recipient: Recipient, subscriptions: Subscriptions
) -> Grant | None:
    concerned = [s for name, s in subscriptions.items() if _concerns(name, publication)]
    return grant(concerned, publication, position, recipient.client_id)


def _judges(names: Sequence[str]) -> bool:
    """Whether entries are judged by their streams' metadata, and not only by their topics."""
    return any(filter_type(name) is QueryFilter for name in names)


def read_for(names: Sequence[str]) -> Sequence[str]:
    """The filters to read the log for: whether a query concerns an entry, only the entry tells."""
    return ("#",) if _judges(names) else names


def _concerns(name: str, publication: Publication) -> bool:
    """Whether a subscription matches a message: by its topic, or by its stream's metadata at the time."""
    match stored_filter(name):
        case TopicFilter():
            return matches(name, publication.topic)
        case QueryFilter(query=query):
            return query.matches(publication.metadata)
        case _:
            return False


def _waited_s(entry: Entry) -> float:
    return max(0.0, wall_s() - entry.at_us / 1e6)


# ── results ─────────────────────────────────────────────────────────────────────────────────────────────────


async def read_results(
    asked: ReadResults, channels: Channels, recipient: Recipient, subscriptions: Subscriptions
) -> ResultsRead | ResultsFailed:
    """The next batch of results."""
    meant, critical = channels.meant(asked.names), asked.critical
    ks = {k: channel for k, (_, channel) in meant.items()}
    try:
        batch = await channels.results.read(ks, asked.start, critical=critical)
    except TocsinError as error:
        return ResultsFailed(error=error, critical=critical, cause=asked.cause)
    offered: list[ResultOffered] = []
    for place, notice, result in batch.results:
        name = meant[result.k][0]
        subscription = subscriptions.get(name)
        if subscription is None or not subscription.qos or place <= subscription.since:
            continue
        frames = Frames(channels.publication(name, place, notice, result), 0)
        if channels.may_receive(recipient, name) and not too_large(
            recipient, frames, grant_of_results(subscription)
        ):
            offered.append(ResultOffered(place, name, (notice, result)))
    tail = channels.results.tail
    return ResultsRead(entries=offered, next=batch.next, tail=tail, critical=critical, cause=asked.cause)


def result_frame(
    effect: DeliverResult, channels: Channels, recipient: Recipient, subscriptions: Subscriptions
) -> bytes:
    """A result that was offered, as it is sent."""
    notice: Notice
    result: Result
    notice, result = effect.result
    frames = Frames(channels.publication(effect.name, effect.position, notice, result), 0)
    granted = grant_of_results(subscriptions[effect.name])
    return frames.of(recipient.version, granted, effect.packet_id, effect.repeat)
