"""Which broker a client belongs to, against a dumb model and by example."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.coordination.state.backups import Backups, Vacancy
from tocsin.core.door.callers import Caller
from tocsin.core.door.choice import Directory
from tocsin.core.survival.refuges import FULL
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme

NAMES = ("a", "b", "c", "d", "e")


def broker(name: str, cluster: str = "north", role: Role = Role.EDGE) -> BrokerInfo:
    return BrokerInfo(name, cluster, role, name, 1, (Entrance(Scheme.MQTT, f"{name}:1883"),))


def directory(
    *living: BrokerInfo,
    lost: dict[str, str | None] | None = None,
    plan: dict[str, Backups] | None = None,
    loads: dict[str, int] | None = None,
    filters: dict[str, tuple[str, ...]] | None = None,
    published: dict[str, str] | None = None,
) -> Directory:
    places = {name: Vacancy(by, 1, broker(name)) for name, by in (lost or {}).items()}
    held = filters or {}
    return Directory(
        living,
        plan=plan or {},
        vacancies=places,
        loads=loads or {},
        filters=lambda name: held.get(name, ()),
        published_at=(published or {}).get,
    )


def names(
    network: Directory, caller: Caller, last: str | None = None, near: str = "", turn: int = 0
) -> list[str]:
    return [each.broker.id for each in network.order(caller, last, near, turn)]


infos = st.builds(
    broker,
    st.sampled_from(NAMES),
    st.sampled_from(("north", "south")),
    st.sampled_from(tuple(Role)),
)
maybe = st.none() | st.sampled_from(NAMES)


@given(
    living=st.lists(infos, unique_by=lambda each: each.id, max_size=5),
    loads=st.dictionaries(st.sampled_from(NAMES), st.integers(0, FULL)),
    by=st.dictionaries(st.sampled_from(NAMES), maybe),
    plan=st.dictionaries(st.sampled_from(NAMES), st.builds(Backups, maybe, maybe)),
    home=st.sampled_from((*NAMES, "a:1883", "b:1883", "door:1882", "")),
    last=maybe,
    near=st.sampled_from(("north", "south", "west", "")),
    turn=st.integers(0, 9),
)
def test_order_is_what_a_dumb_model_says(
    living: list[BrokerInfo],
    loads: dict[str, int],
    by: dict[str, str | None],
    plan: dict[str, Backups],
    home: str,
    last: str | None,
    near: str,
    turn: int,
) -> None:
    lost = {name: other for name, other in by.items() if name not in {each.id for each in living}}
    network = directory(*living, lost=lost, plan=plan, loads=loads)
    found = names(network, Caller(client="c", home=home, near=near), last, "", turn)

    able = {each.id: each for each in living if each.role != Role.STANDBY and loads.get(each.id, 0) < FULL}
    known = {each.id for each in living} | set(lost)
    stated = home.partition(":")[0] if home.partition(":")[0] in known else None
    start = stated or last
    first: list[str | None] = []
    if start is not None:
        backups = plan.get(start, Backups())
        first = [start, lost.get(start), backups.local, backups.remote]
    expected = list(dict.fromkeys(each for each in first if each in able))
    assert found[: len(expected)] == expected
    assert sorted(found) == sorted(able), "everybody who serves clients is in the list, once"
    rest = [able[each] for each in found[len(expected) :]]
    if near:
        assert sorted(rest, key=lambda each: each.cluster != near) == rest, "the near cluster comes first"


def test_equally_good_brokers_take_turns() -> None:
    network = directory(broker("a"), broker("b"), broker("c"), broker("hub", role=Role.ROUTING))
    firsts = [names(network, Caller(), turn=turn)[0] for turn in range(6)]
    assert firsts == ["a", "b", "c", "a", "b", "c"]


def test_home_is_found_by_its_address_even_when_lost() -> None:
    network = directory(broker("b"), broker("c"), lost={"a": "c"})
    order = network.order(Caller(home="a:1883"), None, "", 0)
    assert order[0].broker.id == "c"
    assert order[0].reason == "it stands in for the client's home a, which is lost"


def test_publisher_goes_where_it_published_last() -> None:
    network = directory(broker("a"), broker("b"), published={"p": "b"})
    assert names(network, Caller(client="p"), last="a")[0] == "b"


def test_client_goes_where_others_want_the_same() -> None:
    network = directory(broker("a"), broker("b"), filters={"b": ("x/#", "y")}, loads={"b": 500})
    order = network.order(Caller(wants=("x/#", "z")), None, "", 0)
    assert [each.broker.id for each in order] == ["b", "a"]
    assert order[0].reason == "its clients ask for 1 of the 2 filters that the client names"


def test_crowded_broker_comes_last_however_similar() -> None:
    network = directory(broker("a"), broker("b"), filters={"b": ("x",)}, loads={"b": 950})
    assert names(network, Caller(wants=("x",))) == ["a", "b"]


def test_unknown_cluster_is_not_remembered() -> None:
    network = directory(broker("a"))
    for number in range(100):
        assert names(network, Caller(near=f"cluster-{number}")) == ["a"]
    assert len(network._ranked) <= 1


def test_a_broker_is_there_while_nobody_has_its_place() -> None:
    there = broker("a")
    standby = msgspec.structs.replace(there, host="spare", certified="spare")
    assert directory(there).is_there(there)
    assert not directory(broker("b"), lost={"a": "b"}).is_there(there)
    assert not directory(standby).is_there(there), "a standby has its name, elsewhere"
