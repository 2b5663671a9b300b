"""What may be said of a stream, and the words for what may not."""

from __future__ import annotations

import pytest

from tocsin.model.stream import (
    KEY_MAX_BYTES,
    KEYS_MAX,
    PERMANENT,
    TEXT_MAX_BYTES,
    WHOLE_MAX,
    Diff,
    diff_problem,
)


@pytest.mark.parametrize(
    "diff",
    [
        {},
        {"Location/Room": "410", "n": 1, "x": -1.5, "on": True, "old": None},
        {PERMANENT: True},
        {PERMANENT: None},
        {"k" * KEY_MAX_BYTES: "v" * TEXT_MAX_BYTES, "n": WHOLE_MAX},
        {str(number): number for number in range(KEYS_MAX)},
    ],
)
def test_what_can_be_kept_has_no_problem(diff: Diff) -> None:
    assert diff_problem(diff) is None


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        ({str(number): number for number in range(KEYS_MAX + 1)}, "65 keys in one change are over 64"),
        ({"": 1}, "a key has 1 to 256 bytes, not 0"),
        ({"ä" * 129: 1}, "a key has 1 to 256 bytes, not 258"),
        ({"broker": "x"}, "the key 'broker' is set by the system"),
        ({PERMANENT: "yes"}, "$permanent is true or false"),
        ({"a": "ä" * 513}, "the value of 'a' is longer than 1024 bytes"),
        ({"a": float("nan")}, "the value of 'a' is not a finite number"),
        ({"a": float("inf")}, "the value of 'a' is not a finite number"),
        ({"a": WHOLE_MAX + 1}, "the value of 'a' is beyond 2^53"),
    ],
)
def test_what_cannot_be_kept_is_named(diff: Diff, words: str) -> None:
    assert diff_problem(diff) == words
