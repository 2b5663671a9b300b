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
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRelPacket,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)

from tests.unit.core.session.sessions import LIMITS, WILL, S, message
from tocsin.core.machine import Effect, Event, TimerFired
from tocsin.core.session.machine import Session, SessionTimer
from tocsin.core.session.signals import (
    Accepted,
    Acknowledged,
    Authenticated,
    Close,
    Commit,
    CommitFailed,
    Committed,
    DelayWill,
    Opened,
    PacketArrived,
    PeerClosed,
    Publish,
    Rejected,
    Release,
    Released,
    Resumed,
    ResumeFailed,
    SendPacket,
    ServerStopping,
    Subscribe,
    TakenOver,
    Unsubscribe,
    WireFailed,
)
from tocsin.errors import Malformed, PacketTooLarge, UnsupportedVersion
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version

RESTORED = (5, 6)

names = st.sampled_from(["a", "a/b", "", "x" * 25, "a/b/c/d/e", "$SYS/a"])
ids = st.integers(1, 6)
messages = st.builds(
    message,
    ids,
    st.integers(1, 2),
    st.sampled_from(["a", "a", "a", "a/b", "$SYS/a"]),
    duplicate=st.booleans(),
    topic_alias=st.none() | st.just(1),
)
some_packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(
        ConnectPacket,
        st.sampled_from(["", "c", "c" * 20]),
        clean_start=st.booleans(),
        keep_alive=st.integers(0, 100),
        will=st.none() | st.just(WILL) | st.just(Will("t", retain=True)) | st.just(Will("$t")),
        max_packet_size=st.none() | st.integers(1, 60),
        session_expiry_interval=st.integers(0, 1),
        request_problem_info=st.booleans(),
    ),
    st.builds(
        PublishPacket,
        names.filter(bool),
        st.binary(max_size=300),
        retain=st.booleans(),
        topic_alias=st.none() | st.integers(1, 3),
    ),
    messages,
    st.builds(PubRelPacket, ids),
    st.builds(
        SubscribePacket,
        st.just(1),
        st.lists(
            st.builds(TopicFilter, names | st.just("$share/g/a") | st.just("#"), no_local=st.booleans()),
            min_size=1,
            max_size=9,
        ),
        subscription_id=st.none() | st.just(1),
    ),
    st.builds(UnsubscribePacket, st.just(1), st.lists(names | st.just("$share/g/a"), min_size=1, max_size=3)),
    st.builds(DisconnectPacket, session_expiry_interval=st.none() | st.integers(0, 200)),
    st.sampled_from(
        [PingReqPacket(), AuthPacket(), PubAckPacket(1), PubRecPacket(1), PubCompPacket(1), PingRespPacket()]
    ),
)
errors = st.sampled_from(
    [Malformed("bad"), PacketTooLarge(2, 1), UnsupportedVersion("MQTT", 3), UnsupportedVersion("?", 9)]
)
happenings = st.one_of(
    st.tuples(st.just("packet"), some_packets),
    st.tuples(st.just("packet"), messages | st.builds(PubRelPacket, ids)),
    st.tuples(st.just("answer"), st.tuples(ids, st.booleans())),
    st.tuples(st.just("answer"), st.tuples(ids, st.just(True))),
    st.tuples(st.just("error"), errors),
    st.tuples(st.just("other"), st.sampled_from([PeerClosed(), ServerStopping()])),
    st.tuples(st.just("other"), st.builds(ServerStopping, server_reference=st.just("b:1"))),
    st.tuples(
        st.just("other"),
        st.builds(TimerFired, name=st.sampled_from([SessionTimer.CONNECT_DEADLINE, SessionTimer.KEEP_ALIVE])),
    ),
    st.tuples(
        st.just("shell"),
        st.one_of(
            st.sampled_from([Authenticated(), Rejected(), Resumed(present=False), ResumeFailed()]),
            st.builds(TakenOver, clean_start=st.booleans()),
        ),
    ),
)
LEGAL_OF_SHELL: dict[str, tuple[type[Event], ...]] = {
    "authenticating": (Authenticated, Rejected),
    "resuming": (Resumed, ResumeFailed, TakenOver),
    "connected": (TakenOver,),
    "closed": (Event,),
}


