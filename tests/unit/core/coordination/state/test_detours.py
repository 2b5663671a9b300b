"""Links that are cut and the ways around them, as the log says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.core.coordination.participant.signals import DetoursChanged, RoutesChanged
from tocsin.core.coordination.state.detours import Detours
from tocsin.core.coordination.state.snapshot import restore, take
from tocsin.core.coordination.state.state import State
from tocsin.core.forwarding.origins import UNREGISTERED
from tocsin.model.network import BrokerInfo, Role, Route, Scope
from tocsin.wire.internal.commands import Interests, Joined, Lost, Rerouted, Said, Shunned
from tocsin.wire.internal.notices import Bypass, Item, Routes

NAMES = ("a", "b", "c", "d")
INFOS = {name: BrokerInfo(name, "north", Role.EDGE, "127.0.0.1", 1) for name in NAMES}


def told(detours: Detours, members: dict[str, BrokerInfo] | None = None) -> dict[str, Bypass]:
    found: dict[str, Bypass] = {}
    for broker, items in detours.settle(INFOS if members is None else members).items():
        (item,) = items
        assert isinstance(item, Bypass)
        found[broker] = item
    return found


def test_who_sends_around_and_who_carries_are_told_what_they_need() -> None:
    detours = Detours()
    detours.set("a", {"b": ("c", "d")}, INFOS)
    assert told(detours) == {
        "a": Bypass((("b", ("c", "d")),), (), (INFOS["b"], INFOS["c"])),
        "c": Bypass((), ("d",), (INFOS["d"],)),
        "d": Bypass((), ("b",), (INFOS["b"],)),
    }
    assert not detours.changed and told(detours) == {}
    detours.set("a", {}, INFOS)
    assert told(detours) == dict.fromkeys(("a", "c", "d"), Bypass())


def test_a_lost_relay_leaves_the_link_cut_unlike_a_lost_peer() -> None:
    detours = Detours()
    detours.set("a", {"b": ("c",), "d": ("c",)}, INFOS)
    told(detours)
    detours.lost("c")
    assert detours.around("a") == {"b": (), "d": ()}
    assert set(told(detours, {name: INFOS[name] for name in "abd"})) == {"a"}
    detours.lost("b")
    assert detours.around("a") == {"d": ()}
    detours.lost("a")
    assert len(detours) == 0 and not detours.rows


def test_a_relay_that_is_gone_by_now_is_no_way() -> None:
    detours = Detours()
    detours.set("a", {"b": ("c",), "d": ("b",)}, {name: INFOS[name] for name in "abd"})
    assert detours.around("a") == {"b": (), "d": ("b",)}


def test_those_who_need_a_broker_are_told_when_it_comes_back() -> None:
    detours = Detours()
    detours.set("a", {"b": ("c",)}, INFOS)
    told(detours)
    detours.joined("b")
    assert set(told(detours)) == {"a", "c"}
    detours.joined("d")
    assert told(detours) == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("set"),
            st.sampled_from(NAMES),
            st.dictionaries(
                st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)
            ),
        ),
        st.tuples(st.sampled_from(("lost", "joined")), st.sampled_from(NAMES), st.just({})),
    ),
    max_size=20,
)


@given(STEPS)
def test_whoever_was_told_only_of_changes_knows_what_everything_would_say(
    steps: list[tuple[str, str, dict[str, tuple[str, ...]]]],
) -> None:
    detours, members = Detours(), dict(INFOS)
    known: dict[str, Bypass] = {}
    for what, broker, around in steps:
        if what == "set":
            detours.set(broker, around, members)
        elif what == "lost":
            members.pop(broker, None)
            detours.lost(broker)
            known.pop(broker, None)
        else:
            members[broker] = INFOS[broker]
            detours.joined(broker)
        known.update(told(detours, members))
        for each in members:
            (item,) = tuple(detours.everything(each, members)) or (Bypass(),)
            assert known.get(each, Bypass()) == item
        for source, rows in detours.rows.items():
            assert source in members and rows
            for peer, relays in rows.items():
                assert peer in members and all(relay in members for relay in relays)


# ── in the state, and as a broker sees it ────────────────────────────────────────────────────────────────────


def joined(*infos: BrokerInfo) -> State:
    state = State()
    state.apply(0, [Said(info.id, 1, 1, (Joined(info),)) for info in infos])
    return state


def test_the_log_says_which_links_are_cut_and_a_snapshot_keeps_it() -> None:
    state = joined(*INFOS.values())
    outcome = state.apply(1, [Rerouted("a", (("b", ("c",)),))])
    assert outcome.items["c"] == [Bypass((), ("b",), (INFOS["b"],))]
    restored = restore(take(state))
    assert restored.detours.rows == {"a": {"b": ("c",)}}
    (item,) = [each for each in restored.apply(2, [Lost("c", 1)]).items["a"] if isinstance(each, Bypass)]
    assert item == Bypass((("b", ()),), (), (INFOS["b"],))


def test_a_hub_that_is_shunned_carries_nothing_and_a_snapshot_keeps_it() -> None:
    hub = BrokerInfo("hub", "south", Role.ROUTING, "127.0.0.1", 1)
    edge = BrokerInfo("s", "south", Role.EDGE, "127.0.0.1", 1)
    state = joined(INFOS["a"], hub, edge)
    state.apply(1, [Said("s", 1, 2, (Interests(("t",)),))])
    unregistered = Route(Scope.ORIGIN, "@south", UNREGISTERED)
    assert state.interest.plan.routes("a") == {unregistered}
    outcome = state.apply(2, [Shunned(("hub",))])
    straight = Route(Scope.ORIGIN, "s", "t")
    assert state.interest.plan.routes("a") == {straight} and state.interest.plan.routes("hub") == {straight}
    assert Routes((straight,), (unregistered,), (edge,)) in outcome.items["a"]
    restored = restore(take(state))
    assert restored.interest.plan.routes("a") == {straight}
    restored.apply(3, [Shunned(())])
    assert restored.interest.plan.routes("a") == {unregistered}


def hears(picture: NetworkView, *items: Item, fresh: bool = False) -> list[object]:
    return list(picture.apply(items, {}, fresh=fresh))


def test_a_broker_has_links_for_its_detours_before_it_uses_them() -> None:
    picture = NetworkView()
    item = Bypass((("b", ("c",)),), (), (INFOS["b"], INFOS["c"]))
    assert hears(picture, item) == [
        RoutesChanged(added=(), removed=(), peers=(INFOS["b"], INFOS["c"])),
        DetoursChanged(around={"b": ("c",)}),
    ]
    assert hears(picture, item) == []
    assert hears(picture, Bypass()) == [
        RoutesChanged(added=(), removed=(), peers=()),
        DetoursChanged(around={}),
    ]


def test_a_fresh_notice_without_detours_ends_those_that_were_known() -> None:
    picture = NetworkView()
    hears(picture, Bypass((("b", ("c",)),), (), (INFOS["b"], INFOS["c"])))
    assert DetoursChanged(around={}) in hears(picture, fresh=True)


def test_a_relay_keeps_a_link_to_whom_it_carries() -> None:
    picture = NetworkView()
    assert hears(picture, Bypass((), ("b",), (INFOS["b"],))) == [
        RoutesChanged(added=(), removed=(), peers=(INFOS["b"],))
    ]
