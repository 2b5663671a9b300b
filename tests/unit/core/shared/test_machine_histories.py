"""Machines of one group at several brokers, beside a store that fails in every way: what they never do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.shared.sharers import Story

HAPPENINGS = (
    *(
        "publish",
        "publish",
        "dispatch",
        "dispatch",
        "watch",
        "watch",
        "store",
        "store",
        "store",
        "take",
        "take",
    ),
    *("connect", "connect", "disconnect", "timer", "timer", "read", "late", "anew", "quit", "die", "end"),
)
happenings = st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 11), st.integers(0, 3))
stories = st.lists(happenings, min_size=20, max_size=120)
ANSWERS = ("done", "done", "done", "refused", "mute", "lost", "late")


def happen(story: Story, what: str, one: int, other: int) -> None:
    broker = story.brokers[one % 3]
    client = list(story.clients.values())[other]
    match what:
        case "publish":
            story.publish(1 + one % 2)
        case "dispatch":
            broker.dispatch()
        case "watch":
            broker.watch()
        case "store" if broker.asked:
            broker.answer(next(iter(broker.asked)), ANSWERS[(one + other) % len(ANSWERS)])
        case "late" if broker.late:
            story.table.execute(broker.late.pop(0))
        case "take":
            story.take(client)
        case "connect":
            story.connect(client, broker)
        case "disconnect":
            story.disconnect(client)
        case "anew":
            story.start_anew(client, broker)
        case "quit":
            story.quit(client)
        case "timer" if broker.timers:
            broker.fire(list(broker.timers)[other % len(broker.timers)])
        case "read":
            broker.read()
        case "end":
            broker.find_end("done" if other else "unknown")
        case "die":
            story.die(broker)
    story.settle_later()
    story.look()


def lived(steps: list[tuple[str, int, int]]) -> Story:
    """A story in which one member that lasts was there first and stays one, whatever happens to it."""
    story = Story()
    keeper = story.clients["x"]
    story.connect(keeper, story.brokers[0])
    story.go_well(lambda: keeper.welcome)
    for what, one, other in steps:
        mine = list(story.clients)[other] == "x"
        if not (mine and what in ("anew", "quit")):
            happen(story, what, one, other)
    for number, client in enumerate(story.clients.values()):
        if client.at is None and client.lasting:
            story.connect(client, story.brokers[number % 3])
    story.go_well(story.is_settled)
    story.look()
    return story


@settings(max_examples=300, deadline=None)
@given(stories)
def test_each_message_has_one_member_and_at_qos_2_always_the_same(
    steps: list[tuple[str, int, int]],
) -> None:
    story = lived(steps)
    twice: dict[int, str] = {}
    taken: set[int] = set()
    for client in story.clients.values():
        for position, qos in client.taken:
            taken.add(position)
            if qos == 2:
                assert position not in twice, f"{position} by {twice[position]} and by {client.name}"
                twice[position] = client.name
    assert {matched.position for matched in story.log} - taken <= story.may_be_lost()
    assert story.is_settled()


@settings(max_examples=300, deadline=None)
@given(stories)
def test_groups_that_end_and_are_made_anew_have_nothing_in_common(steps: list[tuple[str, int, int]]) -> None:
    story = Story()
    for what, one, other in steps:
        happen(story, what, one, other)
    twice: set[int] = set()
    for client in story.clients.values():
        fresh = [position for position, qos in client.taken if qos == 2]
        assert not twice.intersection(fresh)
        assert len(set(fresh)) == len(fresh)
        twice.update(fresh)


@settings(max_examples=100, deadline=None)
@given(stories)
def test_a_member_gets_new_messages_once_all_goes_well(
    steps: list[tuple[str, int, int]],
) -> None:
    story = Story()
    for what, one, other in steps:
        happen(story, what, one, other)
    client = story.clients["y"]
    story.connect(client, story.brokers[0])
    story.go_well(lambda: client.welcome)
    end = story.end
    story.publish(1)
    story.go_well(
        lambda: any(position > end for each in story.clients.values() for position, _ in each.taken)
    )
    taken = [position for each in story.clients.values() for position, _ in each.taken]
    assert end + 1 in taken
