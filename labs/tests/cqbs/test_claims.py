"""Which of the paper's statements hold, from runs that never were."""

from __future__ import annotations

import msgspec

from tocsin_labs.cqbs.claims import of_coordinators, of_designs
from tocsin_labs.cqbs.coordinator import Coordinated
from tocsin_labs.cqbs.designs.run import Designed
from tocsin_labs.cqbs.plan import Design
from tocsin_labs.figures import Spread


def coordinated(mean: float) -> Coordinated:
    spread = Spread.of([mean])
    return Coordinated(1, 1, 90, 400, 0, 0, 50, 0, spread, spread, spread, None)


def designed(design: Design, mean: float, cpu_ms: float, *, equal: bool = False) -> Designed:
    return Designed(design, 1, coordinated(mean), cpu_ms, None, equal, 10.0, cpu_ms * 10)


def test_consensus_off_the_hot_path_has_to_gain_a_fifth() -> None:
    for mean, holds in ((7.9, True), (8.1, False)):
        (claim,) = of_designs([designed("logged", 10, 5), designed("ahead", mean, 5)])
        assert claim.holds is holds and "instead of 10 ms" in claim.evidence


def test_shared_queries_have_to_cost_less_to_ask_and_to_change() -> None:
    shared = designed("logged", 10, 3, equal=True)
    dear = designed("unshared", 10, 4, equal=True)
    assert [claim.holds for claim in of_designs([shared, dear])] == [True]
    cheap_to_ask = msgspec.structs.replace(dear, asking_cpu_ms=1.0)
    assert [claim.holds for claim in of_designs([shared, cheap_to_ask])] == [False]


def test_broadcast_is_expensive_if_it_needs_more_processor() -> None:
    for cpu_ms, holds in ((6.0, True), (4.0, False)):
        (claim,) = of_designs([designed("logged", 10, 5), designed("broadcast", 1, cpu_ms)])
        assert claim.holds is holds


def test_one_coordinator_is_compared_with_three_only_in_one_run() -> None:
    (claim,) = of_coordinators(coordinated(20.0), coordinated(10.0))
    assert claim.holds is False and "20 ms alone" in claim.evidence
    assert of_coordinators(coordinated(20.0), None) == []
    assert of_designs([designed("logged", 10, 5)]) == []
