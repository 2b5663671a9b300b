"""The settings of backups: how much a broker can carry, and what speaks for one rather than another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta

from tocsin.config.section import NAME, Section

TERMS = ("similarity", "nearness", "room", "resources")  # of the ranking of backups
RESOURCES = ("processor", "memory", "bandwidth", "battery")
DELAY = "delay"  # what a standby is scored by beside resources and criteria
CRITERIA_MAX = 16  # commands that every broker of a machine runs
WEIGHT_MAX = 1_000.0

Configuration = Literal["static", "mobile-servicing", "mobile-backup"]  # Landmark 4.2.2


class Preset(NamedTuple):
    """What a configuration says of one broker's score, by setting."""

    processor_weight: float
    memory_weight: float
    bandwidth_weight: float
    battery_weight: float
    battery_need: float


class Presets(NamedTuple):
    """A configuration: of brokers that serve clients, and of standbys."""

    serving: Preset
    standby: Preset


EVEN: Final = Preset(1.0, 1.0, 1.0, 1.0, battery_need=1.0)
# The weights of the paper's figure 7. The hours are ours, a shift: who takes a place has it until somebody has mended
# the broker, and with one hour a laptop would be as good as mains.
FIELD: Final = Preset(1.0, 1.0, 60.0, 50.0, battery_need=8.0)
PRESETS: Final[Mapping[Configuration, Presets]] = {
    "static": Presets(serving=EVEN, standby=EVEN),
    "mobile-servicing": Presets(serving=FIELD, standby=FIELD),
    "mobile-backup": Presets(serving=EVEN, standby=FIELD),
}
# None: what the configuration says.
Weight = Annotated[float, Meta(ge=0.0, le=WEIGHT_MAX)] | None
Hours = Annotated[float, Meta(ge=0.0, le=10_000.0)] | None


Strategy = Literal["search", "lcs_mmcs", "random"]


class Recovery(Section, frozen=True, kw_only=True):
    """The choice of backups, and the takeover of a lost broker."""

    capacity: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000,
            description="(client, subscription) pairs that a broker can carry, those of the brokers that it backs "
            "included. 0: twice the mean of all beside its own and the largest other, so that backups are spread.",
        ),
    ] = 0
    capacity_bytes_per_s: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000_000,
            description="The same bound as data: bytes a second that a broker can send to clients, those of the "
            "brokers that it backs included, by measured rates. Set this or `capacity`, not both. 0: pairs count.",
        ),
    ] = 0
    strategy: Annotated[
        Strategy,
        Meta(
            description="How backups are chosen. `search`: as few additional subscriptions as can be found, and few "
            "moves. `lcs_mmcs`: Least Cost Selection and Min Max Cost Selection, as published for REAPS, anew with "
            "each plan. `random`: any broker with room, to compare with."
        ),
    ] = "search"
    promote_after_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600_000,
            description="How long a broker is lost before a standby takes its place for good. More than 0 is for "
            "brokers that take longer to restart than to be missed.",
        ),
    ] = 0
    standby_guests: Annotated[
        Literal["move", "stay"],
        Meta(
            description="What becomes of clients that are at another broker when a standby takes their broker's place. "
            "`move`: they go to the standby. `stay`: they stay until their own broker is back, while the broker where "
            "they are is less than half full; so each client moves once."
        ),
    ] = "move"
    standbys_wanted: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000,
            description="Free standbys that a cluster should have after one of its standbys was promoted. While it "
            "has fewer, an edge broker with `may_stand_by` is emptied and stands by. 0: nobody is recruited.",
        ),
    ] = 0
    recruit_after_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="How long a cluster lacks standbys before an edge broker is recruited, and how long it has "
            "enough before that broker serves again. A broker that is back sooner moves nobody.",
        ),
    ] = 60
    will_grace_s: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600,
            description="How long a client of a lost broker has to come to another before its will is published.",
        ),
    ] = 30
    similarity_weight: Annotated[
        float,
        Meta(
            ge=0.01,
            le=WEIGHT_MAX,
            description="Weight of what a backup need not create: the share of the broker's subscriptions that it "
            "has anyway. Weights are divided by their sum.",
        ),
    ] = 0.6
    nearness_weight: Annotated[
        float, Meta(ge=0.0, le=WEIGHT_MAX, description="Weight of being near: 1 / (1 + distance).")
    ] = 0.1
    room_weight: Annotated[
        float,
        Meta(ge=0.0, le=WEIGHT_MAX, description="Weight of the share of `capacity` that would be left."),
    ] = 0.1
    resources_weight: Annotated[
        float,
        Meta(
            ge=0.0,
            le=WEIGHT_MAX,
            description="Weight of the score of the broker's machine, which `[scoring]` makes.",
        ),
    ] = 0.2

    def weights(self) -> dict[str, float]:
        """The weight of each term of the ranking of backups."""
        return {name: getattr(self, f"{name}_weight") for name in TERMS}


