"""References to metadata: written when they have to be, remembered within bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.streams.references import AGAIN_MAX_US, TOPICS_MAX, WRITTEN_MAX, Known, Writing
from tocsin.model.said import INLINE_MAX_BYTES, decode_said, encode_said, reference_of
from tocsin.model.stream import Value

LARGE: dict[str, Value] = {"key": "v" * 200, "other": 1}
values = st.text(max_size=20) | st.integers(-(2**53), 2**53) | st.booleans()


@given(st.dictionaries(st.text(max_size=10), values))
def test_metadata_come_back_and_equal_ones_have_one_reference(keys: dict[str, Value]) -> None:
    turned = dict(reversed(keys.items()))
    assert decode_said(encode_said(keys)) == keys
    assert reference_of(encode_said(turned)) == reference_of(encode_said(keys))


def test_what_is_short_needs_no_reference() -> None:
    writing = Writing(None, None)
    assert writing.refer("t", None) == writing.refer("t", {}) == (b"", b"")
    assert writing.refer("t", {"Room": "410"}) == (b"", b"")
    reference, data = writing.refer("t", LARGE)
    assert len(data) > INLINE_MAX_BYTES and reference == reference_of(data)
    assert writing.refer("t", LARGE)[1] is data, "the same object is not encoded again"
    assert writing.refer("t", dict(LARGE)) == (reference, data)


def test_what_is_written_is_written_again_before_the_log_forgets_it() -> None:
    writing = Writing(6_400.0, 64_000)
    assert writing.is_due(b"r", 0)
    writing.wrote(b"r", 0)
    assert not writing.is_due(b"r", 100_000_000)
    assert writing.is_due(b"r", 100_000_001)
    writing.wrote(b"r", 0)
    writing.taken += 1_000
    assert not writing.is_due(b"r", 0)
    writing.taken += 1
    assert writing.is_due(b"r", 0)
    writing.wrote(b"r", 0)
    writing.failed(b"r")
    assert writing.is_due(b"r", 0)


def test_a_log_that_keeps_for_ever_has_it_once_an_hour() -> None:
    writing = Writing(None, None)
    writing.wrote(b"r", 0)
    writing.taken += 1 << 60
    assert not writing.is_due(b"r", AGAIN_MAX_US)
    assert writing.is_due(b"r", AGAIN_MAX_US + 1)


def test_what_is_remembered_is_bounded() -> None:
    writing, known = Writing(None, None), Known(10_000)
    for number in range(WRITTEN_MAX + 10):
        writing.wrote(b"%d" % number, 0)
    assert writing.is_due(b"0", 0) and not writing.is_due(b"10", 0)
    for number in range(TOPICS_MAX + 10):
        writing.refer(f"{number}", LARGE)
    assert len(writing._of_topic) == TOPICS_MAX
    for number in range(1_000):
        known.learn(b"%d" % number, LARGE, 700)
        assert known.get(b"0") is not None, "what is used stays"
    assert known.size <= 10_000 and known.get(b"1") is None and known.get(b"999") == LARGE
    known.learn(b"999", LARGE, 700)
    assert known.size <= 10_000
