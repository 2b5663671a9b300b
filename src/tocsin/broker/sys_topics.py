"""``$SYS``: the broker's figures as retained messages, under mosquitto's names where mosquitto has them.

Topics are paths without blanks, so that exporters need not quote them; ``retained messages/count`` is there a second
time, as mosquitto spells it. Each broker publishes its own figures and sends them to no other broker.
"""

from __future__ import annotations

import asyncio
from functools import cache
from importlib import metadata
from typing import Final

import msgspec

from tocsin.broker.parts import Parts
from tocsin.core.budgets.budget import Kind
from tocsin.model.publication import Publication
from tocsin.runtime.machines.clock import monotonic_s

EVERY_S: Final = 10.0  # mosquitto's default
ROOT: Final = "$SYS/broker/"
MOSQUITTOS_RETAINED: Final = "retained messages/count"  # the one name of mosquitto's that has a blank


@cache
def _budget_topic(kind: Kind, figure: str) -> str:
    return f"budget/{kind.name.lower()}/{figure}"


@cache
def _version() -> str:
    """Tocsin's own, as installed: looking it up reads files."""
    return metadata.version("tocsin")


class SysTopics:
    """Publishes the figures of one broker, every ``EVERY_S`` those that changed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._began = monotonic_s()
        self._most = 0  # clients at once, so far
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Say what has changed, for as long as the broker lives."""
        while True:
            await self._parts.channels.results.look()
            self.say()
            await asyncio.sleep(EVERY_S)

    def say(self) -> None:
        for name, value in self.figures().items():
            if self._said.get(name) != value:
                self._said[name] = value
                self._parts.exchange.publish_own(Publication(ROOT + name, value.encode(), 0, "", retain=True))

    def figures(self) -> dict[str, str]:
        """The figures as they are now, by topic below ``ROOT``."""
        parts, listener = self._parts, self._parts.listener
        counts, table = parts.counts, parts.statistics()
        self._most = max(self._most, listener.clients)
        return {
            "version": f"tocsin version {_version()}",
            "id": listener.own.id,
            "cluster": listener.own.cluster,
            "uptime": f"{monotonic_s() - self._began:.0f} seconds",
            "clients/connected": str(listener.clients),
            "clients/maximum": str(self._most),
            "clients/refused": str(listener.refused),
            "clients/watching": str(table["watchers"]),
            "clients/problem": listener.guard.problem() or "none",
            "budget/clients-cut-short": str(listener.cut_short),
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
            "shared_subscriptions/count": str(len(parts.groups)),
            "channels/count": str(table["channels"]),
            "channels/held": str(table["channel_subscriptions"]),
            "channels/sessions": str(table["channel_sessions"]),
            "channels/notices/behind": str(table["notices_behind"]),
            "channels/results/read": str(table["results"]),
            "channels/results/sent": str(table["results_sent"]),
            "channels/cache/bytes": str(table["results_cache_bytes"]),
            "channels/cache/hits": str(table["results_cache_hits"]),
            "channels/cache/misses": str(table["results_cache_misses"]),
            "channels/standby": str(table["channel_standbys"]),
            "replication/backups": str(table["backups"]),
            "replication/backups/degraded": str(table["backups_degraded"]),
            "replication/backups/behind": str(table["backups_behind"]),
            "replication/positions/out-of-sync": str(table["positions_out_of_sync"]),
            "replication/positions/bytes-out-of-sync": str(table["volume_out_of_sync"]),
            "replication/resyncs": str(table["replication_resyncs"]),
            "replication/waits/missed": str(table["replication_waits_missed"]),
            "replication/bytes/sent": str(table["replication_bytes"]),
            "replication/copies": str(table["copies"]),
            "replication/copies/clients": str(table["copied_clients"]),
            "replication/copies/bytes": str(table["copied_bytes"]),
            "retained/count": str(len(parts.retained)),
            MOSQUITTOS_RETAINED: str(len(parts.retained)),
            "retained/bytes": str(parts.retained.room.kept),
            "retained/bytes/limit": str(parts.retained.room.bytes_max),
            "retained/held": str(parts.retained.held),
            "retained/fetched": str(parts.retained.fetched),
            "retained/refused": str(parts.retained.refused),
            "retained/missing": str(parts.retained.missing),
            "retained/known": str(int(parts.retained.known.is_set())),
            "log/position": str(parts.message_log.tail),
            "log/filters": str(len(parts.message_log.reading.filters or ())),
            "log/read/in-vain": str(parts.message_log.in_vain),
            "log/passed-over": str(parts.message_log.passed_over),
            "log/readers": str(parts.message_log.reading.switches),
            "links/detours": str(table["detours"]),
            "links/waiting/bytes": str(table["links_waiting"]),
            "links/late": str(table["links_late"]),
            "messages/carried": str(table["carried"]),
            "messages/sent-around": str(table["sent_around"]),
            "copies/sent": str(table["copies_sent"]),
            "copies/bytes": str(table["copies_bytes"]),
            "copies/held-back": str(table["copies_held_back"]),
            "copies/flows": str(table["copied_flows"]),
            "copies/left-out": str(table["copies_left_out"]),
            "copies/connections": str(table["extra_links"]),
            "copies/repeated": str(table["copies_repeated"]),
            "copies/ahead": str(table["copies_ahead"]),
            "copies/passed-over": str(table["copies_passed_over"]),
            "slots/held": str(table["slots_held"]),
            "slots/moved": str(table["slots_moved"]),
            "slots/failed-over": str(table["slots_failed_over"]),
            "network/orphaned": str(table["orphaned"]),
            "network/landmark": str(table["landmark"]),
            "network/cluster/heard": str(table["cluster_heard"]),
            "network/cluster/gone": str(table["cluster_gone"]),
            "network/cut-off": str(table["cut_off"]),
            "sessions/stored": str(parts.quota.stored[0]),
            "sessions/stored/bytes": str(parts.quota.stored[1]),
            "sessions/refused": str(parts.quota.refused),
            "sessions/provisional": str(table["provisional"]),
            "sessions/settled": str(table["sessions_settled"]),
            "sessions/let-go": str(table["sessions_let_go"]),
            "links/up": f"{table['links_up']} of {table['links']}",
            "probes/made": str(parts.probes.machine.made),
            "probes/failed": str(parts.probes.machine.failed),
            "probes/bytes/sent": str(parts.probes.machine.sent_bytes),
            "probes/answered": str(parts.link_listener.probes),
            "probes/bytes/received": str(parts.link_listener.probed_bytes),
            **self._budgets(),
        }

    def _budgets(self) -> dict[str, str]:
        """For each budget the bytes in use, the bound, the maximum so far, and how often there was no room."""
        return {
            _budget_topic(kind, name): str(value)
            for kind, figure in self._parts.exchange.budget.figures().items()
            for name, value in msgspec.structs.asdict(figure).items()
        }
