"""The client's side of an AMQP connection, without a socket."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bridge.server import Played
from tocsin.bridge.peer import (
    ACCEPTED,
    IDLE_S,
    WINDOW,
    Attached,
    Credited,
    Decided,
    Delivered,
    Detached,
    Ended,
    Login,
    Oversized,
    Peer,
    State,
)
from tocsin.wire.amqp.frames import SASL_HEADER, frame
from tocsin.wire.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Rejected,
    SaslInit,
    Transfer,
)


def test_a_user_logs_in_with_a_password() -> None:
    played = Played(Login("PLAIN", "alice", "secret")).open()
    (init,) = played.sasl
    assert init.performative == SaslInit(
        mechanism="PLAIN", initial_response=b"\0alice\0secret", hostname="there.example.org"
    )
    assert played.peer.state is State.OPEN


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "EXTERNAL"])
def test_others_log_in_without_one(mechanism: str) -> None:
    played = Played(Login(mechanism), mechanisms=(mechanism,)).open()
    (init,) = played.sasl
    assert isinstance(init.performative, SaslInit) and init.performative.initial_response == b""


def test_a_log_in_that_is_refused_is_told_in_words() -> None:
    (ended,) = Played(Login("PLAIN", "alice", "x")).log_in(code=1)
    assert isinstance(ended, Ended) and ended.refused
    assert "'alice' by PLAIN" in ended.reason and "wrong" in ended.reason
    (ended,) = Played(Login("PLAIN", "alice", "x")).log_in(code=4)
    assert isinstance(ended, Ended) and not ended.refused


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are() -> None:
    (ended,) = Played(Login("EXTERNAL")).log_in()
    assert isinstance(ended, Ended) and ended.refused
    assert "EXTERNAL" in ended.reason and "PLAIN, ANONYMOUS" in ended.reason


@pytest.mark.parametrize(
    ("data", "words"), [(b"HTTP/1.1 400", "does not speak AMQP"), (b"AMQP\x00\x00\x09\x01", "version 0.9.1")]
)
def test_a_peer_of_another_protocol_is_told(data: bytes, words: str) -> None:
    (ended,) = Played().say(data)
    assert isinstance(ended, Ended) and words in ended.reason


def test_a_link_begins_with_a_session_of_its_own() -> None:
    played = Played().open()
    played.peer.attach("in", "orders", receives=True, max_bytes=1_000)
    (begin,) = played.said()
    assert isinstance(begin, Begin)
    played.tell(Begin(remote_channel=0, next_outgoing_id=0, incoming_window=9, outgoing_window=9))
    (attach,) = played.said()
    assert isinstance(attach, Attach) and attach.role and attach.source is not None
    assert (attach.source.address, attach.source.durable, attach.max_message_size) == ("orders", 2, 1_000)


def test_a_message_arrives_whole_and_is_settled() -> None:
    played = Played().open()
    assert played.attach("in", receives=True) == [Attached("in")]
    played.peer.grant("in", 2)
    (flow,) = played.said()
    assert isinstance(flow, Flow) and flow.link_credit == 2
    first = Transfer(handle=0, delivery_id=5, delivery_tag=b"t", more=True)
    assert played.tell(first, b"one ") == []
    assert played.tell(Transfer(handle=0, more=False), b"two") == [Delivered("in", 5, b"one two")]
    played.peer.settle("in", 5, ACCEPTED)
    (disposition,) = played.said()
    assert isinstance(disposition, Disposition)
    assert (disposition.role, disposition.first, disposition.settled) == (True, 5, True)


def test_a_message_over_the_limit_is_not_kept() -> None:
    played = Played().open()
    played.attach("in", receives=True)
    played.peer.grant("in", 2)
    played.tell(Transfer(handle=0, delivery_id=0, more=True), b"x" * 900)
    assert played.tell(Transfer(handle=0), b"x" * 900) == [Oversized("in", 0, 1_800)]
    played.tell(Transfer(handle=0, delivery_id=1, more=True), b"x")
    assert played.tell(Transfer(handle=0, aborted=True)) == [Oversized("in", 1, 0, True)]


def test_a_peer_that_sends_without_credit_is_left() -> None:
    played = Played().open()
    played.attach("in", receives=True)
    (ended,) = played.tell(Transfer(handle=0, delivery_id=0), b"x")
    assert isinstance(ended, Ended) and "without credit" in ended.reason
    assert any(isinstance(each, Close) for each in played.said())


def test_the_window_of_frames_is_opened_again() -> None:
    played = Played().open()
    played.attach("in", receives=True)
    played.peer.grant("in", 10_000)
    played.said()
    for number in range(WINDOW * 2):
        assert played.tell(Transfer(handle=0, delivery_id=number), b"x")
    flows = [each for each in played.said() if isinstance(each, Flow)]
    assert len(flows) == 3 and flows[0].next_incoming_id == WINDOW // 2 + 1


def test_a_message_is_sent_and_its_outcome_told() -> None:
    played = Played().open()
    played.attach("out", receives=False, max_message_size=5_000)
    assert played.flow(credit=3) == [Credited("out", 3)]
    played.peer.send("out", b"tag", b"hello")
    (sent,) = played.frames()
    assert isinstance(sent.performative, Transfer) and sent.payload == b"hello"
    assert (sent.performative.delivery_id, sent.performative.delivery_tag) == (0, b"tag")
    outcome = Rejected(error=Error(condition="amqp:x"))
    said = Disposition(role=True, first=0, settled=True, state=outcome)
    assert played.tell(said) == [Decided("out", b"tag", outcome)]
    assert played.tell(said) == []
    assert played.flow(credit=3, count=1, seen=1) == [Credited("out", 3)]
    assert played.flow(credit=3, count=0, seen=1) == [Credited("out", 2)]  # said before it had the message


def test_credit_that_comes_in_one_piece_is_not_used_twice() -> None:
    played = Played().open()
    played.attach("out", receives=False)
    flow = Flow(
        next_incoming_id=0, incoming_window=99, next_outgoing_id=0, outgoing_window=9,
        handle=0, delivery_count=0, link_credit=2,
    )  # fmt: skip
    seen = []
    for event in played.peer.heard(frame(flow) + frame(flow) + frame(Detach(handle=0)), 0):
        seen.append(event)
        if isinstance(event, Credited):
            for number in range(event.credit):
                played.peer.send("out", bytes((number,)), b"x")
    assert [type(each) for each in seen] == [Credited, Credited, Detached]
    assert [each.credit for each in seen if isinstance(each, Credited)] == [2, 0]


def test_a_peer_that_does_not_settle_is_told_that_we_do() -> None:
    played = Played().open()
    played.attach("out", receives=False)
    played.flow(credit=3)
    played.peer.send("out", b"a", b"1")
    played.peer.send("out", b"b", b"2")
    played.said()
    events = played.tell(Disposition(role=True, first=0, last=1, state=Accepted()))
    assert events == [Decided("out", b"a", Accepted()), Decided("out", b"b", Accepted())]
    (settled,) = played.said()
    assert isinstance(settled, Disposition) and settled.settled and not settled.role


def test_a_large_message_is_cut_into_frames_that_the_peer_takes() -> None:
    played = Played().open(max_frame_size=512)
    played.attach("out", receives=False, window=2)
    played.flow(credit=1, window=2)
    payload = bytes(range(256)) * 6
    played.peer.send("out", b"tag", payload)
    sent = played.frames()
    assert len(sent) == 2  # as the peer's window says
    played.flow(credit=0, count=1, seen=2, window=10)
    sent += played.frames()
    assert b"".join(each.payload for each in sent) == payload
    mores = [each.performative.more for each in sent if isinstance(each.performative, Transfer)]
    assert mores == [True] * (len(sent) - 1) + [False]


def test_a_link_that_the_peer_refuses_leaves_the_others() -> None:
    played = Played().open()
    played.attach("one", receives=True)
    played.peer.attach("two", "nowhere", receives=True, max_bytes=9)
    played.tell(Begin(remote_channel=1, next_outgoing_id=0, incoming_window=9, outgoing_window=9), channel=1)
    played.said()
    ended = End(error=Error(condition="amqp:not-found", description="no queue nowhere"))
    (detached,) = played.tell(ended, channel=1)
    assert detached == Detached("two", "the peer ended its session: amqp:not-found: no queue nowhere")
    assert [type(each) for each in played.said()] == [End]
    played.peer.grant("one", 1)
    assert played.tell(Transfer(handle=0, delivery_id=0), b"x") == [Delivered("one", 0, b"x")]
    assert played.attach("two", receives=True, channel=1) == [Attached("two")]


def test_a_link_that_is_detached_can_be_attached_again() -> None:
    played = Played().open()
    played.attach("in", receives=True)
    (detached,) = played.tell(Detach(handle=0, closed=True))
    assert isinstance(detached, Detached)
    assert [type(each) for each in played.said()] == [Detach, End]
    played.peer.grant("in", 5)  # too late, and no harm
    assert played.said() == []
    assert played.attach("in", receives=True, channel=1) == [Attached("in")]
    assert played.tell(End()) == []  # of the first


def test_a_null_end_is_a_refusal_whose_reason_follows() -> None:
    played = Played().open()
    played.peer.attach("in", "orders", receives=True, max_bytes=9)
    played.tell(Begin(remote_channel=0, next_outgoing_id=0, incoming_window=9, outgoing_window=9))
    assert played.tell(Attach(name="in", handle=0, role=False)) == []
    (detached,) = played.tell(
        Detach(handle=0, closed=True, error=Error(condition="amqp:unauthorized-access"))
    )
    assert isinstance(detached, Detached) and "unauthorized" in detached.reason


def test_no_more_sessions_are_begun_than_the_peer_takes() -> None:
    played = Played().open(channel_max=0)
    played.peer.attach("one", "a", receives=True, max_bytes=9)
    with pytest.raises(ValueError, match="no more than 1 session"):
        played.peer.attach("two", "b", receives=True, max_bytes=9)


def test_the_peers_close_is_answered_and_told() -> None:
    played = Played().open()
    (ended,) = played.tell(Close(error=Error(condition="amqp:connection:forced", description="shut down")))
    assert ended == Ended("it closed the connection: amqp:connection:forced: shut down")
    assert [type(each) for each in played.said()] == [Close]


def test_a_connection_is_kept_alive_and_a_silent_peer_is_left() -> None:
    played = Played().open(idle_time_out=4_000)
    assert played.peer.tick(2_500_000) == []
    (beat,) = played.frames()
    assert beat.performative is None
    assert played.peer.tick(3_000_000) == [] and played.frames() == []
    (ended,) = played.peer.tick((2 * IDLE_S + 1) * 1_000_000)
    assert isinstance(ended, Ended) and "nothing" in ended.reason


@given(st.binary(max_size=120), st.integers(0, 3))
def test_whatever_a_peer_says_is_an_event_or_an_end(data: bytes, how_far: int) -> None:
    if how_far == 0:
        peer = Peer("here", "there", Login())
        events = list(peer.heard(data, 0))
    else:
        played = Played().open()
        if how_far > 1:
            played.attach("in", receives=how_far == 2)
        peer = played.peer
        events = played.say(data)
    if any(isinstance(each, Ended) for each in events):
        assert peer.state is State.CLOSED
    with contextlib.suppress(AssertionError):
        peer.close()


@given(
    st.lists(
        st.sampled_from(
            [
                frame(Transfer(handle=0, delivery_id=1), b"x"),
                frame(
                    Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=0, handle=0, link_credit=9)
                ),
                frame(Disposition(role=True, first=0, last=9, settled=True)),
                frame(Attach(name="in", handle=0, role=False)),
                frame(Detach(handle=0)),
                frame(End()),
                frame(Begin(remote_channel=0), channel=1),
                frame(None),
                SASL_HEADER,
            ]
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_frames_at_the_wrong_moment_end_at_most_the_connection(said: list[bytes], receives: bool) -> None:
    played = Played().open()
    played.attach("in", receives=receives)
    for each in said:
        played.say(each)
    played.peer.grant("in", 1)
    assert played.peer.state in (State.OPEN, State.CLOSED)
