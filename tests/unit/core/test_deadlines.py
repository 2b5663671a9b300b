"""One time for each key, whatever was said before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core import deadlines
from tocsin.core.deadlines import Deadlines


def test_who_has_to_be_asked_about_earlier_than_before_is_said() -> None:
    tested = Deadlines()
    assert tested.next_us is None
    assert tested.set("later", 20)
    assert tested.set("sooner", 10)
    assert not tested.set("last", 30)
    assert not tested.set("sooner", 15), "it is put off when its turn comes"
    assert tested.next_us == 10


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 30)),  # set, or drop
            st.integers(0, 30),  # ask
        ),
        max_size=80,
    )
)
def test_each_deadline_is_due_once_and_in_order(
    said: list[tuple[str, int | None] | int],
) -> None:
    tested, model = Deadlines(), dict[str, int]()
    for each in said:
        if isinstance(each, int):
            due = sorted((at_us, key) for key, at_us in model.items() if at_us <= each)
            assert tested.due(each) == [key for _, key in due]
            model = {key: at_us for key, at_us in model.items() if at_us > each}
        elif each[1] is None:
            tested.drop(each[0])
            model.pop(each[0], None)
        else:
            tested.set(each[0], each[1])
            model[each[0]] = each[1]
        if model:
            assert tested.next_us is not None and tested.next_us <= min(model.values())


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
    for at_us in range(10 * deadlines.SLACK, 0, -1):  # brought forward: each leaves an entry behind
        tested.set("a", at_us)
    assert len(tested._heap) <= 3 + deadlines.SLACK
    for at_us in range(10 * deadlines.SLACK):
        tested.set("a", at_us)
    assert len(tested._heap) <= 3 + deadlines.SLACK
    assert tested.first() == (10 * deadlines.SLACK - 1, "a")
