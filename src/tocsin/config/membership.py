"""The settings of heartbeats, and of how soon silence counts: two sets of them by name, each value by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta

from tocsin.config.section import Section

Detect = Literal["default", "aggressive"]


class Pace(NamedTuple):
    """The tuning that a name stands for."""

    heartbeat_ms: int
    phi: float
    least_ms: int


PACES: Final[Mapping[Detect, Pace]] = {
    "default": Pace(1_000, 6.0, 1_650),
    "aggressive": Pace(250, 4.0, 570),
}
LEAST: Final[Mapping[str, int]] = {"heartbeat_ms": 50, "phi": 1, "suspect_least_ms": 100}  # unless it is 0


class Membership(Section, frozen=True, kw_only=True):
    """How brokers show that they are alive, and how soon their silence counts."""

    detect: Annotated[
        Detect,
        Meta(
            description="How soon a broker that is gone is missed. `aggressive`: sooner, with four times the "
            "heartbeats, and rather once too often."
        ),
    ] = "default"
    heartbeat_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="Time between two heartbeats of a broker, at least 50. "
            "0: as `membership.detect` has it (1000, aggressive 250).",
        ),
    ] = 0
    phi: Annotated[
        float,
        Meta(
            ge=0.0,
            le=16.0,
            description="A broker that is alive is taken for lost once in 10^phi heartbeats at most, at least 1. "
            "0: as `membership.detect` has it (6, aggressive 4).",
        ),
    ] = 0.0
    suspect_least_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="No shorter silence counts, at least 100. "
            "0: as `membership.detect` has it (1650, aggressive 570).",
        ),
    ] = 0
    suspect_after_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=600_000,
            description="Silence after which a broker is suspected whatever is known of it, and by which a broker "
            "knows that it is; at least two heartbeats.",
        ),
    ] = 5_000

    @property
    def beat_ms(self) -> int:
        """The time between heartbeats that counts."""
        return self.heartbeat_ms or PACES[self.detect].heartbeat_ms

    @property
    def threshold(self) -> float:
        """The phi that counts."""
        return self.phi or PACES[self.detect].phi

    @property
    def least_ms(self) -> int:
        """The shortest silence that counts."""
        return self.suspect_least_ms or PACES[self.detect].least_ms
