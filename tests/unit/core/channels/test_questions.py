"""Questions that wait for their answers: bounds and turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.channels.questions import Questions


def test_client_has_no_more_questions_than_it_may() -> None:
    questions = Questions[str, str](per_client=2)
    assert [questions.ask("a") for _ in range(3)] == [True, True, False]
    assert questions.ask("b")
    questions.done("a", "a1")
    assert questions.ask("a")


def test_clients_take_turns() -> None:
    questions = Questions[str, str](at_once=1)
    for each in ("a1", "a2", "a3", "b1", "c1"):
        questions.ask(each[0])
        questions.queue(each[0], each)
    order, now = list[str](), ["a1"]
    while now:
        order += now
        now = questions.done(now[0][0], now[0])
    assert order == ["a1", "a2", "b1", "c1", "a3"]  # a was alone when its first was begun


def test_question_that_is_given_up_leaves_its_place() -> None:
    questions = Questions[str, str](at_once=1)
    for each in ("a1", "b1", "c1"):
        questions.ask(each[0])
        questions.queue(each[0], each)
    assert questions.done("b", "b1") == []
    assert questions.done("a", "a1") == ["c1"]


STEPS = st.lists(st.tuples(st.sampled_from(["ask", "queue", "done"]), st.integers(0, 3)), max_size=80)


@given(STEPS)
def test_bounds_hold_and_nobody_waits_for_nothing(steps: list[tuple[str, int]]) -> None:
    questions = Questions[int, tuple[int, int]](at_once=2, per_client=3)
    asked: dict[tuple[int, int], str] = {}
    for number, (what, client) in enumerate(steps):
        mine = [each for each in asked if each[0] == client]
        begun: list[tuple[int, int]] = []
        if what == "ask":
            if questions.ask(client):
                asked[client, number] = "asked"
            assert len([each for each in asked if each[0] == client]) == min(3, len(mine) + 1)
        elif what == "queue" and (new := [each for each in mine if asked[each] == "asked"]):
            asked[new[0]] = "queued"
            begun = questions.queue(client, new[0])
        elif what == "done" and mine:
            del asked[mine[0]]
            begun = questions.done(client, mine[0])
        for each in begun:
            assert asked[each] == "queued"
            asked[each] = "read"
        read = sum(state == "read" for state in asked.values())
        assert read <= 2 and (read == 2 or "queued" not in asked.values())
