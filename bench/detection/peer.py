"""The detectors that are compared: ours at its two paces, and fixed time-outs as peers.

A fixed time-out suspects a broker that is silent for longer, and knows nothing of itself. One of the peers is what is
common, the others are as quick as ours where all is well.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tocsin.config import Membership
from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.leader.broker_watch import Attention
from tocsin.core.coordination.leader.leader import Leader
from tocsin.core.survival.detection import Detector, Tuning


class Fixed(Detector):
    """Suspects after ``most_us``, whatever was heard before and however the observer is."""

    def __init__(self, tuning: Tuning, now_us: int) -> None:
        super().__init__(msgspec.structs.replace(tuning, asks=False), now_us)

    def patience_us(self, broker: str, *, crowd: bool = False) -> int:
        return self.tuning.most_us

    def _wake(self, now_us: int) -> None:
        pass


class FixedCoordinator(Coordinator):
    """A coordinator whose brokers have a fixed time-out."""

    class leading(Leader):
        class attending(Attention):
            detecting = Fixed


class Contender(NamedTuple):
    """A detector with its settings."""

    name: str
    membership: Membership
    fixed: bool = False

    @property
    def coordinator(self) -> type[Coordinator]:
        return FixedCoordinator if self.fixed else Coordinator


CONTENDERS: Final = (
    Contender("adaptive, default", Membership()),
    Contender("adaptive, aggressive", Membership(detect="aggressive")),
    Contender("fixed 5 s, beats of 1 s", Membership(heartbeat_ms=1_000, suspect_after_ms=5_000), True),
    Contender("fixed 1.66 s, beats of 0.5 s", Membership(heartbeat_ms=500, suspect_after_ms=1_660), True),
    Contender("fixed 0.57 s, beats of 0.25 s", Membership(heartbeat_ms=250, suspect_after_ms=570), True),
)
