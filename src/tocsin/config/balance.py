"""The settings of moving connected clients: from a broker that is being emptied, and from full to empty ones."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tocsin.config.section import Section


class Balance(Section, frozen=True, kw_only=True):
    """Moving connected clients from one broker to another."""

    mode: Annotated[
        Literal["off", "on"],
        Meta(
            description="`on`: clients that follow redirects are moved from the fullest edge broker of a cluster to "
            "the emptiest. `tocsin drain` works in either mode."
        ),
    ] = "off"
    rate: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Clients a second that one broker lets go, to balance or because it is being emptied.",
        ),
    ] = 50
    threshold_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Clients are moved if the fullest broker is fuller than the emptiest by more than this share "
            "of `limits.connections_max`.",
        ),
    ] = 20
    rest_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="How long a client stays after it came, before it may be moved to balance.",
        ),
    ] = 60
    grace_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="How long a broker that is being emptied waits before it also lets clients go that are not "
            "known to follow a redirect. They find another broker by their own list of addresses.",
        ),
    ] = 30
