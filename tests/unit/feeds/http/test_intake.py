"""Bodies of requests as records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.feeds.http.intake import BodyInvalid, packed, read_records, request_id
from tocsin.ports import PAYLOAD_MAX_BYTES

objects = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=9), max_size=3)


@given(st.lists(objects, min_size=1, max_size=9), st.sampled_from(["array", "pretty", "lines", "crlf"]))
def test_records_are_read_however_they_are_written(said: list[dict[str, object]], how: str) -> None:
    if how in ("array", "pretty"):
        body = json.dumps(said, indent=2 if how == "pretty" else None)
    else:
        body = ("\r\n" if how == "crlf" else "\n\n").join(map(json.dumps, said))
    assert [json.loads(each) for each in read_records(body.encode())] == said


@given(objects)
def test_one_object_may_be_written_over_several_lines(said: dict[str, object]) -> None:
    assert [json.loads(each) for each in read_records(json.dumps(said, indent=1).encode())] == [said]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "is empty"),
        (b" \n ", "is empty"),
        (b"[]", "array is empty"),
        (b"[{}", "begins like a JSON array"),
        (b"[{}, 7]", "element 2 is no JSON object: 7"),
        (b"21.5", "line 1 is no JSON object: 21.5"),
        (b"{}\n{}\n{", "line 3 is no JSON object"),
        (b"n,m\n1,2", "line 1 is no JSON object: n,m"),
        (b"\xff\xfe", "line 1 is no JSON object"),
        (b"[" * 100_000, "begins like a JSON array"),
        (b'[{"x": "%b"}]' % (b"a" * PAYLOAD_MAX_BYTES), "element 1 has 1048585 bytes"),
    ],
)
def test_a_body_that_is_not_records_is_refused_with_the_culprit(body: bytes, problem: str) -> None:
    with pytest.raises(BodyInvalid, match=problem):
        read_records(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_records_or_refused(body: bytes) -> None:
    try:
        records = read_records(body)
    except BodyInvalid:
        return
    assert records and all(isinstance(json.loads(each), dict) for each in records)


@given(st.lists(st.tuples(st.text(), st.binary(), st.binary()), min_size=2, max_size=2, unique=True))
def test_different_requests_have_different_ids(asked: list[tuple[str, bytes, bytes]]) -> None:
    one, other = asked
    assert request_id(*one) != request_id(*other)
    assert request_id(*one) == request_id(*one)


def test_more_than_one_append_takes_is_refused() -> None:
    large = b'{"x": "%b"}' % (b"a" * 300_000)
    with pytest.raises(BodyInvalid, match="send it in parts"):
        packed([large] * 1_001)
