"""The settings of coordinators."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tocsin.config.section import Section


class Coordinator(Section, frozen=True, kw_only=True):
    """Leadership, and the state that is kept of streams and queries."""

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
    snapshot_every_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 40,
            description="Bytes of what follows from commands after which the state is written down as well. "
            "Four times as many, and brokers wait for it.",
        ),
    ] = 64 << 20
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
    streams_max_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 40,
            description="Bytes of all streams of the network, with their metadata and publishers. When they "
            "are used up, streams without a publisher go first; then new ones are refused.",
        ),
    ] = 512 << 20
    queries_max_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 40,
            description="Bytes of all queries of the network, with the streams that satisfy them.",
        ),
    ] = 64 << 20
    user_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Percent of `streams_max_bytes` that one user may have: streams that its clients describe, and "
            "the topics on which they were the first to publish. Clients without a name are one user.",
        ),
    ] = 50
    told_burst_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 40,
            description="Bytes that brokers may have to be told at once because of one user's queries and "
            "metadata. A user who is over it is refused until `told_rate_bytes` has made up for "
            "it.",
        ),
    ] = 256 << 20
    told_rate_bytes: Annotated[
        int,
        Meta(ge=0, le=1 << 40, description="Bytes a second of the same, on average. 0: no limit."),
    ] = 4 << 20
