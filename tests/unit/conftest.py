"""One Spark for all tests of a test process. Tests that use it carry ``pytest.mark.xdist_group("spark")``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.pipeline.conftest import CONF, JAVA_OPTIONS, spark_settings
from tocsin.pipeline.spark.session import Options, Spark, cache_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def started_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """The Spark behind ``spark``; skips, in words, where the extra is not installed."""
    for package in ("pyspark", "deltalake", "sqlglot"):
        pytest.importorskip(package, reason="install the extra tocsin[spark]")
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
