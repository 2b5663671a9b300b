"""Each answer of a server becomes one error of ours."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Refused, StoreError, StoreFull, StoreUnavailable
from tocsin.store.jetstream.verdict import Passing, ServerError, judge, read_answer


@pytest.mark.parametrize(
    ("code", "number", "words", "expected"),
    [
        (503, 10023, "insufficient resources", StoreFull),
        (400, 10002, "resource limits exceeded for account", StoreFull),
        (500, 10047, "insufficient storage resources available", StoreFull),
        (503, 10077, "maximum bytes exceeded", StoreFull),
        (503, 10077, "write /x: no space left on device", StoreFull),
        (503, 10077, "something else", StoreUnavailable),
        (503, 10008, "JetStream system temporarily unavailable", StoreUnavailable),
        (400, 10005, "no suitable peers for placement", StoreUnavailable),
        (400, 10176, "atomic publish batch is incomplete", StoreUnavailable),
        (429, 10210, "atomic publish too many inflight", StoreUnavailable),
        (409, 10158, "duplicate message id is in process", StoreUnavailable),
        (500, 99999, "a number of the future", StoreUnavailable),
        (400, 10065, "subjects overlap with an existing stream", Refused),
        (400, 10054, "message size exceeds maximum allowed", Refused),
        (404, 10059, "stream not found", Refused),
        (500, 10074, "replicas > 1 not supported in non-clustered mode", Refused),
        (400, 99999, "a number of the future", Refused),
    ],
)
def test_an_error_of_the_server_is_judged(
    code: int, number: int, words: str, expected: type[StoreError]
) -> None:
    error = judge("test", ServerError(code, number, words))
    assert isinstance(error, expected)
    assert words in str(error)
    assert error.retryable == (expected is StoreUnavailable)


def test_an_answer_is_its_json_and_its_error() -> None:
    assert read_answer("test", b'{"seq": 7}') == ({"seq": 7}, None)
    _, error = read_answer("test", b'{"error": {"code": 400, "err_code": 10071, "description": "wrong"}}')
    assert error == ServerError(400, 10071, "wrong")
    _, error = read_answer("test", b'{"error": {}}')
    assert error == ServerError()


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(msgspec.json.encode)
)
def test_what_is_no_answer_is_trouble_that_may_pass(payload: bytes) -> None:
    with pytest.raises(Passing):
        answer, _ = read_answer("test", payload)
        assert isinstance(answer, dict)
        raise Passing("test", "bytes that happen to be an object")
