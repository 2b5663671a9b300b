"""How far a recovery is."""

from __future__ import annotations

import msgspec
import pytest

from tocsin_demo.scene.course import Course, Failure
from tocsin_demo.scene.ledger import Passage

FAILURE = Failure(("north-1", "north-2"), 10.0, (0, 1), {"north-1": 7})
COURSE = Course(
    FAILURE,
    lost_s={"north-1": 11.0, "north-2": 11.5},
    stands_in={"north-1": "south-1", "north-2": "south-2"},
    taken_s={"north-1": 11.1, "north-2": 11.75},
    passages=(
        Passage(0, "north-1", 10.1, 10.5, "south-1", 14.0),
        Passage(1, "north-2", 10.1, 10.25, "south-2", None),
    ),
)


def test_a_recovery_takes_as_long_as_the_last_of_all_takes() -> None:
    assert COURSE.lost_after_s == pytest.approx(1.5)
    assert COURSE.taken_after_s == pytest.approx(1.75)
    assert COURSE.back_after_s == pytest.approx(0.5)
    assert (COURSE.back, COURSE.heard) == (2, 1)


def test_while_one_is_missing_nothing_is_said_of_the_last() -> None:
    waiting = msgspec.structs.replace(
        COURSE,
        lost_s={"north-1": 11.0, "north-2": None},
        taken_s={"north-1": None, "north-2": None},
        passages=(COURSE.passages[0], Passage(1, "north-2", 10.1, None, None, None)),
    )
    assert (waiting.lost_after_s, waiting.taken_after_s, waiting.back_after_s) == (None, None, None)
    assert waiting.back == 1


def test_of_nobody_there_is_no_last() -> None:
    assert msgspec.structs.replace(COURSE, passages=()).back_after_s is None
