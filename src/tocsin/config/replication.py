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
            description="When backups hear how far clients are: every `period_ms`, or when as many clients as "
            "`threshold` are further than the backups know."
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
    threshold: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="How many clients' positions may differ from what the backups know, in mode "
            "`threshold`, before the broker sends them.",
        ),
    ] = 100
    wait_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="How long a client waits at most, with what it subscribed to, for the backups of its broker; "
            "then the broker goes on without them, and is degraded until they have caught up.",
        ),
    ] = 500
