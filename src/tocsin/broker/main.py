"""A broker process: one broker over the real store, on real sockets, under its own name or another's."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tocsin.broker.assembly import Broker, run_broker
from tocsin.broker.channels.result_reader import DatasetFiles
from tocsin.broker.identity import link_security, results_directory
from tocsin.broker.metrics import served
from tocsin.broker.site import Configured
from tocsin.config import Settings
from tocsin.errors import SettingError
from tocsin.results.reader import ResultsReader
from tocsin.runtime.process import Process
from tocsin.store.jetstream.store import JetStreamStore


async def serve(
    process: Process, broker_id: str, reread: Callable[[], Settings | None] | None = None
) -> None:
    """Run one broker until the process is asked to stop. ``reread`` gives changed settings, for its address."""
    settings = process.settings
    configured = settings.broker(broker_id)
    if configured is None:
        known = ", ".join(broker.id for broker in settings.brokers)
        raise SettingError(
            "brokers", broker_id, "command line", "there is no such broker", f"Name one of {known}"
        )
    process.report("starting")
    security = link_security(settings, broker_id)
    site = Configured(settings, configured, reread)
    store = await JetStreamStore.open(
        settings.nats, "broker", name=f"broker {broker_id}", shares=settings.shares.by_name(settings.network)
    )
    cache_bytes = settings.budgets.results_cache_bytes
    results = DatasetFiles(ResultsReader(results_directory(settings), cache_bytes=cache_bytes))
    running: list[Broker] = []  # the newest is the last: a standby that takes a place is another broker
    try:
        async with served(configured, lambda: running[-1].sys_topics.figures() if running else {}) as metrics:
            if metrics:
                structlog.get_logger().info("figures for Prometheus are served", address=metrics)
            await run_broker(process, site, store, security, results, began=running.append)
    finally:
        await store.close()
