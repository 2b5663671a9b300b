"""One message is for a subscription, is left out, or does not match: whoever judges, and whenever."""

from __future__ import annotations

import pytest

from tocsin.core.quality.judging import STRING_MAX, Judge, Verdict, fields_of, offer_in
from tocsin.core.quality.texts import read_request, request_text


def judged(request: str, payload: bytes = b"{}", *, offered: str = "", qos: int = 0) -> Verdict:
    return Judge().judge(request_text(read_request(request)), offered, payload, qos)


@pytest.mark.parametrize(
    ("where", "payload", "verdict"),
    [
        ("temp > 30", b'{"temp": 31}', Verdict.DELIVER),
        ("temp > 30", b'{"temp": 30}', Verdict.LEAVE_OUT),
        ("temp > 30", b'{"other": 31}', Verdict.LEAVE_OUT),
        ("NOT temp > 30", b'{"other": 31}', Verdict.LEAVE_OUT),
        ("reading.value > 3", b'{"reading": {"value": 4}}', Verdict.DELIVER),
        ("reading.value > 3", b'{"reading.value": 4}', Verdict.DELIVER),
        ("reading.value > 3", b'{"reading": 4}', Verdict.LEAVE_OUT),
        ("kind = 'a'", b' {"kind": "a"}', Verdict.DELIVER),
        ("alarm", b'{"alarm": true}', Verdict.DELIVER),
        ("EXISTS list", b'{"list": [1]}', Verdict.LEAVE_OUT),
        ("temp > 30", b"31", Verdict.LEAVE_OUT),
        ("temp > 30", b'{"temp": 31', Verdict.LEAVE_OUT),
        ("temp > 30", b'{"temp": "\xff"}', Verdict.LEAVE_OUT),
        ("temp > 30", b'{"a":' * 5_000, Verdict.LEAVE_OUT),
        ("temp > 30", b"", Verdict.LEAVE_OUT),
    ],
)
def test_a_message_is_for_whom_its_fields_satisfy(where: str, payload: bytes, verdict: Verdict) -> None:
    assert judged(f"where={where}", payload) is verdict


def test_a_mismatch_is_no_matter_of_fields() -> None:
    request = "deadline=100ms,where=temp > 30"
    assert judged(request, b'{"temp": 31}') is Verdict.MISMATCH
    assert judged(request, b'{"temp": 31}', offered="deadline=50ms") is Verdict.DELIVER
    assert judged(request, b'{"temp": 1}', offered="deadline=50ms") is Verdict.LEAVE_OUT


def test_partitions_that_do_not_meet_are_no_mismatch() -> None:
    assert judged("partition=a,deadline=1s", offered="partition=b") is Verdict.LEAVE_OUT


def test_an_offer_that_cannot_be_read_is_none() -> None:
    assert judged("deadline=1s", offered="deadline=soon") is Verdict.MISMATCH


def test_fields_of_one_payload_are_remembered_for_no_other() -> None:
    judge, request = Judge(), request_text(read_request("where=a = 1"))
    for _ in range(2):
        assert judge.judge(request, "", b'{"a": 1}', 0) is Verdict.DELIVER
        assert judge.judge(request, "", b'{"a": 2}', 0) is Verdict.LEAVE_OUT


def test_offers_are_texts_and_nothing_else() -> None:
    assert offer_in(None) == offer_in({}) == offer_in({"$offer": 3}) == ""
    assert offer_in({"$offer": "deadline=1s"}) == "deadline=1s"
    assert len(fields_of(b'{"a": 1, "b": 2}')) == 2 and list(fields_of(b'{"a": 1}')) == ["a"]


def test_a_string_beyond_the_bound_counts_as_missing() -> None:
    assert judged("where=a LIKE 'x%'", b'{"a": "' + b"x" * STRING_MAX + b'"}') is Verdict.DELIVER
    assert judged("where=a LIKE 'x%'", b'{"a": "' + b"x" * (STRING_MAX + 1) + b'"}') is Verdict.LEAVE_OUT
