"""The table of subscriptions, change by change, against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.results import BackendSubscription, encode_subscription
from tocsin.pipeline.execution.subscriptions import READERS, Subscriptions
from tocsin.ports import Change

CELLS = [
    BackendSubscription(channel, (value,), broker, standby)
    for channel in ("Near", "Far")
    for value in ("a", "b")
    for broker in ("x", "y", "z")
    for standby in (False, True)
]


def put(cell: BackendSubscription, revision: int = 1) -> Change:
    return Change("put", cell.key, encode_subscription(cell), revision)


def shown(subscriptions: Subscriptions) -> dict[tuple[str, str], tuple[str, ...]]:
    return {
        (channel, k): held.brokers
        for channel in ("near", "far")
        for k, held in subscriptions.of(channel).items()
    }


def expected(cells: set[BackendSubscription]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Those who hold it in earnest; if there are none, the standbys."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for standby in (False, True):
        of_kind: dict[tuple[str, str], tuple[str, ...]] = {}
        for cell in sorted(cells, key=lambda each: each.broker):
            if cell.standby is standby:
                key = (cell.channel.lower(), cell.k)
                of_kind[key] = (*of_kind.get(key, ()), cell.broker)
        found = {**of_kind, **found}
    return found


changes = st.lists(st.tuples(st.booleans(), st.sampled_from(CELLS)), max_size=30)


@given(before=changes, missed=changes, after=changes)
def test_it_is_what_the_table_is_also_after_the_watch_began_anew(
    before: list[tuple[bool, BackendSubscription]],
    missed: list[tuple[bool, BackendSubscription]],
    after: list[tuple[bool, BackendSubscription]],
) -> None:
    table: set[BackendSubscription] = set()
    subscriptions = Subscriptions()

    def happen(happening: list[tuple[bool, BackendSubscription]], seen: bool) -> None:
        for comes, cell in happening:
            (table.add if comes else table.discard)(cell)
            if seen:
                subscriptions.apply(put(cell) if comes else Change("delete", cell.key))

    def begin() -> None:
        subscriptions.apply(Change("reset"))
        for cell in table:
            subscriptions.apply(put(cell))
        subscriptions.apply(Change("ready"))

    begin()
    happen(before, seen=True)
    assert shown(subscriptions) == expected(table)
    known = expected(table)
    for name in ("near", "far"):
        subscriptions.take_changes(name)
    happen(missed, seen=False)
    begin()
    happen(after, seen=True)
    now = expected(table)
    assert shown(subscriptions) == now and len(subscriptions) == len(now)
    changed = {(name, k) for name in ("near", "far") for k in subscriptions.take_changes(name)}
    assert changed >= {key for key in known.keys() | now.keys() if known.get(key) != now.get(key)}


def test_a_repetition_is_no_change() -> None:
    subscriptions = Subscriptions()
    subscriptions.apply(put(CELLS[0]))
    assert subscriptions.take_changes("Near") == {CELLS[0].k}
    subscriptions.apply(put(CELLS[0]))
    assert subscriptions.take_changes("Near") == set()


def test_cells_that_are_none_are_left_out_and_counted() -> None:
    subscriptions = Subscriptions()
    good = CELLS[0]
    for key, value in (
        (good.key, b"rubbish"),
        ("near.short.x", encode_subscription(good)),
        ("far." + good.k + ".x", encode_subscription(good)),
        ("x", encode_subscription(good)),
    ):
        subscriptions.apply(Change("put", key, value, 7))
    assert len(subscriptions) == 0 and subscriptions.malformed == 4
    subscriptions.apply(Change("delete", "x"))
    subscriptions.apply(Change("delete", good.key))


def test_the_watch_is_ready_after_all_cells_and_knows_the_newest_revision() -> None:
    subscriptions = Subscriptions()
    subscriptions.apply(Change("reset"))
    subscriptions.apply(put(CELLS[0], revision=9))
    subscriptions.apply(put(CELLS[1], revision=4))
    states = [subscriptions.ready]
    subscriptions.apply(Change("ready"))
    states.append(subscriptions.ready)
    assert states == [False, True] and subscriptions.revision == 9
    subscriptions.apply(Change("delete", CELLS[1].key, revision=12))
    assert subscriptions.revision == 12


def test_a_standby_gets_rows_only_while_nobody_holds_it_in_earnest() -> None:
    subscriptions = Subscriptions()
    earnest = BackendSubscription("Near", ("a",), "x")
    standby = BackendSubscription("Near", ("a",), "y", standby=True)
    subscriptions.apply(put(earnest))
    subscriptions.take_changes("near")
    subscriptions.apply(put(standby))
    assert shown(subscriptions) == {("near", earnest.k): ("x",)}
    assert subscriptions.take_changes("near") == set()
    subscriptions.apply(Change("delete", earnest.key))
    assert shown(subscriptions) == {("near", earnest.k): ("y",)}
    assert subscriptions.take_changes("near") == {earnest.k}
    subscriptions.apply(Change("delete", standby.key))
    assert shown(subscriptions) == {} and len(subscriptions) == 0


def test_a_channel_that_is_read_is_held_while_nobody_else_holds_it() -> None:
    subscriptions = Subscriptions()
    subscriptions.apply(Change("reset"))
    subscriptions.apply(Change("ready"))
    cell = BackendSubscription("Near", (), "x")

    def holders() -> tuple[str, ...]:
        return next((held.brokers for held in subscriptions.of("Near").values()), ())

    subscriptions.hold_for_readers(["Near"])
    assert holders() == (READERS,) and subscriptions.take_changes("Near") == {cell.k}
    assert list(subscriptions.of("Near")) == [cell.k]
    subscriptions.apply(put(cell))
    assert holders() == ("x",), "its rows are written once"
    subscriptions.apply(Change("delete", cell.key))
    for event in ("reset", "ready"):
        subscriptions.apply(Change(event))  # the watch begins anew, and repeats no such cell
    assert holders() == (READERS,)
    subscriptions.hold_for_readers([])
    assert holders() == () and len(subscriptions) == 0
