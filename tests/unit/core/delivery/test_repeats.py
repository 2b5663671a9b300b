"""What comes again is recognised, on each track for itself, and what is new is not kept back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.repeats import REMEMBERED, Repeats
from tocsin.core.delivery.window import CRITICAL, CRITICAL_MESSAGES, MESSAGES, RESULTS

TRACKS = (MESSAGES, CRITICAL_MESSAGES, RESULTS, CRITICAL)


def broken_after(*acknowledged: tuple[int, str]) -> Repeats:
    """A connection on which these were acknowledged, and the next one."""
    made = Repeats()
    made.begin(False)
    for packet_id, content in acknowledged:
        made.acknowledged(packet_id, content)
    made.begin(True)
    return made


def test_what_was_acknowledged_and_comes_again_is_a_repeat_once() -> None:
    made = broken_after((1, "a"), (2, "b"))
    assert made.is_repeat(1, "a", 1, False) and made.is_repeat(2, "b", 1, True)
    assert not made.is_repeat(2, "b", 1, False)


def test_a_new_message_ends_the_memory_before_it_on_its_own_track() -> None:
    result = RESULTS.of(7)
    made = broken_after((1, "a"), (result, "r"), (2, "b"))
    assert not made.is_repeat(result + 1, "new", 1, False)
    assert not made.is_repeat(result, "r", 1, False), "on its track, what was before it is over"
    assert made.is_repeat(1, "a", 1, False)
    assert not made.is_repeat(3, "c", 1, True), "marked as a repeat, it says nothing of what follows"
    assert made.is_repeat(2, "b", 1, False)


def test_an_older_new_message_keeps_the_memory_of_later_ones() -> None:
    last = MESSAGES.of(MESSAGES.count - 1)
    made = broken_after((last, "a"), (MESSAGES.first, "b"))
    assert not made.is_repeat(last - 1, "of a new subscription", 1, False)
    assert made.is_repeat(last, "a", 1, False)
    assert made.is_repeat(MESSAGES.first, "b", 1, False), "ids begin anew behind the last"


def test_another_content_or_qos_is_no_repeat() -> None:
    assert not broken_after((1, "a")).is_repeat(1, "b", 1, True)
    assert not broken_after((1, "a")).is_repeat(1, "a", 2, True)


def test_what_is_dealt_with_after_the_break_is_expected_at_once() -> None:
    made = broken_after()
    made.acknowledged(5, "a", heard=False)
    assert made.is_repeat(5, "a", 1, False)
    made.acknowledged(6, "b")
    assert not made.is_repeat(6, "b", 1, False), "on the same connection it is another one"


def test_a_new_session_has_no_memory_and_an_old_one_forgets() -> None:
    made = broken_after((1, "a"))
    made.begin(False)
    assert not made.is_repeat(1, "a", 1, False) and len(made) == 0
    made.acknowledged(1, "a")
    made.age()
    made.age()
    made.begin(True)
    assert not made.is_repeat(1, "a", 1, False)


def test_the_memory_is_bounded() -> None:
    made = Repeats()
    for number in range(REMEMBERED + 10):
        made.acknowledged(number % 1_000 + 1, str(number))
    assert len(made) == REMEMBERED


@given(st.lists(st.tuples(st.sampled_from(TRACKS), st.booleans()), max_size=30), st.randoms())
def test_tracks_that_are_mixed_in_any_way_lose_nothing_and_repeat_nothing(
    sent: list[tuple[object, bool]], chance: object
) -> None:
    """A broker sends again what it does not know to be acknowledged, then what is new, each track in its order."""
    told: dict[tuple[int, int], int] = {}  # packet id and number → how often
    acknowledged: list[tuple[int, int]] = []
    again: dict[object, list[tuple[int, int]]] = {}
    counts: dict[object, int] = {}
    made = Repeats()
    made.begin(False)
    for track, known in sent:
        counts[track] = counts.get(track, 0) + 1
        message = (track.of(counts[track]), counts[track])  # type: ignore[attr-defined]
        told[message] = 1
        made.acknowledged(*message)
        acknowledged.append(message)
        if not known or again.get(track):  # what follows something unknown is unknown, too
            again.setdefault(track, []).append(message)
    for track in TRACKS:
        number = counts.get(track, 0) + 1
        again.setdefault(track, []).append((track.of(number), number))
        told[track.of(number), number] = 0
    made.begin(True)
    while any(again.values()):
        track = chance.choice([each for each, left in again.items() if left])  # type: ignore[attr-defined]
        message = again[track].pop(0)
        if not made.is_repeat(*message, 1, False):
            told[message] += 1
            made.acknowledged(*message)
    assert set(told.values()) <= {1}
