"""One time for each name, whatever was said before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.appointments import Appointments


def test_the_next_one_is_known() -> None:
    appointments = Appointments()
    assert appointments.next_us is None
    assert appointments.set("later", 20)
    assert appointments.set("sooner", 10)
    assert not appointments.set("last", 30)
    assert appointments.next_us == 10


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), st.integers(0, 30)),  # set
            st.integers(0, 30),  # ask
        )
    )
)
def test_whatever_is_set_and_put_off_each_is_due_once_and_not_before_its_time(
    said: list[tuple[str, int] | int],
) -> None:
    appointments, model = Appointments(), dict[str, int]()
    for each in said:
        if isinstance(each, tuple):
            appointments.set(*each)
            model[each[0]] = each[1]
            continue
        due = {name for name, at_us in model.items() if at_us <= each}
        assert sorted(appointments.due(each)) == sorted(due)
        model = {name: at_us for name, at_us in model.items() if name not in due}
        if model:
            assert appointments.next_us is not None and appointments.next_us <= min(model.values())
