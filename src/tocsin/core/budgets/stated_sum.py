"""The stated sum: how much memory each process of a network may use at most, by the settings, with the parts.

A process uses what it needs at rest, what its clients may make it hold (``core.budgets.budget``), and what the
allocator adds to that. Figures beside settings say where they are from.

The sum leaves out Spark (``spark.driver_memory``), the feeder (``feeds.waiting_max_bytes``), and servers of
somebody else's.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.config import Settings
from tocsin.core.budgets.budget import SLACK, WORDS, Kind, bounds_of
from tocsin.core.replication.backup import COPIES_MAX_BYTES
from tocsin.core.streams.machine import UNSETTLED_MAX_BYTES

MIB: Final = 1 << 20
REST_BYTES: Final = 80 * MIB  # of a broker or coordinator without clients: 58 to 63 MiB measured
STORE_REST_BYTES: Final = 64 * MIB  # of a server's process beside its heap
# A connected client that does nothing: 11 KiB (``bench.spending.connections``); 4 KiB of a packet and 16 KiB unread
# that every one may have.
CONNECTION_BYTES: Final = (11 + 4 + 16) << 10
# TLS adds 42 KiB for a client that does nothing, and some 600 KiB, until it goes, for one that has sent large
# packets (the same measurement): the buffers of uvloop and OpenSSL grow, and do not shrink.
TLS_BYTES: Final = 640 << 10
# A connection that watches another broker for its client: it sends no packets to speak of, and is sent a few bytes.
WATCHER_BYTES: Final = 11 << 10
FILTER_BYTES: Final = 1_600  # of a filter of another broker's: 1 540 measured
# Freed memory lies between used memory, until its pages are given back (``runtime.host.allocator``). Under all
# attacks of ``bench.spending`` a broker held some 30 percent more than at rest, retained and counted together. Stated
# is twice that.
ALLOCATOR_PERCENT: Final = 60


class Part(msgspec.Struct, frozen=True):
    """One part of a process's memory, and the setting that bounds it; empty: none does."""

    what: str
    bytes: int
    setting: str = ""


class Sum(msgspec.Struct, frozen=True):
    """A process, how many of its kind there are, and the parts of one."""

    process: str
    count: int
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """The most that one process may use."""
        return sum(part.bytes for part in self.parts)


def sums_of(settings: Settings) -> tuple[Sum, ...]:
    """Brokers, coordinators and embedded servers."""
    found = [
        Sum("broker", len(settings.brokers), tuple(_with_allocator(_broker(settings)))),
        Sum("coordinator", settings.coordinators, tuple(_with_allocator(_coordinator(settings)))),
    ]
    if not settings.nats.urls:
        found.append(Sum("store", settings.nats.servers, tuple(_store(settings))))
    return tuple(found)


def _broker(settings: Settings) -> list[Part]:
    limits, others = settings.limits, len(settings.brokers) - 1
    parts = [
        Part("at rest", REST_BYTES),
        Part("connections", limits.connections_max * CONNECTION_BYTES, "limits.connections_max"),
        Part("watch connections", limits.watchers_max * WATCHER_BYTES, "limits.watchers_max"),
    ]
    if any(max(each.tls_port, each.wss_port) >= 0 for each in settings.brokers):
        parts.append(Part("TLS of connections", limits.connections_max * TLS_BYTES, "limits.connections_max"))
    for kind, bounds in zip(Kind, bounds_of(settings.budgets), strict=True):
        parts.append(Part(WORDS[kind], bounds.broker + bounds.broker // SLACK, kind.setting))
    # A quarter more in the copy, and a quarter on its way to the store (``core.retained.topics``).
    retained = settings.budgets.retained_bytes
    parts.append(Part("retained messages", retained + retained // 2, "budgets.retained_bytes"))
    parts.append(
        Part("results of channels", settings.budgets.results_cache_bytes, "budgets.results_cache_bytes")
    )
    said = settings.coordinator.streams_max_bytes + settings.coordinator.queries_max_bytes
    parts.append(Part("streams that clients here ask for", said, "coordinator.streams_max_bytes"))
    parts.append(Part("changes of streams that wait for a coordinator", UNSETTLED_MAX_BYTES))
    if others:
        theirs = min(limits.filters_max * FILTER_BYTES, settings.budgets.sessions_bytes)
        parts.append(Part("filters of other brokers", others * theirs, "limits.filters_max"))
        parts.append(Part("copies of other brokers' clients", COPIES_MAX_BYTES))
    return parts


def _coordinator(settings: Settings) -> list[Part]:
    own, brokers = settings.coordinator, len(settings.brokers)
    theirs = min(settings.limits.filters_max * FILTER_BYTES, settings.budgets.sessions_bytes)
    return [
        Part("at rest", REST_BYTES),
        Part("streams and their metadata", own.streams_max_bytes, "coordinator.streams_max_bytes"),
        Part("queries", own.queries_max_bytes, "coordinator.queries_max_bytes"),
        Part("a snapshot of both, while it is written", own.streams_max_bytes + own.queries_max_bytes),
        Part("what brokers are told", 4 * own.snapshot_every_bytes, "coordinator.snapshot_every_bytes"),
        Part("filters of brokers", brokers * theirs, "limits.filters_max"),
    ]


def _store(settings: Settings) -> list[Part]:
    return [
        Part("at rest", STORE_REST_BYTES),
        Part("heap of the server", settings.budgets.store_bytes, "budgets.store_bytes"),
        Part("what it may exceed that by, while it collects", settings.budgets.store_bytes // 2),
    ]


def _with_allocator(parts: list[Part]) -> list[Part]:
    counted = sum(part.bytes for part in parts)
    return [*parts, Part("what the allocator adds", counted * ALLOCATOR_PERCENT // 100)]
