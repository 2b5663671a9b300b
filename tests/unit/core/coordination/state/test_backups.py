"""Who stands in for whom: against a model that looks at everything again, and as brokers hear of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings

from tests.unit.core.coordination.desk import of
from tests.unit.core.coordination.histories import HUB, INFOS, NORTH, SOUTH, batches
from tocsin.core.coordination.participant.network_view import NetworkView
from tocsin.core.coordination.participant.signals import (
    BackupsKnown,
    DestinationsChanged,
    RoutesChanged,
    StandDown,
    StandIn,
    StandInsChanged,
)
from tocsin.core.coordination.state import backups as module
from tocsin.core.coordination.state.backups import Backups, Survival, Vacancy
from tocsin.core.coordination.state.state import State
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.internal.commands import Batch
from tocsin.wire.internal.notices import Backed, Item, Moved, Promote, TakeOver

N, S = NORTH, SOUTH


def told(survival: Survival, *there: str) -> dict[str, list[Item]]:
    return settled(survival, {name: INFOS[name] for name in there})


def settled(survival: Survival, infos: Mapping[str, BrokerInfo]) -> dict[str, list[Item]]:
    """Broker → what it is told."""
    found: dict[str, list[Item]] = {}
    for brokers, items in survival.settle(infos):
        for broker in brokers:
            found.setdefault(broker, []).extend(items)
    return found


def network() -> Survival:
    survival = Survival()
    survival.planned({"north": Backups("south", "hub"), "south": Backups("hub", "north")})
    told(survival, "north", "south", "hub")
    return survival


def test_the_local_backup_stands_in_and_all_others_hear_of_it() -> None:
    survival = network()
    survival.lost(N, ("south", "hub"))
    items = told(survival, "south", "hub")
    moved = Moved("north", SOUTH, 1, gone=True)
    backed = Backed(local=None, remote=None, locally=("south",), remotely=("north",), watched=(SOUTH,))
    assert items["hub"] == [backed, moved], "it keeps a link to south, and to north no longer"
    assert items["south"][-2:] == [moved, TakeOver("north", 1)]


def test_a_backup_keeps_a_link_to_the_brokers_that_it_backs() -> None:
    picture = NetworkView()
    (routed,) = of(
        RoutesChanged, picture.apply([Backed(locally=("north",), watched=(NORTH,))], {}, fresh=False)
    )
    assert routed.peers == (NORTH,)
    (routed,) = of(RoutesChanged, picture.apply([Backed(locally=("north",))], {}, fresh=False))
    assert routed.peers == (), "it is gone"


def test_if_the_local_backup_is_gone_too_the_remote_one_stands_in() -> None:
    survival = network()
    survival.lost(N, ("south", "hub"))
    told(survival, "south", "hub")
    survival.lost(S, ("hub",))
    assert survival.vacancies == {"north": Vacancy("hub", 3, N), "south": Vacancy("hub", 2, S)}
    items = told(survival, "hub")
    assert {each for each in items["hub"] if isinstance(each, TakeOver)} == {
        TakeOver("north", 3),
        TakeOver("south", 2),
    }


def test_all_at_once_are_taken_at_once() -> None:
    survival = network()
    survival.lost(S, ("hub",))
    survival.lost(N, ("hub",))
    assert survival.vacancies == {"south": Vacancy("hub", 1, S), "north": Vacancy("hub", 2, N)}


def test_if_nobody_is_left_the_place_is_empty_and_said_to_be() -> None:
    survival = network()
    survival.lost(N, ())
    assert survival.vacancies == {"north": Vacancy(None, 1, N)}
    survival.joined("hub")
    assert list(survival.everything("hub", {"hub": HUB}))[1:] == [Moved("north", None, 1, gone=True)]


def test_a_broker_that_is_back_has_its_place_back() -> None:
    survival = network()
    survival.lost(N, ("south", "hub"))
    told(survival, "south", "hub")
    survival.joined("north")
    items = told(survival, "north", "south", "hub")
    assert all(Moved("north", None, 1) in items[each] for each in ("north", "south", "hub"))
    assert not survival.changed


def test_a_plan_does_not_forget_the_copies_of_those_who_are_gone() -> None:
    survival = network()
    survival.lost(N, ("south", "hub"))
    survival.planned({"south": Backups("hub", None), "north": Backups("nobody", None)})
    assert survival.plan["north"] == Backups("south", "hub")
    survival.lost(S, ("hub",))
    assert survival.vacancies["north"].by == "hub"


def test_a_standby_is_told_whose_place_it_takes_until_somebody_has_it() -> None:
    survival = network()
    survival.lost(N, ("south", "hub", "spare"))
    told(survival, "south", "hub")
    spare = BrokerInfo("spare", "n", Role.STANDBY, "127.0.0.1", 9)
    infos = {"south": SOUTH, "hub": HUB, "spare": spare}
    survival.promoted("north", "spare")
    survival.promoted("south", "spare")  # it is there, and the standby is taken
    assert settled(survival, infos) == {"spare": [Promote(N)]}
    assert Promote(N) in survival.everything("spare", infos)
    survival.lost(spare, ("south", "hub"))
    assert survival.promotions == {} and "spare" not in survival.vacancies, "nobody is at home at a standby"
    survival.promoted("north", "other")
    survival.joined("north")
    assert survival.promotions == {}


def test_who_backs_somebody_and_who_may_have_to_stand_in_is_known() -> None:
    survival = network()
    assert [survival.backs_any(each) for each in ("north", "south", "hub", "other")] == [
        True,
        True,
        True,
        False,
    ]
    assert not any(survival.stands_in(each) for each in ("north", "south", "hub"))
    survival.lost(N, ("south", "hub"))
    assert survival.stands_in("south") and survival.stands_in("hub"), "it stands in, or has a copy"
    survival.joined("north")
    assert not survival.stands_in("south") and not survival.stands_in("hub")


def test_places_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACES_MAX", 2)
    survival = Survival()
    for name in ("a", "b", "c"):
        survival.lost(msgspec.structs.replace(N, id=name), ())
    assert list(survival.vacancies) == ["b", "c"]


def test_a_network_view_stands_in_once_per_epoch_and_then_stands_down() -> None:
    picture = NetworkView()

    def hears(*items: Item, fresh: bool = False) -> list[object]:
        return [*picture.apply(items, {}, fresh=fresh)]

    backed = Backed(local=NORTH, remote=None, locally=("hub",))
    known = BackupsKnown(local=NORTH, remote=None, locally=("hub",), remotely=())
    assert hears(backed) == [known, DestinationsChanged()] and hears(backed) == []
    moved, take = Moved("hub", SOUTH, 4, gone=True), TakeOver("hub", 4)
    assert hears(moved, take) == [StandInsChanged(lost={"hub": SOUTH}), StandIn(broker="hub", epoch=4)]
    assert hears(backed, moved, take, fresh=True) == []
    assert picture.vacancies == {"hub": moved}
    north, south = StandInsChanged(lost={"hub": NORTH}), StandInsChanged(lost={"hub": SOUTH})
    assert hears(Moved("hub", NORTH, 5, gone=True)) == [north, StandDown(broker="hub")]
    again = Moved("hub", SOUTH, 6, gone=True), TakeOver("hub", 6)
    assert hears(*again) == [south, StandIn(broker="hub", epoch=6)]
    looked_at_again = RoutesChanged(added=(), removed=(), peers=())
    assert hears(backed, fresh=True) == [looked_at_again, StandInsChanged(lost={}), StandDown(broker="hub")]
    assert picture.vacancies == {}


@settings(max_examples=400, deadline=None)
@given(batches)
def test_in_any_history_a_live_backup_stands_in_and_all_brokers_agree(
    history: list[Batch],
) -> None:
    state, pictures = State(), {}
    standing: dict[str, set[str]] = {}  # broker → for whom it stands in, by what it was told
    incarnations: dict[str, int] = {}
    for batch in history:
        outcome = state.apply(batch.at_us, batch.commands)
        for broker, member in state.members.items():
            if incarnations.get(broker) != member.incarnation:
                incarnations[broker] = member.incarnation
                pictures[broker], standing[broker] = NetworkView(), set()
            for effect in pictures[broker].apply(
                outcome.items.get(broker, ()), {}, fresh=broker in outcome.fresh
            ):
                if isinstance(effect, StandIn):
                    standing[broker].add(effect.broker)
                elif isinstance(effect, StandDown):
                    standing[broker].remove(effect.broker)
        places = state.survival.vacancies
        assert not places.keys() & state.members.keys(), "who is there has its place"
        for broker, place in places.items():
            plan = state.survival.plan.get(broker, Backups())
            there = [each for each in (plan.local, plan.remote) if each in state.members]
            assert place.by is None or place.by in there
        for broker in state.members:
            assert standing[broker] == {name for name, place in places.items() if place.by == broker}
            seen = {name: moved.to and moved.to.id for name, moved in pictures[broker].vacancies.items()}
            assert seen == {name: place.by for name, place in places.items()}
    epochs = [place.epoch for place in state.survival.vacancies.values()]
    assert len(set(epochs)) == len(epochs)


def test_all_hear_where_a_standby_has_a_lost_brokers_name() -> None:
    survival = network()
    survival.lost(N, ("south", "hub"))
    told(survival, "south", "hub")
    standby = msgspec.structs.replace(N, host="127.0.0.9", certified="spare")
    survival.joined("north")
    there = {"north": standby, "south": SOUTH, "hub": HUB}
    back = Moved("north", standby, 1)
    assert back in settled(survival, there)["hub"]
    assert back in tuple(survival.everything("hub", there)), "also those that come later"
    survival.readdressed(standby, N)
    assert Moved("north", None, 1) in settled(survival, {**there, "north": N})["hub"], "it is back itself"


def test_a_network_view_finds_a_standby_until_the_broker_itself_is_back() -> None:
    view = NetworkView()
    standby = msgspec.structs.replace(N, certified="spare")
    view.apply((Moved("north", SOUTH, 1, gone=True),), {}, fresh=False)
    assert view.found_at("north") == SOUTH
    view.apply((Moved("north", standby, 1),), {}, fresh=False)
    assert view.found_at("north") == standby
    view.apply((Moved("north", None, 1),), {}, fresh=False)
    assert view.found_at("north") is None
    view.apply((Moved("north", standby, 1),), {}, fresh=False)
    view.apply((), {}, fresh=True)
    assert view.found_at("north") is None, "everything was told anew"
