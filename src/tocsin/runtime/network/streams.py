"""The streams of a network: all its logs and tables, and the roles that create them.

Servers that know roles let nobody but the operator make or change a stream (``store.servers.roles``). So ``tocsin up``
makes those of embedded servers before it starts anything else, and gives them the bounds of its settings whenever it
is started; ``tocsin store prepare`` does that for servers of one's own. Where servers know no roles, processes make
what they open.
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from tocsin.config import Settings
from tocsin.core.coordination.names import StoreNames
from tocsin.errors import StoreFull
from tocsin.model import feeding
from tocsin.model.channel_names import ChannelNames
from tocsin.model.subjects import messages_log
from tocsin.ports import Log, LogSpec, Store, TableSpec
from tocsin.store.jetstream.store import JetStreamStore

ROOM_MIN_BYTES: Final = 1 << 26  # the least that the message log is opened with
TABLES: Final = ("network", "retained", "sessions", "groups", "accounts")  # of brokers


def specs(settings: Settings, *, pipeline: bool) -> tuple[LogSpec | TableSpec, ...]:
    """All that a network opens, those first that it cannot do without: room is given in this order."""
    places, channels = StoreNames(settings.network), ChannelNames(settings.network)
    found: list[LogSpec | TableSpec] = [
        places.table,
        messages_log(settings.network, settings.messages.keep_s, settings.messages.keep_bytes),
        places.commands,
        places.snapshots,
        *(TableSpec(f"{settings.network}-{name}") for name in TABLES),
        channels.catalogue,
        channels.subscriptions,
        channels.notices,
    ]
    if pipeline:
        found += [channels.progress, channels.feeds, feeding.table_spec(settings.network)]
    return tuple(found)


async def prepare(settings: Settings, *, pipeline: bool) -> tuple[str, ...]:
    """Make the streams that are missing, and give all of them the bounds of the settings; the names of logs and tables.

    It takes the operator's key. ``StoreError`` if that is refused, or a server cannot be reached.
    """
    store = await JetStreamStore.open(
        settings.nats,
        "operator",
        name="tocsin prepare",
        shares=settings.shares.by_name(settings.network),
        prepares=True,
    )
    try:
        wanted = specs(settings, pipeline=pipeline)
        for spec in wanted:
            await (open_within(store, spec) if isinstance(spec, LogSpec) else store.table(spec))
        return tuple(spec.name for spec in wanted)
    finally:
        await store.close()


async def open_within(store: Store, spec: LogSpec) -> Log:
    """Open a log with as much room as the settings ask for and the store has: it sets the room aside at once."""
    while True:
        try:
            return await store.log(spec)
        except StoreFull:
            if spec.max_bytes is None or spec.max_bytes < 2 * ROOM_MIN_BYTES:
                raise
            smaller = spec.max_bytes // 2
            structlog.get_logger().warning(
                "the store refused a stream of this size", asked=spec.max_bytes, next=smaller
            )
            spec = msgspec.structs.replace(spec, max_bytes=smaller)
