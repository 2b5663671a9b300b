"""``$SYS``: what this broker has to say about itself, as messages under the names that mosquitto gave them.

They are this broker's own: kept and given out here, never sent to another one.
"""

from __future__ import annotations

import asyncio
import time
from importlib import metadata
from typing import Final

import msgspec

from tocsin.broker.exchange import Exchange
from tocsin.broker.listener import Listener
from tocsin.model.publication import Publication

EVERY_S: Final = 10.0  # mosquitto's default
ROOT: Final = "$SYS/broker/"


class Figures:
    """Says them again and again."""

    def __init__(self, exchange: Exchange, listener: Listener) -> None:
        self._exchange = exchange
        self._listener = listener
        self._began = time.monotonic()
        self._most = 0  # clients at once, so far
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Say what has changed, for as long as the broker lives."""
        while True:
            await self._exchange.durability.channels.results.look()
            self.say()
            await asyncio.sleep(EVERY_S)

    def say(self) -> None:
        for name, value in self._now().items():
            if self._said.get(name) != value:
                self._said[name] = value
                self._exchange.say(Publication(ROOT + name, value.encode(), 0, "", retain=True))

    def _now(self) -> dict[str, str]:
        exchange, listener = self._exchange, self._listener
        counts, table = exchange.counts, exchange.statistics()
        self._most = max(self._most, listener.clients)
        return {
            "version": f"tocsin version {metadata.version('tocsin')}",
            "id": listener.own.id,
            "cluster": listener.own.cluster,
            "uptime": f"{time.monotonic() - self._began:.0f} seconds",
            "clients/connected": str(listener.clients),
            "clients/maximum": str(self._most),
            "clients/refused": str(listener.refused),
            "clients/problem": listener.guard.problem() or "none",
            "budget/clients cut short": str(listener.cut_short),
            "messages/received": str(counts.published + counts.relayed + counts.committed),
            "messages/relayed": str(counts.relayed),
            "messages/durable": str(counts.committed),
            "publish/messages/dropped": str(counts.dropped),
            "messages/held": str(table["held"]),
            "subscriptions/count": str(table["subscriptions"] + table["listings"]),
            "streams/count": str(table["streams"]),
            "streams/unregistered": str(table["unregistered"]),
            "streams/refused": str(table["descriptions_refused"]),
            "queries/count": str(table["queries"]),
            "queries/unanswered": str(table["unanswered"]),
            "shared_subscriptions/count": str(len(exchange.durability.groups)),
            "channels/count": str(table["channels"]),
            "channels/held": str(table["channel_subscriptions"]),
            "channels/sessions": str(table["channel_sessions"]),
            "channels/notices/behind": str(table["notices_behind"]),
            "channels/results/read": str(table["results"]),
            "channels/results/sent": str(table["results_sent"]),
            "channels/standby": str(table["channel_standbys"]),
            "replication/backups": str(table["backups"]),
            "replication/backups/degraded": str(table["backups_degraded"]),
            "replication/backups/behind": str(table["backups_behind"]),
            "replication/positions/out of sync": str(table["positions_out_of_sync"]),
            "replication/resyncs": str(table["replication_resyncs"]),
            "replication/waits/missed": str(table["replication_waits_missed"]),
            "replication/bytes/sent": str(table["replication_bytes"]),
            "replication/copies": str(table["copies"]),
            "replication/copies/clients": str(table["copied_clients"]),
            "replication/copies/bytes": str(table["copied_bytes"]),
            "retained messages/count": str(len(exchange.durability.retained)),
            "retained messages/bytes": str(exchange.durability.retained.room.kept),
            "retained messages/bytes/limit": str(exchange.durability.retained.room.bytes_max),
            "retained messages/refused": str(exchange.durability.retained.refused),
            "retained messages/missing": str(exchange.durability.retained.missing),
            "retained messages/known": str(int(exchange.durability.retained.known.is_set())),
            "log/position": str(exchange.durability.journal.tail),
            "links/detours": str(table["detours"]),
            "messages/carried": str(table["carried"]),
            "messages/sent around": str(table["sent_around"]),
            "network/orphaned": str(table.get("orphaned", 0)),
            "network/landmark": str(table.get("landmark", 0)),
            "network/cluster/heard": str(table.get("cluster_heard", 0)),
            "network/cluster/gone": str(table.get("cluster_gone", 0)),
            "network/cut off": str(table.get("cut_off", 0)),
            "sessions/stored": str(exchange.durability.quota.stored[0]),
            "sessions/stored/bytes": str(exchange.durability.quota.stored[1]),
            "sessions/refused": str(exchange.durability.quota.refused),
            "sessions/provisional": str(table.get("provisional", 0)),
            "sessions/settled": str(table.get("sessions_settled", 0)),
            "sessions/let go": str(table.get("sessions_let_go", 0)),
            "links/up": f"{table['links_up']} of {table['links']}",
            **self._budgets(),
        }

    def _budgets(self) -> dict[str, str]:
        """Of each budget what is used, may be, was at most, and how often there was no room."""
        return {
            f"budget/{kind.name.lower()}/{name}": str(value)
            for kind, figure in self._exchange.budget.figures().items()
            for name, value in msgspec.structs.asdict(figure).items()
        }
