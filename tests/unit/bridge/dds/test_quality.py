"""Which quality an endpoint of the bridge must have so that it matches all that it serves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.bridge.dds.quality import FOREVER, Durability, Liveliness, Quality, mismatches, strictest, weakest

durations = st.sampled_from((1, 1_000, 10**9, FOREVER))
qualities = st.builds(
    Quality,
    reliable=st.booleans(),
    durability=st.sampled_from(Durability),
    deadline_ns=durations,
    budget_ns=st.sampled_from((0, 1_000, FOREVER)),
    liveliness=st.sampled_from(Liveliness),
    lease_ns=durations,
    by_source=st.booleans(),
    depth=st.integers(0, 5),
)


@given(st.lists(qualities, min_size=1, max_size=5))
def test_a_writer_of_ours_matches_every_reader_that_it_serves(requests: list[Quality]) -> None:
    offered = strictest(requests)
    assert all(mismatches(offered, each) == () for each in requests)
    assert offered.depth == (
        0 if any(not each.depth for each in requests) else max(r.depth for r in requests)
    )


@given(st.lists(qualities, min_size=1, max_size=5), qualities)
def test_a_reader_of_ours_matches_every_writer_of_its_group(offers: list[Quality], like: Quality) -> None:
    alike = [
        Quality(
            like.reliable,
            like.durability,
            deadline_ns=each.deadline_ns,
            budget_ns=each.budget_ns,
            liveliness=each.liveliness,
            lease_ns=each.lease_ns,
            by_source=each.by_source,
        )
        for each in offers
    ]
    requested = weakest(alike)
    assert all(mismatches(each, requested) == () for each in alike)
    assert (requested.reliable, requested.durability) == (like.reliable, like.durability)


def test_mismatches_are_named_as_dds_has_them() -> None:
    offered = Quality(deadline_ns=10, lease_ns=10, budget_ns=5)
    requested = Quality(True, Durability.TRANSIENT, True, deadline_ns=9, lease_ns=9, by_source=True)
    assert mismatches(offered, requested) == (
        "reliability",
        "durability",
        "ownership",
        "deadline",
        "latency budget",
        "liveliness",
        "destination order",
    )
