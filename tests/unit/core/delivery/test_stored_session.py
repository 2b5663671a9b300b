"""What is stored of a session comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.config.schema import SUBSCRIPTIONS_MOST_BYTES
from tocsin.core.delivery.record_ids import RecordIds
from tocsin.core.delivery.stored_session import (
    STREAMS_MAX,
    STREAMS_MAX_BYTES,
    StoredSession,
    decode_session,
    encode_session,
    session_key,
    within,
)
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.core.session.subscribe import STORED_BYTES
from tocsin.errors import Malformed
from tocsin.model.stream import Value
from tocsin.model.versions import UNREADABLE
from tocsin.ports import PAYLOAD_MAX_BYTES

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
    except UNREADABLE as error:
        assert "a stored session" in str(error)


@given(sessions, st.data())
def test_a_cell_that_was_cut_off_is_malformed(session: StoredSession, data: st.DataObject) -> None:
    whole = encode_session(session)
    with pytest.raises(Malformed):
        decode_session(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.text(max_size=30), st.text(max_size=30))
def test_every_client_has_a_key_of_its_own(one: str, other: str) -> None:
    assert re.fullmatch("[0-9a-f]{40}", session_key(one))
    assert (session_key(one) == session_key(other)) == (one == other)


def test_the_largest_legal_session_fits_into_a_record() -> None:
    """Each part at its own bound."""
    ids, topic = RecordIds("p" * 60), "t" * 500
    number = 0
    while ids.has_room(number + 1, topic):
        number += 1
        ids.give(number, 2, topic, 1 << 50)
    name, most = "f" * 1_000, SUBSCRIPTIONS_MOST_BYTES
    subscription = Subscription(True, 268_435_455, 2, True, 1 << 50)
    filters = [f"{each:06}{name}" for each in range(most // (len(name) + 6 + STORED_BYTES))]
    positions = tuple(range(1 << 50, (1 << 50) + 1_000))
    full = Progress(1 << 50, positions, tuple(range(1, 65_536)))
    part = Progress(1 << 50, positions)
    said: dict[str, Value] = {f"{each:02}": "v" * 1_000 for each in range(60)}
    session = StoredSession(
        "c" * 256,
        uid="u" * 16,
        expiry_s=1 << 32,
        epoch=1 << 50,
        broker="b" * 63,
        owner="o" * 65_535,
        subscriptions=dict.fromkeys(filters, subscription),
        progress=full,
        results=part,
        critical=part,
        critical_messages=part,
        home="h" * 63,
        streams=within({f"{each}": said for each in range(100)}),
    )
    assert len(encode_session(ids.written_into(session))) <= PAYLOAD_MAX_BYTES


def test_a_session_tells_of_the_first_streams_up_to_a_bound() -> None:
    few: dict[str, dict[str, Value]] = {f"t/{each}": {"Room": "410"} for each in range(STREAMS_MAX)}
    assert within(few) == few
    assert list(within({**few, "one/more": {"Room": "410"}})) == list(few)
    large: dict[str, dict[str, Value]] = {f"t/{each}": {"Room": "4" * 10_000} for each in range(20)}
    assert list(within(large)) == list(large)[:6]
    assert len(encode_session(StoredSession("me", "u", 1, streams=within(large)))) < STREAMS_MAX_BYTES + 1_000


def test_a_session_says_of_which_streams_no_coordinator_has_what_was_said() -> None:
    session = StoredSession("me", "u", 1, streams={"t": {"Room": "1"}, "u": {"Room": "2"}}, unkept=(1,))
    assert decode_session(encode_session(session)).unkept_streams == ("u",)
    plain = StoredSession("me", "u", 1)
    assert (
        b"unkept" not in encode_session(plain) and decode_session(encode_session(plain)).unkept_streams == ()
    )
