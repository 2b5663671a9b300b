"""The settings of latency budgets: what a broker does so that messages come in time."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tocsin.config.section import Section


class Deadline(Section, frozen=True, kw_only=True):
    """Copies over second ways, for topics with a latency budget. Bounds are those of one broker."""

    miss_goal: Annotated[
        float,
        Meta(
            ge=0.000_001,
            le=0.5,
            description="Share of messages that may come later than their budget. A topic for which more are expected "
            "gets further ways.",
        ),
    ] = 0.001
    ways_max: Annotated[
        int,
        Meta(
            ge=1,
            le=4,
            description="Ways that a message takes at most, with the usual one. 1: no copies are sent.",
        ),
    ] = 3
    links_max: Annotated[
        int,
        Meta(
            ge=0, le=256, description="Extra connections to other brokers that are made for copies at most."
        ),
    ] = 16
    flows_max: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="Topics that have copies sent at most, each counted for each broker that they go to.",
        ),
    ] = 1_000
    share_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=400,
            description="Bytes of copies at most, as a share of what goes over the broker's links beside them.",
        ),
    ] = 20
    spare_bytes_s: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 30,
            description="Bytes of copies a second that may be sent in any case, however little goes over links.",
        ),
    ] = 65_536
