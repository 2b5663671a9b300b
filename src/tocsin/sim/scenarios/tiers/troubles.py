"""When something is wrong, so that messages may be lost, come twice or overtake each other.

What an operator does is no trouble: a planned move costs nothing. Nor is the loss of a routing broker, from a moment
after its links have broken. Its own clients are another matter: they lose it, and an operator who empties it has them
let go.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tocsin.sim.chance import MILLION
from tocsin.sim.faults.kinds import Crash, Fault, LeaderLoss
from tocsin.sim.scenarios.links.traffic import LinkCut
from tocsin.sim.scenarios.tiers.traffic import Drain
from tocsin.sim.world import World

FLIGHT_US: Final = 1_500_000  # longer than a message travels, with a pause of a planned move
DEPUTY_US: Final = 300_000  # after a crash of a routing broker; its links break when the others hear of it
BACK_US: Final = 6 * MILLION  # until a process that is back has joined, and has its links and routes
FOREVER_US: Final = 1 << 60
SILENT_US: Final = 14 * MILLION  # until a link that carries nothing is given up, and what follows is over

Span = tuple[int, int, str, int]  # from, until; whose clients have it longer, and until when


class Troubles:
    """The troubles of one run."""

    def __init__(
        self,
        world: World,
        cuts: Sequence[LinkCut],
        drains: Sequence[Drain],
        hubs: Collection[str],
        begin_us: int,
    ) -> None:
        self._world = world
        self._cuts = cuts
        self._drains = drains
        self._hubs = hubs
        self._begin_us = begin_us
        self._known: list[Span] | None = None

    def calm(self, at_us: int, *ends: str) -> bool:
        """Whether a message that is published then, from the one end to the other, must come, once and in order."""
        if at_us < self._begin_us:
            return False
        return not any(
            began - FLIGHT_US <= at_us < (ended if whose not in ends else longer)
            for began, ended, whose, longer in self._spans()
        )

    def _spans(self) -> list[Span]:
        if self._known is None:
            spans = [span for fault in self._world.plan for span in self._of(fault)]
            for cut in self._cuts:
                until_us = cut.at_us if cut.until_us is None else cut.until_us
                spans.append((cut.at_us, until_us + SILENT_US, "", 0))
            for drain in self._drains:
                began_us = drain.at_us + FLIGHT_US  # so that nobody else has a trouble
                spans.append((began_us, drain.at_us, drain.broker, FOREVER_US))
            self._known = spans
        return self._known

    def _of(self, fault: Fault) -> list[Span]:
        end_us = fault.at_us + fault.for_us
        if fault.at_us < self._begin_us:  # brokers may join late, and streams be declared late
            return [(fault.at_us, max(self._begin_us, end_us) + SILENT_US, "", 0)]
        if isinstance(fault, Crash) and fault.node.startswith("coordinator"):
            return []
        if isinstance(fault, LeaderLoss):
            return []
        alone = sum(isinstance(each, Crash) and each.node in self._hubs for each in self._world.plan) == 1
        if isinstance(fault, Crash) and fault.node in self._hubs and alone:
            return [(fault.at_us, fault.at_us + DEPUTY_US, fault.node, end_us + BACK_US)]
        if isinstance(fault, Crash):
            return [(fault.at_us, end_us + BACK_US, "", 0)]
        return [(fault.at_us, end_us + SILENT_US, "", 0)]
