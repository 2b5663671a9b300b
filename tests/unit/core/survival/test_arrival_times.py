"""A client stays where it came last."""

from __future__ import annotations

from tocsin.core.survival.arrival_times import ArrivalTimes


def test_a_word_from_before_the_client_came_is_too_late() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    assert presence.since("me", 99)
    assert not presence.since("me", 100), "of two that came at once nobody is the later one: the word counts"
    assert not presence.since("me", 101)


def test_of_a_client_that_is_not_here_every_word_counts() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    presence.went("me")
    presence.went("you")
    assert not presence.since("me", 1)
    assert not presence.since("you", 1)


def test_who_comes_again_has_come_later() -> None:
    presence = ArrivalTimes()
    presence.came("me", 100)
    presence.came("me", 200)
    assert presence.since("me", 150)
