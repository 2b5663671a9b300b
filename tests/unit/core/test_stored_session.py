"""What is stored of a session comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery import Progress
from tocsin.core.forwarding import Subscription
from tocsin.core.stored_session import StoredSession, decode_session, encode_session, session_key
from tocsin.errors import Malformed

numbers = st.integers(0, 2**53)
packet_ids = st.integers(1, 65_535)
sessions = st.builds(
    StoredSession,
    client=st.text(max_size=20),
    uid=st.text(max_size=8),
    expiry_s=st.integers(0, 0xFFFFFFFF),
    epoch=numbers,
    broker=st.text(max_size=8),
    subscriptions=st.dictionaries(
        st.text(max_size=8), st.builds(Subscription, qos=st.integers(0, 2), since=numbers), max_size=4
    ),
    progress=st.builds(
        Progress, numbers, st.tuples() | st.tuples(numbers), st.tuples() | st.tuples(packet_ids)
    ),
    inbound=st.dictionaries(packet_ids, st.text(max_size=8), max_size=4),
    received=st.tuples() | st.tuples(packet_ids),
)


@given(sessions)
def test_a_session_comes_back_as_it_was(session: StoredSession) -> None:
    assert decode_session(encode_session(session)) == session


@given(st.binary(max_size=60))
def test_whatever_is_no_session_is_malformed(data: bytes) -> None:
    try:
        decode_session(data)
    except Malformed as error:
        assert "not a stored session" in str(error)


@given(sessions, st.data())
def test_a_cell_that_was_cut_off_is_malformed(session: StoredSession, data: st.DataObject) -> None:
    whole = encode_session(session)
    with pytest.raises(Malformed):
        decode_session(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.text(max_size=30), st.text(max_size=30))
def test_every_client_has_a_key_of_its_own(one: str, other: str) -> None:
    assert re.fullmatch("[0-9a-f]{40}", session_key(one))
    assert (session_key(one) == session_key(other)) == (one == other)
