"""Which joins there are, and when one counts as in force."""

from __future__ import annotations

from collections import Counter

import pytest

from tocsin_labs.pubsubcoord.joiners import Waiting, joins
from tocsin_labs.pubsubcoord.plan import Joining

MS = 1_000_000


@pytest.mark.parametrize("count", [2_000, 10_000])
def test_joins_differ_and_every_broker_and_topic_has_as_many(count: int) -> None:
    plan = Joining()
    found = joins(plan, count)
    assert len(set(found)) == count
    assert {*Counter(edge for edge, _ in found).values()} == {count // plan.edges}
    assert {*Counter(topic for _, topic in found).values()} == {count // plan.topics}


def test_a_join_is_in_force_when_all_hubs_and_the_publisher_know() -> None:
    waiting = Waiting(hubs=2)
    waiting.send("edge-1", "t", 0)
    waiting.onward("edge-1", "t", 5 * MS)
    waiting.onward("edge-1", "t", 8 * MS)
    assert waiting.missing == 1
    waiting.sends("t", 9 * MS)
    waiting.send("edge-2", "t", 10 * MS)
    waiting.all_sent = True
    waiting.onward("edge-2", "t", 13 * MS)
    assert waiting.missing == 1 and not waiting.done.is_set()
    waiting.onward("edge-2", "t", 14 * MS)
    assert waiting.force_ms == [9.0, 4.0]
    assert waiting.done.is_set() and not waiting.missing
