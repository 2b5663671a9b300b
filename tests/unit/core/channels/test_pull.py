"""Questions for results: reading them, and what fits into an answer."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.channels.pull import (
    NEWEST,
    PAYLOAD_MAX_BYTES,
    RESULTS_MAX,
    Pull,
    PullInvalid,
    newest_within,
    read_pull,
)

ASKED = "$results/Near/alice"
NAME = "$channel/Near/alice"


class Sized(msgspec.Struct, frozen=True):
    payload: bytes


@pytest.mark.parametrize(
    ("payload", "limit", "since"),
    [
        (b"", NEWEST, None),
        (b" \n", NEWEST, None),
        (b"{}", NEWEST, None),
        (b'{"v": 1, "newest": 3}', 3, None),
        (b'{"since": 0}', RESULTS_MAX, 0),
        (b'{"since": 7340032, "limit": 20}', 20, 7340032),
        (b'{"limit": 5}', 5, None),
    ],
)
def test_a_question_states_the_newest_or_a_position(payload: bytes, limit: int, since: int | None) -> None:
    assert read_pull(ASKED, payload, "a/b") == Pull(NAME, "a/b", limit, since)


def test_the_reply_topic_may_be_in_the_payload() -> None:
    assert read_pull(ASKED, b'{"reply": "a/b"}', None).reply == "a/b"
    assert read_pull(ASKED, b'{"reply": "a/b"}', "c").reply == "c"


@pytest.mark.parametrize(
    ("payload", "reply", "code", "words"),
    [
        (b"", None, 0x99, "needs a response topic"),
        (b"", "a/#", 0x90, "wildcard"),
        (b"{", "a", 0x99, "is a JSON object such as"),
        (b"[]", "a", 0x99, "is a JSON object such as"),
        (b'{"reply": "\xff"}', None, 0x99, "is a JSON object such as"),
        (b'{"newset": 1}', "a", 0x99, "newset"),
        (b'{"newest": 0}', "a", 0x99, "1 to 1000"),
        (b'{"newest": 1001}', "a", 0x99, "1 to 1000"),
        (b'{"since": -1}', "a", 0x99, "a position is a number"),
        (b'{"newest": 1, "since": 5}', "a", 0x99, "not for both"),
        (b'{"v": 2}', "a", 0x99, "2"),
        (b" " * (PAYLOAD_MAX_BYTES + 1), "a", 0x99, "at most 4096 bytes"),
    ],
)
def test_a_bad_question_is_refused_in_words(payload: bytes, reply: str | None, code: int, words: str) -> None:
    with pytest.raises(PullInvalid) as refused:
        read_pull(ASKED, payload, reply)
    assert refused.value.reason_code == code
    assert words in refused.value.problem


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=5) | st.none(), max_size=5))
def test_any_object_is_read_or_refused(said: dict[str, object]) -> None:
    try:
        pull = read_pull(ASKED, json.dumps(said).encode(), "a")
    except PullInvalid:
        return
    assert 1 <= pull.limit <= RESULTS_MAX and (pull.since is None or pull.since >= 0)


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(1, 20), st.integers(0, 200))
def test_the_newest_fit_the_room_but_one_is_always_there(sizes: list[int], limit: int, room: int) -> None:
    results = [Sized(bytes(size)) for size in sizes]
    kept = newest_within(results, limit, room)
    assert list(kept) == results[len(results) - len(kept) :]
    assert len(kept) <= limit and bool(kept) == bool(results)
    taken = sum(len(each.payload) for each in kept)
    assert taken <= room or len(kept) == 1
    if len(kept) < min(limit, len(results)):
        assert taken + len(results[-len(kept) - 1].payload) > room
