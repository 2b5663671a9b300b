"""The pipeline process. The imports that start Spark's Java come first, all others while it starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from tocsin.config import Settings
from tocsin.model.channel_names import ChannelNames
from tocsin.pipeline.spark.session import Options, Spark, cache_directory, master_problem
from tocsin.runtime.extra import check_installed
from tocsin.runtime.process import Process
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.process_lease import ProcessLease

if TYPE_CHECKING:
    from tocsin.pipeline.assembly import Pipeline

QUERIES: Final = 2  # questions that are answered at a time


def options_of(settings: Settings) -> Options:
    state = Path(settings.state).absolute()
    return Options(
        settings=settings.spark,
        work=state / "spark",
        log=state / "logs" / "spark.log",
        cache=cache_directory(os.environ, state),
        secret=state / "spark-secret",
    )


async def serve(process: Process) -> None:
    """Run the pipeline until the process is asked to stop."""
    check_installed()
    if (problem := master_problem(process.settings.spark.master)) is not None:
        raise problem
    process.report("starting", problem="connecting to the store")
    spark = Spark(options_of(process.settings))
    try:
        async with contextlib.AsyncExitStack() as stack:
            opening = asyncio.create_task(stack.enter_async_context(opened(process, spark)))
            stopped = asyncio.create_task(process.stopped())
            await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if opening.done():
                await opening.result().run()
            else:  # nobody waits for a Spark that is not wanted any more
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
    finally:
        await asyncio.to_thread(spark.stop)


@contextlib.asynccontextmanager
async def opened(process: Process, spark: Spark) -> AsyncIterator[Pipeline]:
    """The pipeline with everything that it needs; closed in the opposite order."""
    settings = process.settings
    places = ChannelNames(settings.network)
    run = secrets.token_hex(4)
    connecting: asyncio.Task[Any] | None = None
    threads = ThreadPoolExecutor(1, thread_name_prefix="pipeline")
    queries = ThreadPoolExecutor(QUERIES, thread_name_prefix="query")
    store = await JetStreamStore.open(
        settings.nats, "pipeline", name="pipeline", shares=settings.shares.by_name(settings.network)
    )
    try:
        lease = ProcessLease(await store.table(places.progress), run)
        await lease.acquire(
            lambda holder: process.report("starting", problem=f"waiting for the pipeline at {holder}")
        )
        try:
            # Behind the lease: nobody else uses the directories. In the main thread: the leash ends with its thread.
            structlog.get_logger().info("starting Spark", master=settings.spark.master)
            spark.launch()
            first = "" if spark.is_rehearsed else " (the first time takes longer)"
            process.report("starting", problem=f"starting Spark{first}")
            connecting = asyncio.create_task(asyncio.to_thread(spark.connect))
            kind = await asyncio.to_thread(_assembly)
            pipeline = kind(process, spark, store, places, lease, threads, queries, run)
            await pipeline.open(connecting)
            yield pipeline
            pipeline.close()
        finally:
            await lease.release()
    finally:
        if connecting is not None:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
        queries.shutdown(wait=False, cancel_futures=True)
        threads.shutdown(wait=False, cancel_futures=True)
        await store.close()


def _assembly() -> type[Pipeline]:
    from tocsin.pipeline.assembly import Pipeline

    return Pipeline
