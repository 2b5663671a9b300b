"""Performatives and frames of AMQP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import Malformed, PacketTooLarge
from tocsin.wire.amqp import values
from tocsin.wire.amqp.frames import PLAIN_HEADER, Reader, frame
from tocsin.wire.amqp.performatives import (
    Accepted,
    Attach,
    Composite,
    Disposition,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
    decode,
    encode,
    outcome_of,
)
from tocsin.wire.amqp.values import Described, Symbol, Ulong

U32 = st.integers(0, (1 << 32) - 1)
SAID = st.one_of(
    st.builds(Open, container_id=st.text("abc"), max_frame_size=U32, idle_time_out=st.none() | U32),
    st.builds(
        Flow, incoming_window=U32, handle=st.none() | U32, link_credit=st.none() | U32, drain=st.booleans()
    ),
    st.builds(Transfer, handle=U32, delivery_tag=st.none() | st.binary(max_size=32), more=st.booleans()),
    st.builds(
        Attach,
        name=st.text("abc"),
        role=st.booleans(),
        source=st.none() | st.builds(Source, address=st.text("abc"), durable=st.none() | U32),
        target=st.none() | st.builds(Target, address=st.text("abc")),
    ),
)


@given(SAID)
def test_a_performative_that_is_written_is_read_again(said: Composite) -> None:
    data = encode(said)
    assert decode(data + b"rest") == (said, len(data))


@given(st.lists(st.tuples(SAID, st.binary(max_size=100)), max_size=5), st.integers(1, 40))
def test_frames_are_read_however_their_bytes_arrive(said: list[tuple[Composite, bytes]], cut: int) -> None:
    reader = Reader(65_536)
    data = b"".join(frame(each, payload, channel=3) for each, payload in said)
    found = []
    for at in range(0, len(data), cut):
        reader.feed(data[at : at + cut])
        while (heard := reader.frame()) is not None:
            assert heard.channel == 3
            found.append((heard.performative, heard.payload))
    assert found == said


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_malformed(data: bytes) -> None:
    reader = Reader(1_000)
    reader.feed(data)
    try:
        while reader.frame() is not None:
            pass
    except (Malformed, PacketTooLarge):
        pass


def test_a_frame_over_the_limit_is_refused_before_it_arrives() -> None:
    reader = Reader(1_000)
    reader.feed((1_001).to_bytes(4) + b"\x02\x00\x00\x00")
    with pytest.raises(PacketTooLarge):
        reader.frame()


def test_the_first_bytes_tell_whether_a_peer_speaks_amqp() -> None:
    reader = Reader(1_000)
    reader.feed(b"HTTP/1.1 400 Bad Request")
    with pytest.raises(Malformed, match="HTTP/1"):
        reader.header()
    reader = Reader(1_000)
    reader.feed(PLAIN_HEADER[:5])
    assert reader.header() is None
    reader.feed(PLAIN_HEADER[5:])
    assert reader.header() == PLAIN_HEADER


def test_descriptors_may_be_names() -> None:
    said = Described(Symbol("amqp:rejected:list"), [Described(Symbol("amqp:error:list"), [Symbol("amqp:x")])])
    assert outcome_of(said) == Rejected(error=Error(condition="amqp:x"))


def test_outcomes_are_told_from_other_states() -> None:
    assert outcome_of(values.read(encode(Accepted()))[0]) == Accepted()
    assert outcome_of(values.read(encode(Modified(undeliverable_here=True)))[0]) == Modified(
        undeliverable_here=True
    )
    assert outcome_of(None) is None
    assert outcome_of(Described(Ulong(0x23), [])) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Described(Ulong(0x10), []), "container-id"),
        (Described(Ulong(0x15), [True]), "first"),
        (Described(Ulong(0x15), ["yes", 1]), "role"),
        (Described(Ulong(0x16), [values.Uint(0), True, "why"]), "error"),
        (Described(Ulong(0x10), "text"), "not a list"),
        (Described(Ulong(0x99), []), "not a performative"),
        ([], "not a performative"),
    ],
)
def test_what_is_no_performative_is_malformed_and_says_why(value: object, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        decode(values.write(value))


def test_a_disposition_may_leave_out_what_it_does_not_say() -> None:
    assert decode(values.write(Described(Ulong(0x15), [True, values.Uint(4)])))[0] == Disposition(
        role=True, first=4
    )
