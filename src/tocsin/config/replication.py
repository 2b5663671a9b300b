"""The settings of copies that brokers have at their backups."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tocsin.config.section import Section

Mode = Literal["periodic", "threshold"]


class Replication(Section, frozen=True, kw_only=True):
    """When a broker's backups hear of its clients. Clients get messages of new subscriptions at once, in either
    mode.
    """

    mode: Annotated[
        Mode,
        Meta(
            description="When backups hear how far clients are: every `period_ms`, or when clients were sent "
            "`threshold_bytes` more than the backups know."
        ),
    ] = "periodic"
    period_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=600_000,
            description="Time between two looks at how far clients are, in mode `periodic`.",
        ),
    ] = 5_000
    threshold_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000_000_000,
            description="In mode `threshold`: how many bytes of messages and results all clients together may have "
            "been sent above QoS 0 that the backups do not know of, before the broker tells them. About so much is "
            "delivered twice if the broker fails.",
        ),
    ] = 100_000
    threshold: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="In mode `threshold`, the former way: the broker also tells its backups when the positions "
            "of so many clients differ. 0: only `threshold_bytes` counts.",
        ),
    ] = 0
    wait_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="How long a client waits at most, with what it subscribed to, for the backups of its broker; "
            "then the broker goes on without them, and is degraded until they have caught up.",
        ),
    ] = 500
