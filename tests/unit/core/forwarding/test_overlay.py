"""Which routes are in the table, and where those to a broker lead that is lost or covered for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.forwarding import overlay as routes_of
from tocsin.core.forwarding.overlay import Origin, RouteOverlay, StandbyRoutes
from tocsin.core.forwarding.table import ForwardingTable, Subscription
from tocsin.model.network import BrokerInfo, Role, Route, Scope

ROUTES = st.builds(Route, st.just(Scope.ORIGIN), st.sampled_from("pq"), st.sampled_from("xy"))
CHANGES = st.lists(st.tuples(st.sampled_from(list(Origin)), st.lists(ROUTES), st.lists(ROUTES)))
ORIGIN, TRANSIT = Scope.ORIGIN, Scope.TRANSIT


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


def info(name: str, role: Role = Role.EDGE) -> BrokerInfo:
    return BrokerInfo(name, name.partition("-")[0], role, "127.0.0.1", 1)


LOST, BACKUP, OWN, FAR = info("north-1"), info("north-2"), info("north-3"), info("south-1")
TO_LOST = Route(ORIGIN, LOST.id, "a")


def standing(own: BrokerInfo = OWN, lost: BrokerInfo = LOST) -> StandbyRoutes:
    routes = StandbyRoutes(own)
    routes.know((lost,), ())
    return routes


def test_a_cover_adds_the_backup_and_takes_nothing_from_the_broker() -> None:
    routes = standing()
    assert routes.leads(()) == {}
    routes.cover(LOST.id, BACKUP)
    assert routes.leads(()) == {(scope, LOST.id): (LOST.id, BACKUP.id) for scope in Scope}
    assert routes.peers() == [BACKUP]
    routes.uncover(LOST.id)
    assert routes.leads(()) == {} and routes.peers() == []


def test_routes_to_a_lost_broker_are_kept_and_carry_nothing() -> None:
    routes = standing()
    shared = Route(ORIGIN, LOST.id, "$share/g/a")
    assert routes.keep([TO_LOST, shared, Route(ORIGIN, FAR.id, "a")], {LOST.id}) == [TO_LOST]
    routes.know((), {LOST.id})
    assert routes.leads({LOST.id})[ORIGIN, LOST.id] == ()
    routes.cover(LOST.id, BACKUP)
    assert routes.leads({LOST.id})[ORIGIN, LOST.id] == (BACKUP.id,)


def test_standby_routes_end_when_the_broker_is_back() -> None:
    routes = standing()
    routes.keep([TO_LOST], {LOST.id})
    assert routes.back({LOST.id}) == set()
    assert routes.back(()) == {LOST.id}
    assert routes.count == 0 and routes.leads(()) == {}


def test_standby_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_of, "ROUTES_MAX", 2)
    routes = standing()
    assert len(routes.keep([Route(ORIGIN, LOST.id, str(n)) for n in range(5)], {LOST.id})) == 2


@pytest.mark.parametrize(
    ("own", "by"),
    [(BACKUP, BACKUP), (OWN, FAR)],
    ids=["the backup itself", "a backup in another cluster"],
)
def test_a_cover_that_leads_nowhere_changes_nothing(own: BrokerInfo, by: BrokerInfo) -> None:
    routes = standing(own)
    routes.cover(LOST.id, by)
    assert routes.leads(()) == {} and routes.peers() == []


def test_a_cover_of_a_hub_is_not_for_other_clusters() -> None:
    """The hub may be alive, and would pass the message on to its backup a second time."""
    hub = info("north-1", Role.ROUTING)
    for own, led in ((OWN, (hub.id, BACKUP.id)), (FAR, (hub.id,))):
        routes = standing(own, hub)
        routes.cover(hub.id, BACKUP)
        assert routes.leads(()).get((ORIGIN, hub.id), (hub.id,)) == led


def test_the_table_leads_any_number_of_routes_by_one_change() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    for number in range(100):
        table.add_route(Route(ORIGIN, LOST.id, str(number)))
    table.add_route(Route(ORIGIN, BACKUP.id, "7"))
    assert table.resolve("7").origin == (LOST.id, BACKUP.id)
    table.lead({(ORIGIN, LOST.id): (LOST.id, BACKUP.id)})
    assert table.resolve("7").origin == table.resolve("8").origin == (LOST.id, BACKUP.id)
    table.lead({(ORIGIN, LOST.id): ()})
    assert (table.resolve("7").origin, table.resolve("8").origin) == ((BACKUP.id,), ())
    table.lead({})
    assert table.resolve("8").origin == (LOST.id,)


def test_a_group_is_not_led_elsewhere() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    table.add_route(Route(ORIGIN, LOST.id, "$share/g/a"))
    table.lead({(ORIGIN, LOST.id): (LOST.id, BACKUP.id)})
    assert table.resolve("a").shares[0].origin == (LOST.id,)
    table.lead({(ORIGIN, LOST.id): (BACKUP.id,)})
    assert table.resolve("a").shares[0].origin == ()


def test_a_filter_is_wanted_while_somebody_local_has_it() -> None:
    table: ForwardingTable[str] = ForwardingTable()
    table.add_route(TO_LOST)
    assert not table.has("a")
    table.subscribe("client", "a", Subscription())
    assert table.has("a")
