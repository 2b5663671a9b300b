"""A pipeline in small, to have Spark do once, out of anybody's way, what it is slow at the first time.

A dataset, a channel over what is new in it, a subscription, an append, an execution, a commit; all in a directory
that is removed. The first time Spark loads and compiles for seconds what then takes tens of milliseconds. It is
played when the pipeline starts, before anybody waits for a result, and in the rehearsal that makes the archive of
classes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tocsin.model.catalogue import Channel, Column, Dataset, Parameter
from tocsin.model.results import BackendSubscription, encode_subscription
from tocsin.pipeline.engine import Due, Engine
from tocsin.pipeline.plan import compile_channel
from tocsin.pipeline.storage.datasets import DatasetStore
from tocsin.pipeline.storage.results import ResultsStore
from tocsin.pipeline.subscriptions import Subscriptions
from tocsin.ports import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S: Final = 120.0
REPORTS: Final = Dataset("Played", (Column("about", "STRING"), Column("size", "DOUBLE")))
CHANNEL: Final = Channel(
    "Play",
    (Parameter("about", "STRING"),),
    (Column("about", "STRING"), Column("size", "DOUBLE")),
    "SELECT p.about, p.size FROM NEW Played p WHERE p.about = :about AND p.size > 1.0",
)


def play(spark: SparkSession, directory: Path, *, encore: bool = False) -> int:
    """Play it; the number of results, which is 1. With ``encore``, again with a table that is folded, and cached."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        store, results = DatasetStore(directory / "data"), ResultsStore(directory / "results")
        store.create(REPORTS)
        subscriptions = Subscriptions()
        subscription = BackendSubscription(CHANNEL.name, ("rain",), "nobody")
        subscriptions.apply(Change("put", subscription.key, encode_subscription(subscription), 1))
        engine = Engine(
            spark,
            store,
            subscriptions,
            results=results.root,
            directory=directory / "subscriptions",
            run="play",
            deadline_s=DEADLINE_S,
        )
        try:
            engine.define(compile_channel(CHANNEL, {REPORTS.name: REPORTS}))
            store.append(REPORTS.name, pa.table({"about": ["rain", "wind"], "size": [2.0, 3.0]}), now_us=1)
            due = [Due(CHANNEL.name, 1, {REPORTS.name.lower(): 0})]
            ran = engine.execute(due, tick=1, at_us=1)
            if encore:
                engine.fold()
                ran = engine.execute(due, tick=1, at_us=1)
            return results.commit(1, ran.parts, at_us=1).rows
        finally:
            engine.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