class Criterion(Section, frozen=True, kw_only=True):
    """A criterion of the operator's: a command that says how fit the machine is, from 0 to 1."""

    name: Annotated[
        str, Meta(pattern=NAME, description="Unique name: lower-case letters, digits and hyphens.")
    ]
    command: Annotated[
        tuple[Annotated[str, Meta(max_length=4_096)], ...],
        Meta(
            min_length=1,
            max_length=64,
            description="Program and arguments, each a text; no shell reads them. Its first line is a number from "
            "0 (unfit) to 1.",
        ),
    ]
    weight: Annotated[
        float,
        Meta(ge=0.0, le=WEIGHT_MAX, description="How much it counts, beside the weights of resources."),
    ] = 1.0
    timeout_ms: Annotated[
        int, Meta(ge=10, le=60_000, description="How long it may take; then it is killed, and counts 0.")
    ] = 1_000
    every_s: Annotated[
        float, Meta(ge=0.1, le=86_400.0, description="Time from the end of one run to the next.")
    ] = 10.0


class Scoring(Section, frozen=True, kw_only=True):
    """How the machine of a broker is scored: what is needed of each resource, and how much each counts."""

    configuration: Annotated[
        Configuration,
        Meta(
            description="Which brokers run on batteries and radio. `static`: none. `mobile-servicing`: those that "
            "serve clients; for them and for standbys bandwidth weighs 60, the battery 50 and the others 1, and 8 "
            "hours suffice, so that mains are preferred. `mobile-backup`: standbys; the same for them alone. A weight "
            "or a need that you set yourself is stronger."
        ),
    ] = "static"
    processor_weight: Annotated[
        Weight, Meta(description="Weight of free cores: 1. Weights are divided by their sum.")
    ] = None
    memory_weight: Annotated[Weight, Meta(description="Weight of free memory: 1.")] = None
    bandwidth_weight: Annotated[
        Weight,
        Meta(
            description="Weight of the link's speed: 1, mobile 60; of a standby, as it has measured it to the lost "
            "broker's peers.",
        ),
    ] = None
    delay_weight: Annotated[
        float,
        Meta(
            ge=0.0,
            le=WEIGHT_MAX,
            description="Weight of a standby's round trip to the lost broker's peers: 1 / (1 + ms / 50).",
        ),
    ] = 1.0
    battery_weight: Annotated[
        Weight, Meta(description="Weight of the battery's remaining time: 1, mobile 50.")
    ] = None
    processor_need: Annotated[
        float,
        Meta(ge=0.0, le=10_000.0, description="Free cores that suffice; each one too few divides by e."),
    ] = 1.0
    memory_need: Annotated[
        float, Meta(ge=0.0, le=100_000.0, description="Free GiB that suffice; each one too few divides by e.")
    ] = 1.0
    bandwidth_need: Annotated[
        float, Meta(ge=0.0, le=100_000.0, description="Mbit/s that suffice; each one too few divides by e.")
    ] = 10.0
    battery_need: Annotated[
        Hours,
        Meta(
            description="Hours on battery that suffice: 1, mobile 8; each one too few divides by e. On mains there are "
            "enough.",
        ),
    ] = None
    bandwidth_mbit: Annotated[
        float,
        Meta(
            ge=0.0,
            le=800_000.0,
            description="Speed of the link to other brokers, in Mbit/s. 0: what the interface says, if it does.",
        ),
    ] = 0.0
    every_s: Annotated[
        float, Meta(ge=0.1, le=3_600.0, description="Time between two looks at the machine.")
    ] = 5.0
    criteria: Annotated[
        tuple[Criterion, ...],
        Meta(
            max_length=CRITERIA_MAX,
            description="Criteria of your own, as `[[scoring.criteria]]` tables; from the environment or `--set` a "
            "JSON array.",
        ),
    ] = ()

    def weights(self, *, standby: bool = False) -> dict[str, float]:
        """The weight of each resource, of a broker that serves clients or of a standby."""
        return {name: self.in_effect(f"{name}_weight", standby) for name in RESOURCES}

    def standby_weights(self) -> dict[str, float]:
        """The weight of everything that a standby is scored by."""
        own = {each.name: each.weight for each in self.criteria}
        return {**self.weights(standby=True), DELAY: self.delay_weight, **own}

    def needs(self, *, standby: bool = False) -> dict[str, float]:
        """The sufficient amount of each resource: cores, GiB, Mbit/s, hours."""
        return {name: self.in_effect(f"{name}_need", standby) for name in RESOURCES}

    def changed(self, *, standby: bool = False) -> dict[str, tuple[float, float]]:
        """The settings that the configuration has changed: what ``static`` says, and what counts."""
        static = PRESETS["static"].standby._asdict()
        found = {name: (value, self.in_effect(name, standby)) for name, value in static.items()}
        return {
            name: pair for name, pair in found.items() if getattr(self, name) is None and pair[0] != pair[1]
        }

    def in_effect(self, name: str, standby: bool) -> float:
        """A weight or a need: as it is set, or else as the configuration has it."""
        presets = PRESETS[self.configuration]
        own: float | None = getattr(self, name)
        said: float = getattr(presets.standby if standby else presets.serving, name) if own is None else own
        return said
