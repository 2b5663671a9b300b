"""The different filters of a broker's clients: counted, told, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.forwarding.table import ForwardingTable, Interests, Subscription

TARGETS = ("one", "two")
FILTERS = ("a", "b/#", "c", "$share/g/a")
STEPS = st.tuples(
    st.sampled_from(("subscribe", "resume", "unsubscribe", "forget")),
    st.sampled_from(TARGETS),
    st.sampled_from(FILTERS),
)


@given(st.lists(STEPS, max_size=40), st.integers(1, 3))
def test_the_broker_declares_its_clients_filters_within_the_bound(
    steps: list[tuple[str, str, str]], most: int
) -> None:
    told: set[str] = set()

    def tell(added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        assert not told & set(added) and set(removed) <= told
        told.update(added)
        told.difference_update(removed)

    interests: Interests[str] = Interests(ForwardingTable(), tell, most)
    wanted: set[tuple[str, str]] = set()
    for step, target, name in steps:
        match step:
            case "subscribe" | "resume":
                names = {each for _, each in wanted}
                fits = step == "resume" or name in names or len(names) < most
                assert interests.subscribe(target, name, Subscription(), bound=step == "subscribe") is fits
                if fits:
                    wanted.add((target, name))
            case "unsubscribe":
                interests.unsubscribe(target, name)
                wanted.discard((target, name))
            case "forget":
                interests.forget(target)
                wanted = {each for each in wanted if each[0] != target}
        assert told == {each for _, each in wanted}
        assert interests.count == len(told)
