"""Any history of one connection: what a session promises holds, whatever the peer and the shell do."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt5 import (
    AuthPacket,
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PubAckPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)

from tocsin.core.machine import Effect, Event, TimerFired
from tocsin.core.session import (
    CONNECT_DEADLINE,
    KEEP_ALIVE,
    Accepted,
    Authenticated,
    Close,
    Opened,
    PacketArrived,
    PeerClosed,
    Publish,
    Rejected,
    SendPacket,
    ServerMoved,
    ServerStopping,
    Session,
    SessionLimits,
    Subscribe,
    TakenOver,
    Unsubscribe,
    WireFailed,
)
from tocsin.errors import Malformed, PacketTooLarge, UnsupportedVersion
from tocsin.wire.codec import V5, V311, Version, encode

LIMITS = SessionLimits(
    subscriptions_max=3,
    topic_max_bytes=20,
    topic_max_levels=4,
    client_id_max_bytes=10,
    keep_alive_max_s=60,
    early_max_bytes=1_000,
)
S = 1_000_000
WILL = Will("gone", payload=b"bye", will_delay_interval=30, content_type="text/plain")

names = st.sampled_from(["a", "a/b", "", "x" * 25, "a/b/c/d/e", "$SYS/a"])
some_packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(
        ConnectPacket,
        st.sampled_from(["", "c", "c" * 20]),
        clean_start=st.booleans(),
        keep_alive=st.integers(0, 100),
        will=st.none() | st.just(WILL) | st.just(Will("t", retain=True)),
        max_packet_size=st.none() | st.integers(1, 60),
        session_expiry_interval=st.integers(0, 1),
        request_problem_info=st.booleans(),
    ),
    st.builds(PublishPacket, names.filter(bool), st.binary(max_size=300), retain=st.booleans()),
    st.builds(
        SubscribePacket,
        st.just(1),
        st.lists(
            st.builds(TopicFilter, names | st.just("$share/g/a") | st.just("#")), min_size=1, max_size=9
        ),
        subscription_id=st.none() | st.just(1),
    ),
    st.builds(UnsubscribePacket, st.just(1), st.lists(names, min_size=1, max_size=3)),
    st.builds(DisconnectPacket, session_expiry_interval=st.none() | st.just(3)),
    st.sampled_from(
        [PingReqPacket(), AuthPacket(), PubAckPacket(1), PubRecPacket(1), PubRelPacket(1), PingRespPacket()]
    ),
)
errors = st.sampled_from(
    [Malformed("bad"), PacketTooLarge(2, 1), UnsupportedVersion("MQTT", 3), UnsupportedVersion("?", 9)]
)
peer_events = st.one_of(
    st.tuples(st.just("packet"), some_packets),
    st.tuples(st.just("error"), errors),
    st.tuples(st.just("other"), st.sampled_from([PeerClosed(), ServerStopping()])),
    st.tuples(st.just("other"), st.builds(ServerMoved, server_reference=st.just("b:1"))),
    st.tuples(st.just("other"), st.builds(TimerFired, name=st.sampled_from([CONNECT_DEADLINE, KEEP_ALIVE]))),
    st.tuples(st.just("shell"), st.sampled_from([Authenticated(), Rejected(), TakenOver()])),
)
LEGAL_OF_SHELL = {"authenticating": (Authenticated, Rejected), "connected": (TakenOver,), "closed": (Event,)}


@given(
    st.sampled_from([V311, V5]),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 20), peer_events), max_size=25),
)
@settings(max_examples=400, deadline=None)
def test_whatever_happens_the_promises_hold(
    version: Version, comes_in: bool, history: list[tuple[int, tuple[str, Any]]]
) -> None:
    session = Session(LIMITS)
    now_us = 0
    seen: list[Effect] = session.handle(Opened(assigned_client_id="tocsin-1"), now_us)
    if comes_in:
        connect = ConnectPacket("c", keep_alive=20, will=WILL, clean_start=True)
        history = [(0, ("packet", connect)), (0, ("shell", Authenticated())), *history]
    for waited_s, (kind, what) in history:
        now_us += waited_s * S
        if kind == "shell" and not isinstance(what, LEGAL_OF_SHELL.get(session.state, ())):
            continue
        event: Event = what
        if kind == "packet":
            event = PacketArrived(packet=what, version=version)
        elif kind == "error":
            event = WireFailed(error=what, version=None if session.state == "connecting" else version)
        was_closed = session.state == "closed"
        effects = session.handle(event, now_us)
        assert not (was_closed and effects)
        for effect in effects:
            if isinstance(effect, SendPacket):
                encode(effect.packet, session.version)
        seen += effects
    check_promises(seen, session)


def check_promises(seen: list[Effect], session: Session) -> None:
    closes = [index for index, effect in enumerate(seen) if isinstance(effect, Close)]
    assert closes == ([len(seen) - 1] if session.state == "closed" else [])
    packets = [effect.packet for effect in seen if isinstance(effect, SendPacket)]
    welcomes = [packet for packet in packets if isinstance(packet, ConnAckPacket)]
    accepted = [index for index, effect in enumerate(seen) if isinstance(effect, Accepted)]
    assert len(welcomes) <= 1 and welcomes == packets[: len(welcomes)]
    assert len(accepted) <= 1
    if accepted:
        follows = seen[accepted[0] + 1]
        assert isinstance(follows, SendPacket) and isinstance(follows.packet, ConnAckPacket)
        assert int(follows.packet.reason_code) == 0
    elif welcomes:
        assert int(welcomes[0].reason_code) != 0
    wanted: set[str] = set()
    for index, effect in enumerate(seen):
        if isinstance(effect, Subscribe | Unsubscribe | Publish):
            assert accepted and index > accepted[0]
        if isinstance(effect, Subscribe):
            assert effect.existed is (effect.pattern in wanted)
            wanted.add(effect.pattern)
            assert len(wanted) <= LIMITS.subscriptions_max
        elif isinstance(effect, Unsubscribe):
            wanted.remove(effect.pattern)
    wills = [effect for effect in seen if isinstance(effect, Publish) and effect.will]
    assert len(wills) <= 1
    if wills:
        assert seen[-2] is wills[0]
