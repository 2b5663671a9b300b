"""One Spark for all tests of a test process. Tests that use it carry ``pytest.mark.xdist_group("spark")``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tocsin import config
from tocsin.pipeline.spark import Options, Spark, cache_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # little memory, a quick start

# Two cores; then one that Tocsin overrules, and a text with all that a properties file could take amiss.
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.ansi.enabled": "true",
    "spark.tocsin.text": "a=b:c\\d e",
}


def spark_settings(**chosen: object) -> config.Spark:
    """Settings for a small Spark on two cores."""
    return config.Spark(**{"master": "local[2]", "heap": "1g", "ui_port": -1, **chosen})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def started_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """The Spark behind ``spark``; skips, in words, where the extra is not installed."""
    for package in ("pyspark", "deltalake", "sqlglot"):
        pytest.importorskip(package, reason="install the extra tocsin[spark]")
    import os

    directory: Path = tmp_path_factory.mktemp("spark")
    options = Options(
        settings=spark_settings(conf=CONF),
        work=directory / "work",
        log=directory / "spark.log",
        cache=cache_directory(os.environ, directory),
        java_options=JAVA_OPTIONS,
    )
    started = Spark(options)
    started.launch()
    started.connect()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def spark(started_spark: Spark) -> SparkSession:
    return started_spark.session
