"""A tier under load: further routing brokers are started, get their part, and are emptied and stopped afterwards.

Routing brokers are held to a share of a processor by control groups. What the leader and the supervisor decide has
quick tests: ``tests/unit/core/tiers/test_elasticity.py`` and ``tests/unit/core/supervision/test_reserves.py``.
"""

from __future__ import annotations

import pytest

from bench.growth import measure
from tocsin_labs.pubsubcoord import quota

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        quota.place() is None,
        reason="holding a process to a share of a core needs root and control groups that can be written",
    ),
]


async def test_a_tier_grows_under_load_and_shrinks_without_it() -> None:
    found = await measure()
    assert (found.lost, found.doubled, found.out_of_order) == (0, 0, 0)
    assert max(len(look.members) for look in found.looks) >= 2
    assert [each.slots for each in found.looks[-1].members] == [1_024], (
        "the one that is left carries everything"
    )
