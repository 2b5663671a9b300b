"""The settings of the pipeline, and of the Spark that runs it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tocsin.config.section import Section

Enabled = Literal["auto", "always", "never"]
CONF_MAX = 500  # Spark has some 1 200 settings in all
PATH_MAX_CHARS = 4_096  # as Linux has it (PATH_MAX)
HEAP = r"^[1-9][0-9]{0,6}[mg]$"  # as Java has it, in whole megabytes or gigabytes


class Pipeline(Section, frozen=True, kw_only=True):
    """Datasets, feeds and channels."""

    enabled: Annotated[
        Enabled,
        Meta(
            description="Whether `tocsin up` starts the pipeline; `auto`: if the extra `tocsin[spark]` is installed."
        ),
    ] = "auto"
    storage: Annotated[
        str,
        Meta(
            max_length=PATH_MAX_CHARS,
            description="Directory of the datasets; Spark's workers, and brokers that can, read it under the same "
            "path. Empty: `datasets` in the state directory.",
        ),
    ] = ""
    tick_ms: Annotated[
        int,
        Meta(ge=10, le=60_000, description="Least time from one look for channels that are due to the next."),
    ] = 50
    continuous_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="Least time from one execution of a continuous channel to the next.",
        ),
    ] = 100
    channels_per_tick: Annotated[
        int,
        Meta(ge=1, le=10_000, description="Channels that one tick executes; others that are due are next."),
    ] = 500
    ingest_batch: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Records of feeds that are taken in between two ticks."),
    ] = 20_000
    execution_deadline_s: Annotated[
        float,
        Meta(
            ge=1.0,
            le=86_400.0,
            description="How long one execution may take; then it is stopped and counts as failed.",
        ),
    ] = 120.0
    results_keep_s: Annotated[
        int,
        Meta(
            ge=600,
            le=10 * 365 * 86_400,
            description="How long results are kept at least, as history; also a client that is away for longer misses "
            "what is older.",
        ),
    ] = 604_800
    metrics_host: Annotated[
        str, Meta(description="Address on which the pipeline's figures can be fetched; anybody there may.")
    ] = "127.0.0.1"
    metrics_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="Port of the pipeline's figures for Prometheus, at `/metrics`. -1: none; 0: choose a free one.",
        ),
    ] = -1


class Spark(Section, frozen=True, kw_only=True):
    """The Spark that the pipeline starts, or joins."""

    master: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=512,
            description="Where Spark runs: `local[*]` in this process's own Java, `spark://host:7077`, `yarn`, "
            "`k8s://https://host:port`.",
        ),
    ] = "local[*]"
    heap: Annotated[
        str, Meta(pattern=HEAP, description="Memory of the driver's Java, such as `2g` or `512m`.")
    ] = "2g"
    packages: Annotated[
        tuple[str, ...],
        Meta(max_length=64, description="Maven packages for Spark, as `group:artifact:version`."),
    ] = ()
    ui_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="Port of Spark's own pages, on this machine only (127.0.0.1), or the next free one. They ask "
            "for no password. 0: choose a free one. -1: no pages.",
        ),
    ] = -1
    start_deadline_s: Annotated[
        float, Meta(ge=1.0, le=3_600.0, description="How long Spark may take to start.")
    ] = 120.0
    conf: Annotated[
        dict[str, str],
        Meta(
            max_length=CONF_MAX,
            description="Any setting of Spark, by its own name, as `[spark.conf]`; from the environment or `--set` a "
            "JSON object. These beat ours.",
        ),
    ] = msgspec.field(default_factory=dict)
