"""What ends next, whatever is set, changed and dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.coordination import deadlines
from tocsin.core.coordination.deadlines import Deadlines


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 9)), max_size=60))
def test_the_first_is_the_earliest_and_of_equals_the_lowest_key(
    acts: list[tuple[str, int | None]],
) -> None:
    tested, model = Deadlines(), dict[str, int]()
    for key, at_us in acts:
        if at_us is None:
            tested.drop(key)
            model.pop(key, None)
        else:
            tested.set(key, at_us)
            model[key] = at_us
        assert tested.first() == min(((at, each) for each, at in model.items()), default=None)


def test_a_deadline_that_is_moved_again_and_again_does_not_pile_up() -> None:
    tested = Deadlines()
    for at_us in range(10 * deadlines.SLACK):
        tested.set("a", at_us)
    assert len(tested._heap) <= 2 + deadlines.SLACK
    assert tested.first() == (10 * deadlines.SLACK - 1, "a")
