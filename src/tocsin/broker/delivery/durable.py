"""The durable parts of a broker that each connection gets."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.broker.channels.channels import Channels
from tocsin.broker.channels.pulls import Pulls
from tocsin.broker.delivery.message_log import MessageLog
from tocsin.broker.delivery.session_lifecycle import Deliveries, Departures, RecordPrefixes, SessionEntry
from tocsin.broker.delivery.wills import WillPublisher, Wills
from tocsin.broker.retained.table import Retained
from tocsin.broker.retained.writer import RetainedWriter
from tocsin.broker.shared.groups import Groups
from tocsin.broker.survival.provisional import Provisional
from tocsin.broker.survival.replication import Replicating
from tocsin.core.budgets.session_quota import SessionQuota


@dataclass(frozen=True, slots=True)
class Durable:
    """The durable parts that connections use. It decides nothing: ``broker.parts`` makes them."""

    message_log: MessageLog
    retained: Retained
    retained_writer: RetainedWriter
    groups: Groups
    channels: Channels
    pulls: Pulls
    replication: Replicating
    provisional: Provisional
    quota: SessionQuota
    wills: Wills
    will_publisher: WillPublisher
    prefixes: RecordPrefixes
    deliveries: Deliveries
    session_entry: SessionEntry
    departures: Departures
