"""A route is in the table while the coordinator or the cluster has it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.forwarding.overlay import Origin, RouteOverlay
from tocsin.model.network import Route, Scope

ROUTES = st.builds(Route, st.just(Scope.ORIGIN), st.sampled_from("pq"), st.sampled_from("xy"))
CHANGES = st.lists(st.tuples(st.sampled_from(list(Origin)), st.lists(ROUTES), st.lists(ROUTES)))


@given(CHANGES)
def test_the_table_has_the_union(changes: list[tuple[Origin, list[Route], list[Route]]]) -> None:
    overlay, table = RouteOverlay(), set[Route]()
    model: dict[Origin, set[Route]] = {origin: set() for origin in Origin}
    for origin, added, removed in changes:
        came, went = overlay.change(origin, added, removed)
        assert not table & set(came) and set(went) <= table
        table = (table | set(came)) - set(went)
        model[origin] = (model[origin] - set(removed)) | set(added)
        assert table == set().union(*model.values())
        assert overlay.count(origin) == len(model[origin])
