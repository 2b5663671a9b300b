"""Commands become a batch and notices: one append, unless they are too much for one."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from tests.unit.core.coordination.histories import HUB, LIMITS, LISTED, NORTH, QUERIES, SOUTH
from tocsin.core.coordination.leader import drafting
from tocsin.core.coordination.leader.drafting import Draft, Drafter
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.state import Outcome, State
from tocsin.model.network import BrokerInfo, Role
from tocsin.model.stream import Value
from tocsin.wire.internal.commands import (
    ClientBack,
    Elected,
    Interests,
    Joined,
    Logged,
    Lost,
    Queries,
    Refreshed,
    Said,
    Streams,
    decode_batch,
    encode_command,
)
from tocsin.wire.internal.notices import Item, Moved, Notice, Routes, TakeOver, decode_notice, encode_item

PLACES = StoreNames("net")
LAMPS = QUERIES[0]


def drafter() -> Drafter:
    count = itertools.count(1)
    return Drafter(PLACES, 3, lambda: f"id-{next(count)}")


def draft(state: State, *commands: Logged, waits: bool = False) -> Draft:
    given = [(command, encode_command(command)) for command in commands]
    return drafter().draft(state, 50, given, 7, lambda broker, about: waits)


def joined() -> State:
    state = State()
    state.apply(0, (Elected("c", LIMITS),))
    draft(state, *(Said(info.id, 1, 1, (Joined(info),)) for info in (NORTH, SOUTH, HUB)))
    return state


def many_lamps() -> tuple[tuple[str, dict[str, Value | None]], ...]:
    return tuple((f"lamps/{number}", {"kind": "lamp"}) for number in range(50))


def notices_of(made: Draft) -> dict[str, list[Notice]]:
    found: dict[str, list[Notice]] = {}
    for append in made.appends:
        for record in append:
            if record.subject != PLACES.commands_subject:
                found.setdefault(record.subject.rpartition(".")[2], []).append(decode_notice(record.payload))
    return found


def test_the_batch_comes_first_and_says_how_far_the_notices_go() -> None:
    state = State()
    commands = (Elected("c", LIMITS), Said("north", 1, 1, (Joined(NORTH), Interests(("a",)))))
    made = draft(state, *commands)
    ((first, *rest),) = made.appends
    batch = decode_batch(first.payload)
    assert first.subject == "net.c"
    assert (batch.epoch, batch.at_us, batch.previous, batch.commands) == (3, 50, 7, commands)
    assert batch.notices == (("north", 1),)
    assert [record.subject for record in rest] == ["net.n.north"]
    assert len({record.id for record in made.appends[0]}) == len(made.appends[0])


def test_a_first_notice_tells_everything_and_acknowledges() -> None:
    (notice,) = notices_of(draft(State(), Said("north", 9, 1, (Joined(NORTH), Interests(("a",))))))["north"]
    assert (notice.incarnation, notice.number, notice.epoch, notice.applied) == (9, 1, 3, 2)
    assert notice.fresh and not notice.more


def test_who_says_something_is_answered_also_if_nothing_follows() -> None:
    state = joined()
    (notice,) = notices_of(draft(state, Said("north", 1, 2, (Streams("anna", 0, (("a", {}),)),))))["north"]
    assert (notice.number, notice.applied, notice.clear, notice.items) == (2, 2, 2, ())


def test_a_change_is_not_clear_before_the_brokers_concerned_have_seen_it() -> None:
    state = joined()
    draft(state, Said("south", 1, 2, (Queries((LAMPS,)),)))
    made = draft(state, Said("north", 1, 2, (Streams("anna", 0, (("a", {"kind": "lamp"}),)),)))
    told = notices_of(made)
    assert told["north"][0].clear == 0 and not told["north"][0].ask
    assert told["south"][0].ask and told["hub"][0].ask
    assert made.heard["north"].needs == {"hub": told["hub"][0].number, "south": told["south"][0].number}


def test_nothing_is_clear_while_an_earlier_command_is_not() -> None:
    made = draft(joined(), Said("north", 1, 2, (Streams("anna", 0, (("a", {}),)),)), waits=True)
    assert notices_of(made)["north"][0].clear == 0


def test_what_two_brokers_say_of_a_client_at_once_needs_the_same() -> None:
    state = joined()
    draft(state, Said("south", 1, 2, (Queries((LAMPS,)),)))
    lamp = Streams("anna", 60, (("a", {"kind": "lamp"}),))
    made = draft(
        state, Said("north", 1, 2, (lamp,)), Said("hub", 1, 2, (ClientBack("anna", 60, 2), Interests(("x",))))
    )
    south = made.heard["north"].needs["south"]
    assert made.heard["hub"].needs["south"] == south and "hub" not in made.heard["hub"].needs
    assert made.heard["north"].about == {"client anna", "topic a"}
    assert made.heard["hub"].about == {"client anna"}
    assert notices_of(made)["hub"][0].clear == 0


def test_a_large_notice_is_cut_and_its_parts_are_numbered_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "NOTICE_MAX_BYTES", 100)
    state = joined()
    changes = many_lamps()
    draft(state, Said("south", 1, 2, (Queries((LAMPS,)),)))
    before = state.members["south"].noticed
    made = draft(state, Said("north", 1, 2, (Streams("anna", 0, changes),)))
    parts = notices_of(made)["south"]
    assert len(parts) > 5
    assert [part.number for part in parts] == list(range(before + 1, before + 1 + len(parts)))
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert [part.ask for part in parts] == [False] * (len(parts) - 1) + [True]
    assert dict(decode_batch(made.appends[0][0].payload).notices)["south"] == parts[-1].number


def test_what_is_too_much_for_one_append_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "NOTICE_MAX_BYTES", 100)
    monkeypatch.setattr(drafting, "APPEND_MAX_BYTES", 1_000)
    state = joined()
    changes = many_lamps()
    draft(
        state,
        Said("south", 1, 2, (Queries((*QUERIES, LISTED)),)),
        Said("north", 1, 2, (Streams("a", 0, changes),)),
    )
    made = draft(state, Refreshed("south", 1))
    assert len(made.appends) > 2
    for append in made.appends:
        assert len(append) == 1 or sum(len(record.payload) for record in append) <= 1_000
    parts = notices_of(made)["south"]
    assert [part.fresh for part in parts] == [True] + [False] * (len(parts) - 1) and len(parts) > 2
    assert [part.number for part in parts] == list(range(parts[0].number, parts[-1].number + 1))


def test_losses_in_a_row_are_one_change_that_all_others_share() -> None:
    state = State()
    names = [f"b{number}" for number in range(8)]
    for number, name in enumerate(names):
        info = BrokerInfo(name, f"c{number % 3}", Role.EDGE, "127.0.0.1", 1 + number)
        draft(state, Said(name, 1, 1, (Joined(info), Interests((f"t/{name}",)))))
    made = notices_of(draft(state, *(Lost(name, 1) for name in names[:4])))
    assert made.keys() == {*names[4:]}
    (notice,) = made["b7"]
    (routes,) = [item for item in notice.items if isinstance(item, Routes)]
    assert {route.peer for route in routes.removed} == {*names[:4]}
    assert all(each[0].items == notice.items for each in made.values())


def test_those_that_are_told_the_same_share_the_bytes_of_it() -> None:
    outcome = Outcome()
    item = Moved("gone", None, 1, gone=True)
    outcome.announce(("a", "b", "c"), (item,))
    outcome.tell("c", TakeOver("gone", 1))
    runs = drafting._runs(outcome, ("a", "d"))
    assert [*runs] == ["a", "b", "c", "d"]
    assert runs["a"] is runs["b"] and runs["c"] != runs["a"]
    assert outcome.items["c"] == [item, TakeOver("gone", 1)]


def test_what_many_brokers_are_told_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state = joined()
    for broker in ("south", "hub"):
        draft(state, Said(broker, 1, 2, (Queries((LAMPS,)),)))
    encoded: list[Item] = []

    def noted(item: Item) -> msgspec.Raw:
        encoded.append(item)
        return encode_item(item)

    monkeypatch.setattr(drafting, "encode_item", noted)
    draft(state, Said("north", 1, 2, (Streams("anna", 0, (("a", {"kind": "lamp"}),)),)))
    assert len(encoded) == len({id(item) for item in encoded})
    assert sum(type(item).__name__ == "Joined" for item in encoded) == 1