class Shell:
    """Answers what the session asks for, in any order, and keeps the book that the session must agree with."""

    def __init__(self) -> None:
        self.committing: dict[int, int] = {}  # packet id → QoS, of Commit without an answer
        self.releasing: set[int] = set()
        self.strays: set[int] = set()  # those of them that were not received
        self.released_stray = False  # the last Released was of one of these
        self.inbound: set[int] = set()  # received minus released
        self.unanswered: set[int] = set()  # of this connection, for MQTT 5

    def answer(self, number: int, well: bool) -> Event | None:
        """The event that answers what is asked for with this packet id; None if nothing is."""
        if number in self.committing:
            qos = self.committing.pop(number)
            if not well:
                self.unanswered.discard(number)
                return CommitFailed(packet_id=number, reason_code=0x97)
            if qos == 2:
                self.inbound.add(number)
            else:
                self.unanswered.discard(number)
            return Committed(packet_id=number)
        if number in self.releasing:
            self.releasing.remove(number)
            self.released_stray = number in self.strays
            self.strays.discard(number)
            if not self.released_stray:
                self.inbound.remove(number)
                self.unanswered.discard(number)
            return Released(packet_id=number)
        return None

    def carry_out(self, effect: Effect, version: Version) -> None:
        if isinstance(effect, Commit):
            assert effect.packet_id not in self.committing
            assert effect.qos == 1 or effect.packet_id not in self.inbound | self.releasing
            self.committing[effect.packet_id] = effect.qos
            self.unanswered.add(effect.packet_id)
            assert version == V311 or len(self.unanswered) <= LIMITS.receive_max
        elif isinstance(effect, Release):
            assert effect.packet_id not in self.releasing
            self.releasing.add(effect.packet_id)
            if effect.packet_id not in self.inbound:
                self.strays.add(effect.packet_id)
        elif isinstance(effect, SendPacket) and isinstance(effect.packet, PubRecPacket):
            # Never before the message is durable; a refusal is not a receipt.
            refused = int(effect.packet.reason_code) >= 0x80
            assert refused or version == V311 or effect.packet.packet_id in self.inbound


@given(
    st.sampled_from([V311, V5]),
    st.sampled_from(["new", "clean", "resumed"]),
    st.lists(st.tuples(st.integers(0, 20), happenings), max_size=30),
)
@settings(max_examples=500, deadline=None)
def test_whatever_happens_the_promises_hold(
    version: Version, begins: str, history: list[tuple[int, tuple[str, Any]]]
) -> None:
    session, shell = Session(LIMITS), Shell()
    now_us = 0
    seen: list[Effect] = session.handle(Opened(assigned_client_id="tocsin-1"), now_us)
    if begins != "new":
        seen += come_in(session, shell, version, begins)
    for waited_s, (kind, what) in history:
        now_us += waited_s * S
        event = event_of(kind, what, session, shell, version)
        if event is None:
            continue
        was_closed = session.state == "closed"
        effects = session.handle(event, now_us)
        assert not (was_closed and effects)
        check_answers(event, effects, session, shell)
        for effect in effects:
            if isinstance(effect, SendPacket):
                encode(effect.packet, session.version)
            shell.carry_out(effect, session.version)
        seen += effects
        if session.state == "connected":
            assert session.inbound_ids() == tuple(sorted(shell.inbound))
            assert session.committing == len(shell.committing)
    check_promises(seen, session)


