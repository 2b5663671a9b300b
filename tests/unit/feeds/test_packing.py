"""Records in entries: the ones that were put in come out, in their order."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tocsin.feeds.packing import ENTRY_MAX_BYTES, ENTRY_MAX_RECORDS, Pack, is_object, pack
from tocsin.model.feeding import RECORD_MAX_BYTES
from tocsin.ports import PAYLOAD_MAX_BYTES

objects = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=9), max_size=3).map(
    lambda found: json.dumps(found).encode()
)
others = st.sampled_from([b"", b"21.5", b"null", b'"text"', b"{", b"{}x", b"\xff{}", b"not JSON"])


def unpacked(entry: Pack) -> list[object]:
    """What the pipeline makes of an entry, said as simply as possible."""
    try:
        found = json.loads(entry.payload)
    except ValueError:
        return [entry.payload]
    return found if isinstance(found, list) else [found]


def plain(record: bytes) -> object:
    try:
        return json.loads(record)
    except ValueError:
        return record


@given(st.lists(objects | others, max_size=40))
def test_what_is_packed_is_found_again_in_order(records: list[bytes]) -> None:
    entries = pack(records)
    assert [each for entry in entries for each in unpacked(entry)] == [plain(each) for each in records]
    assert sum(entry.records for entry in entries) == len(records)


@given(st.lists(st.integers(1, ENTRY_MAX_BYTES // 2), max_size=60))
def test_entries_keep_to_their_bounds(sizes: list[int]) -> None:
    records = [b'{"x":"%b"}' % (b"a" * size) for size in sizes]
    entries = pack(records)
    assert all(len(entry.payload) <= ENTRY_MAX_BYTES + 20 for entry in entries)
    assert all(entry.records <= ENTRY_MAX_RECORDS for entry in entries)
    for one, other in pairwise(entries):  # no record could have gone with those before
        first = len(json.dumps(unpacked(other)[0]))
        assert len(one.payload) + first > ENTRY_MAX_BYTES - 10


def test_many_small_records_are_few_entries() -> None:
    entries = pack([b"{}"] * (2 * ENTRY_MAX_RECORDS + 1))
    assert [entry.records for entry in entries] == [ENTRY_MAX_RECORDS, ENTRY_MAX_RECORDS, 1]


def test_an_oversized_record_is_cut_and_no_longer_a_record() -> None:
    large = b'{"x": "%b"}' % (b"a" * PAYLOAD_MAX_BYTES)
    (entry,) = pack([large])
    assert len(entry.payload) == RECORD_MAX_BYTES
    assert not is_object(entry.payload)


def test_a_deeply_nested_record_is_packed_beside_others() -> None:
    deep = b'{"x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    entries = pack([b"{}", deep, b"{}"])
    assert sum(entry.records for entry in entries) == 3
