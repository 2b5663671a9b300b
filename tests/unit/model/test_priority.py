"""What user properties say of a message's priority."""

from __future__ import annotations

import pytest

from tocsin.model.priority import CRITICAL, priority_of, property_of
from tocsin.model.publication import Publication


@pytest.mark.parametrize(
    ("said", "priority"),
    [
        ((), 0),
        ((("other", "9"),), 0),
        ((("priority", "0"),), 0),
        ((("priority", "6"),), 6),
        ((("priority", "9"),), 9),
        ((("priority", "critical"),), 9),
        ((("other", "9"), ("priority", "3"), ("priority", "9")), 3),
        # Words of the publisher's own: they are nobody's business here.
        ((("priority", "high"),), 0),
        ((("priority", ""),), 0),
        ((("priority", "10"),), 0),
        ((("priority", "-1"),), 0),
        ((("priority", "٩"),), 0),  # a digit, in another script
        ((("Priority", "9"),), 0),
    ],
)
def test_a_priority_is_a_digit_or_the_word(said: tuple[tuple[str, str], ...], priority: int) -> None:
    assert priority_of(said) == priority
    publication = Publication("a", b"", 1, "me", user_properties=said)
    assert publication.critical is (priority >= CRITICAL)


@pytest.mark.parametrize("priority", [*range(10), *map(str, range(10)), "critical"])
def test_what_is_written_is_read_again(priority: int | str) -> None:
    assert priority_of([property_of(priority)]) == (9 if priority == "critical" else int(priority))


@pytest.mark.parametrize("bad", [-1, 10, "high", "", "07", " 7", True, 7.0])
def test_what_is_no_priority_is_refused_in_words(bad: int | str) -> None:
    with pytest.raises(ValueError, match="0 to 9, or 'critical', not"):
        property_of(bad)
