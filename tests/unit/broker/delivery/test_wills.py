"""Wills that wait: who comes back, moves, or starts anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tocsin.broker.delivery.wills import Wills
from tocsin.config import Budgets
from tocsin.core.budgets.budget import Budget, Kind, bounds_of
from tocsin.model.publication import Publication
from tocsin.wire.internal.replication import Bequest

WILL = Bequest(Publication("gone", b"x", 0, "c"), record_id="b.1.will")


def broken(error: BaseException) -> None:
    raise error


class Told:
    def __init__(self) -> None:
        self.published: list[Bequest] = []
        self.wills = Wills(self._publish, failed=broken)

    def _publish(self, will: Bequest, told: Callable[[], None]) -> None:
        self.published.append(will)
        told()


@pytest.mark.parametrize(
    ("moving", "back", "published"),
    [(False, True, 0), (False, False, 1), (True, True, 0), (True, False, 0)],
)
async def test_a_returning_client_is_alive_unless_it_ended_the_wills_session(
    moving: bool, back: bool, published: int
) -> None:
    told = Told()
    told.wills.delay("c", WILL, 1_000, moving=moving)
    told.wills.came("somebody else", back=back)
    assert told.published == []
    told.wills.came("c", back=back)
    assert len(told.published) == published
    told.wills.came("c", back=False)
    assert len(told.published) == published, "once"


async def test_a_will_is_published_when_its_time_has_come() -> None:
    told = Told()
    told.wills.delay("c", WILL, 0)
    told.wills.delay("d", WILL, 1_000)
    async with asyncio.timeout(10):
        while not told.published:
            await asyncio.sleep(0)
    assert [each.publication for each in told.published] == [WILL.publication]
    assert told.published[0].record_id == WILL.record_id


async def test_no_will_of_a_broker_that_is_over_is_published() -> None:
    """A standby that takes a place is another broker from then on, in the same process."""
    told, later = Told(), Told()
    told.wills.delay("c", WILL, 0)
    told.wills.close()
    later.wills.delay("c", WILL, 0)
    async with asyncio.timeout(10):
        while not later.published:
            await asyncio.sleep(0)
    assert told.published == []


async def test_a_second_will_of_a_client_does_not_swallow_the_first() -> None:
    told = Told()
    told.wills.delay("c", WILL, 1_000)
    told.wills.delay("c", WILL, 1_000)
    assert [each.publication for each in told.published] == [WILL.publication]
    assert told.published[0].record_id == WILL.record_id


async def test_a_waiting_will_is_visible_and_its_end_is_announced() -> None:
    settled: list[str] = []
    wills = Wills(lambda will, told: told(), failed=broken, settled=settled.append)
    for client, delay_s in (("back", 1_000), ("anew", 1_000), ("due", 0)):
        wills.delay(client, WILL, delay_s)
    assert (
        wills.unsettled("back") == Bequest(WILL.publication, 1_000, "b.1.will")
        and wills.unsettled("nobody") is None
    )
    wills.came("back", back=True)
    wills.came("anew", back=False)
    assert settled == ["back", "anew"] and wills.unsettled("back") is None
    async with asyncio.timeout(10):
        while len(settled) < 3:
            await asyncio.sleep(0)
    assert settled[-1] == "due"


async def test_a_will_under_way_counts_though_its_user_is_over_the_bound() -> None:
    """What was read of stored sessions may be over the bound by its slack; wills must not go uncounted for that."""
    budget = Budget(bounds_of(Budgets(sessions_bytes=1 << 20)))
    restored = budget.account("")
    restored.charge(Kind.SESSIONS, restored.limit(Kind.SESSIONS))
    other = budget.account("")
    while other.charge(Kind.SESSIONS, 100_000) is None:
        other = budget.account("")
    held: list[Callable[[], None]] = []
    wills = Wills(lambda will, told: held.append(told), failed=broken, budget=budget)
    before = budget.figures()[Kind.SESSIONS].used
    wills.give_out("c", WILL)
    assert budget.figures()[Kind.SESSIONS].used > before
    held[0]()
    assert budget.figures()[Kind.SESSIONS].used == before