def come_in(session: Session, shell: Shell, version: Version, begins: str) -> list[Effect]:
    clean = begins == "clean"
    connect = ConnectPacket(
        "c", keep_alive=20, will=WILL, clean_start=clean, session_expiry_interval=0 if clean else 50
    )
    seen = session.handle(PacketArrived(packet=connect, version=version), 0)
    seen += session.handle(Authenticated(), 0)
    if not clean:
        session.restore((), RESTORED)
        shell.inbound.update(RESTORED)
    return seen + session.handle(Resumed(present=not clean), 0)


def event_of(kind: str, what: Any, session: Session, shell: Shell, version: Version) -> Event | None:
    """What happens; None if it cannot now."""
    if kind == "packet":
        return PacketArrived(packet=what, version=version)
    if kind == "error":
        return WireFailed(error=what, version=None if session.state == "connecting" else version)
    if kind == "answer":
        return shell.answer(*what) if session.state == "connected" else None
    if kind == "shell" and not isinstance(what, LEGAL_OF_SHELL.get(session.state, ())):
        return None
    assert isinstance(what, Event)
    return what


def check_answers(event: Event, effects: list[Effect], session: Session, shell: Shell) -> None:
    """Each answer of the shell is passed on once, in the packet that belongs to it."""
    if isinstance(event, Committed | Released):
        (effect,) = effects
        assert isinstance(effect, SendPacket)
        wanted = (PubAckPacket, PubRecPacket) if isinstance(event, Committed) else (PubCompPacket,)
        assert isinstance(effect.packet, wanted)
        assert effect.packet.packet_id == event.packet_id
        unknown = isinstance(event, Released) and shell.released_stray
        assert int(effect.packet.reason_code) == (0x92 if unknown else 0)
    elif isinstance(event, CommitFailed) and session.version == V5:
        (effect,) = effects
        assert isinstance(effect, SendPacket) and isinstance(effect.packet, PubAckPacket | PubRecPacket)
        assert int(effect.packet.reason_code) == 0x97
    elif isinstance(event, CommitFailed):
        assert isinstance(effects[-1], Close)


def check_promises(seen: list[Effect], session: Session) -> None:
    closes = [index for index, effect in enumerate(seen) if isinstance(effect, Close)]
    assert closes == ([len(seen) - 1] if session.state == "closed" else [])
    packets = [effect.packet for effect in seen if isinstance(effect, SendPacket)]
    welcomes = [packet for packet in packets if isinstance(packet, ConnAckPacket)]
    accepted = [index for index, effect in enumerate(seen) if isinstance(effect, Accepted)]
    assert len(welcomes) <= 1 and welcomes == packets[: len(welcomes)]
    assert len(accepted) <= 1
    welcome = next((index for index, effect in enumerate(seen) if is_welcome(effect)), None)
    if welcome is not None:
        assert accepted and accepted[0] < welcome
    wanted: set[str] = set()
    for index, effect in enumerate(seen):
        if isinstance(
            effect, Subscribe | Unsubscribe | Publish | DelayWill | Commit | Release | Acknowledged
        ):
            assert welcome is not None and index > welcome
        if isinstance(effect, Subscribe):
            assert effect.existed is (effect.filter.name in wanted)
            wanted.add(effect.filter.name)
            assert len(wanted) <= LIMITS.subscriptions_max
        elif isinstance(effect, Unsubscribe):
            wanted.remove(effect.filter.name)
    wills = [effect for effect in seen if isinstance(effect, DelayWill) or is_will(effect)]
    assert len(wills) <= 1
    if wills:
        assert seen[-2] is wills[0]
    for effect in seen[-1:]:
        if isinstance(effect, Close):
            assert 0 <= effect.session_expiry_s <= LIMITS.session_expiry_max_s


def is_welcome(effect: Effect) -> bool:
    return (
        isinstance(effect, SendPacket)
        and isinstance(effect.packet, ConnAckPacket)
        and int(effect.packet.reason_code) == 0
    )


def is_will(effect: Effect) -> bool:
    return isinstance(effect, Publish) and effect.will
