"""Which writes go alone and which together, without any store."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tocsin.store.jetstream.lots import LOT_MAX, LOT_MAX_BYTES, LOT_MIN, Lots


@dataclass(eq=False)
class Write:
    subject: str
    size: int = 1


def busy() -> tuple[Lots[Write], list[Write]]:
    """As many writes under way alone as may be."""
    lots: Lots[Write] = Lots()
    alone = [Write(f"alone{number}") for number in range(LOT_MIN)]
    assert all(lots.comes(write) for write in alone)
    return lots, alone


def wait(lots: Lots[Write], count: int, size: int = 1, name: str = "w") -> list[Write]:
    writes = [Write(f"{name}{number}", size) for number in range(count)]
    assert not any(lots.comes(write) for write in writes)
    return writes


def test_few_writes_go_alone_and_at_once() -> None:
    lots, _ = busy()
    assert not lots.ready()


def test_a_write_that_waits_goes_alone_when_another_ends() -> None:
    lots, alone = busy()
    first, _ = wait(lots, 2)
    assert not lots.ready()
    lots.left(alone[0])
    assert lots.ready() == (first,)
    assert not lots.ready()


def test_many_that_wait_go_together_and_the_next_wait_for_them() -> None:
    lots, _ = busy()
    writes = wait(lots, LOT_MIN)
    assert lots.ready() == tuple(writes)
    wait(lots, 3 * LOT_MAX, name="later")
    assert not lots.ready()
    lots.lot_ended(happened=True)
    assert len(lots.ready()) == LOT_MAX


def test_a_lot_has_no_more_bytes_than_it_may() -> None:
    lots, _ = busy()
    writes = wait(lots, LOT_MIN, size=LOT_MAX_BYTES // 3)
    assert lots.ready() == tuple(writes[:3])


def test_a_write_of_a_key_that_waits_goes_alone() -> None:
    lots, _ = busy()
    wait(lots, LOT_MIN)
    assert lots.comes(Write("w0"))
    lots.ready()
    assert lots.comes(Write("w0")), "it is in the lot"


def test_writes_of_a_lot_that_did_not_happen_go_alone() -> None:
    lots, alone = busy()
    writes = wait(lots, LOT_MIN)
    lots.ready()
    lots.left(writes[0])
    later = wait(lots, 1, name="later")
    lots.lot_ended(happened=False)
    for write in alone:
        assert not lots.ready()
        lots.left(write)
    assert lots.ready() == tuple(later), "the one that nobody wanted takes no place"


def test_nobody_waits_once_an_answer_is_missing() -> None:
    lots, _ = busy()
    writes = wait(lots, 5)
    assert lots.give_way() == tuple(writes)
    assert not lots.ready()


def test_a_server_without_lots_has_every_write_alone() -> None:
    lots, _ = busy()
    lots.enabled = False
    assert lots.comes(Write("w"))


@given(
    st.lists(st.sampled_from(["come", "leave", "happen", "fail", "give way"]), max_size=300),
    st.integers(1, 40),
)
def test_every_write_goes_exactly_once_in_any_order_of_events(steps: list[str], names: int) -> None:
    lots: Lots[Write] = Lots()
    made = 0
    waiting: list[Write] = []
    alone: list[Write] = []
    lot: list[Write] = []
    for step in [*steps, *["happen", "leave"] * 400]:
        match step:
            case "come":
                made += 1
                write = Write(f"k{made % names}")
                (alone if lots.comes(write) else waiting).append(write)
            case "leave" if alone:
                lots.left(alone.pop(0))
            case "happen" if lot:
                lots.lot_ended(happened=True)
                lot.clear()
            case "fail" if lot:
                lots.lot_ended(happened=False)
                alone += lot
                lot.clear()
            case "give way":
                given_way = lots.give_way()
                assert list(given_way) == waiting
                alone += waiting
                waiting.clear()
        while ready := lots.ready():
            assert not lot or len(ready) == 1
            for write in ready:
                waiting.remove(write)
            (alone if len(ready) == 1 else lot).extend(ready)
            subjects = [write.subject for write in lot]
            assert len(subjects) == len(set(subjects))
    assert not waiting
    assert not alone
