"""The settings of coordinators."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tocsin.config.section import Section


class Coordinator(Section, frozen=True, kw_only=True):
    """Who leads, and what is kept of streams and queries."""

    lease_s: Annotated[
        int,
        Meta(
            ge=1,
            le=60,
            description="How long a leader that is not heard of keeps its place, in whole seconds.",
        ),
    ] = 2
    snapshot_every: Annotated[
        int,
        Meta(
            ge=100,
            le=10_000_000,
            description="Commands after which the state is written down, and the log before it is forgotten.",
        ),
    ] = 50_000
    streams_max: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Streams of the whole network whose metadata are kept.")
    ] = 1_000_000
    queries_max: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Different queries of the whole network.")
    ] = 1_000_000
    publishers_max: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Clients of the whole network that publish, also those away; the topics of further ones "
            "are no streams.",
        ),
    ] = 1_000_000
    keep_s: Annotated[
        int,
        Meta(
            ge=0,
            le=10 * 365 * 86_400,
            description="How long metadata are kept of a stream on which nobody publishes any more.",
        ),
    ] = 604_800
