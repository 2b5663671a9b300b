"""The names of a network's logs and tables in the store, and the options of its coordinators."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.core.coordination.leader.balancing import BalanceRules
from tocsin.core.coordination.leader.placing import PlacingRules
from tocsin.core.coordination.leader.recruiting import RecruitRules
from tocsin.core.survival.detection import Tuning
from tocsin.core.tiers.elasticity import GrowthRules
from tocsin.model.versions import RAISE_AFTER_US
from tocsin.ports import LogSpec, TableSpec
from tocsin.wire.internal.commands import Limits

# Entries of the command log, notices among them, that are kept before a snapshot: minutes of a busy network.
MARGIN: Final = 10_000
# Items of a snapshot, or streams of a query, that are put back at a time: some ten milliseconds.
SLICE: Final = 200


class StoreNames(msgspec.Struct, frozen=True):
    """The logs and the table of one network's coordinators, and the subjects in them."""

    network: str

    @property
    def commands(self) -> LogSpec:
        return LogSpec(f"{self.network}-commands", (self.commands_subject, f"{self.network}.n.>"))

    @property
    def snapshots(self) -> LogSpec:
        return LogSpec(f"{self.network}-snapshots", (f"{self.network}.s.>",))

    @property
    def table(self) -> TableSpec:
        return TableSpec(f"{self.network}-coordination")

    @property
    def commands_subject(self) -> str:
        """The subject of batches of commands."""
        return f"{self.network}.c"

    def notices_subject(self, broker: str) -> str:
        """The subject of one broker's notices."""
        return f"{self.network}.n.{broker}"

    def snapshot_subject(self, name: str) -> str:
        """The subject of one snapshot's pieces."""
        return f"{self.network}.s.{name}"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a coordinator works."""

    suspect_after_us: int  # silence of a broker after which it counts as lost, whatever is known of it
    lease_us: int
    promote_after_us: int = 0  # that a broker is lost before a standby takes its place
    snapshot_every: int  # commands
    snapshot_every_bytes: int = 64 << 20  # … or so much that followed from them
    wait_bytes: int = (
        256 << 20
    )  # in the command log beyond the last snapshot: then brokers have to wait for one
    margin: int = MARGIN
    slice_size: int = SLICE
    limits: Limits = Limits()
    raise_after_us: int = (
        RAISE_AFTER_US  # that every broker speaks a higher level before the network works at it
    )
    heartbeat_us: int = 500_000  # of brokers that have not said how often they beat
    suspect_least_us: int = 1_000_000  # no shorter silence counts
    balance: BalanceRules = BalanceRules()
    recruit: RecruitRules = RecruitRules()
    placing: PlacingRules = PlacingRules()
    growth: GrowthRules = GrowthRules()
    guests_stay: bool = (
        False  # where they are, instead of going to a standby that has taken their broker's place
    )
    phi: float = 6.0  # a broker that is alive counts as lost once in 10**phi beats at most

    @property
    def tuning(self) -> Tuning:
        """How brokers are judged."""
        return Tuning(
            phi=self.phi,
            least_us=min(self.suspect_least_us, self.suspect_after_us),
            most_us=self.suspect_after_us,
            heartbeat_us=self.heartbeat_us,
            doubt_us=self.lease_us + self.heartbeat_us,
            asks=True,
        )
