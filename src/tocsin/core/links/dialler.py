"""Dials one MQTT 5 connection: connects, introduces itself, keeps it alive, and redials when it breaks.

Links between brokers and the client library both run this machine. They decide what to send once the connection is up.

States::

    new ──► dialling ──► greeting ──► up
                ▲  └─────────┴────────┴──► waiting ──► dialling      (redial: with back-off, for ever)
                └── Closing, from anywhere ──► closed ◄── the first failure, if it does not redial

Transitions of ``Dialler``:

    new       Started → dialling
    dialling  Dialled → greeting
              TimerFired, Lost → dialling, waiting, closed
              Alarmed
    greeting  Heard → dialling, up, waiting, closed
              TimerFired, Lost → dialling, waiting, closed
              Alarmed
    up        Heard, TimerFired, FlowSeen, Lost → dialling, waiting, closed
              Pinging, Alarmed
    waiting   TimerFired → dialling
              Heard → nothing
    closed    Heard, Lost, Dialled, TimerFired, Closing → nothing
    *         Pinging, Alarmed, FlowSeen → nothing
              Closing → closed

There may be several servers, tried in order: the first, then the servers that the last broker named (its backups
lead them, and have the client's state), then the others. At a failure the dialler dials the next one at once; after
the last server it waits (or ends). After a connection that was up and broke it begins at the first server again. But
if it gave the first server up because that no longer answered, it begins with the one behind: a frozen process may
well accept a connection, through its kernel, and then not answer either.

A dialler that follows redirects has its **home** at the first server. It states its home wherever it connects
(``PROPERTY_HOME``): the id of that broker, or, before it was ever there, its address. A broker that reads this
answers with its own id and with other brokers to go to if it were gone, says when these change, and sends the client
home when its home is back.

A peer may redirect the client (*use another server*, *server moved*, with a reference). A dialler that follows
redirects (links do not: a link is to one broker) dials the other server at once, REFERRALS_MAX times in a row. It
returns to the usual server when it loses the other; after *moved*, the other is the usual one and its home, and the
first server comes last. A client that was served and cannot reach where it is sent goes back to the server that sent
it, and asks to stay: a guest is sent home as soon as the leader names its home three times, which may be before the
leader has missed it.

The owner of a dialler may hear from elsewhere that the network counts its broker as **lost** (``Alarmed``; the client
library does, ``core.links.watch``). That may be wrong. So the dialler asks the broker for a sign of life, and leaves it
if nothing at all comes within PROBE_US, or within PROBE_ROUND_TRIPS times what the last answer took. It goes on to the
server behind, as from a peer that no longer answers. A broker that is only being dialled has the same time. If that was
the home, and the dialler has to start again before it was there, it passes the home over once.

A client whose **session was taken over** within OWN_US of an earlier connection of its own may have been its own
rival: a broker that it had given up was slow (``Down.own``). The dialler believes that FORGIVEN_MAX times in
FORGIVE_US; otherwise two clients with one id would throw each other out for ever.

In ``greeting`` it has sent CONNECT and awaits CONNACK. In ``up`` it sends a PINGREQ every half keep-alive, and gives up
a peer that has not answered by the next PINGREQ. A PINGREQ may still be on its way, though, behind what was written
before: on a **narrow** connection that takes seconds. So the dialler looks at what the peer's machine acknowledges
(``LookAtFlow``). As long as that goes on, and there is more that could not even be sent, it looks again after another
half keep-alive. The machine of a frozen process acknowledges too, but only until its buffers are full.

Back-off doubles from BACKOFF_FIRST_US to BACKOFF_MAX_US. It restarts after a connection that was up for longer than the
last wait, and than STEADY_US: a client that reached another server and loses that too must not wait for what went wrong
before. Up to a quarter of the wait is taken off at random (from ``Started.incarnation``), so that the links of a failed
broker do not all come back at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

from mqtt5 import (
    ConnAckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingReqPacket,
    PingRespPacket,
    PublishPacket,
)

from tocsin.core.links.signals import (
    Alarmed,
    Closing,
    Dial,
    Dialled,
    Down,
    Ending,
    Flow,
    FlowSeen,
    HangUp,
    Heard,
    LookAtFlow,
    Lost,
    Pinging,
    Up,
)
from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    SetTimer,
    Started,
    Table,
    TableMachine,
    TimerFired,
)
from tocsin.core.session.signals import SendPacket
from tocsin.core.survival.homes import (
    GUEST,
    PROPERTY_BROKER,
    PROPERTY_HOME,
    PROPERTY_SERVER,
    PROPERTY_STAY,
    PROPERTY_VERSION,
    SERVERS_TOPIC,
)
from tocsin.model.versions import UNREADABLE
from tocsin.wire.mqtt.reasons import reason_of, refusal_of
from tocsin.wire.mqtt.reference import Server, server_of

BACKOFF_FIRST_US = 100_000  # a broker that restarts is back within a second
BACKOFF_MAX_US = 10_000_000
STEADY_US = 1_000_000  # a peer that accepts us and drops us sooner is dialled less and less often
GREETING_DEADLINE_US = 10_000_000  # to dial, and again to be answered: the broker's own default for CONNECT
HURRY_US = 3_000_000  # to dial, where there is another server to try
# For a broker that is said to be lost: far more than a round trip, far less than the detection took.
PROBE_US = 150_000
PROBE_MOST_US = 2_000_000
PROBE_ROUND_TRIPS = 4
TOLD_MAX = 8  # servers that a broker may tell us of
REFERRALS_MAX = 3  # redirects in a row, before we wait and start again
OWN_US = 10_000_000  # a frozen broker may wake up so much later, and read what we sent
FORGIVE_US = 60_000_000
FORGIVEN_MAX = 3
TAKEN_OVER, USE_ANOTHER_SERVER, SERVER_MOVED = 0x8E, 0x9C, 0x9D


_GREETING_FIELDS: Final = (
    "client_id",
    "clean_start",
    "will",
    "username",
    "password",
    "keep_alive",
    "session_expiry_interval",
    "authentication_method",
    "authentication_data",
    "request_problem_info",
    "request_response_info",
    "receive_max",
    "topic_alias_max",
    "user_properties",
    "max_packet_size",
)


class DiallerState(StrEnum):
    """Where a dialler is."""

    NEW = "new"
    DIALLING = "dialling"
    GREETING = "greeting"
    UP = "up"
    WAITING = "waiting"
    CLOSED = "closed"


class DiallerTimer(StrEnum):
    """The timers of a dialler."""

    RETRY = "retry"  # the back-off is over
    DEADLINE = "deadline"  # to be connected, or answered
    PING = "ping"  # every half keep-alive
    PROBE = "probe"  # a broker that is said to be lost has given no sign of life


class Dialler(TableMachine):
    """Dials one MQTT 5 connection, keeps it alive and redials it."""

    timers = DiallerTimer
    state: DiallerState = DiallerState.NEW

    def __init__(
        self,
        greeting: ConnectPacket,
        *,
        redial: bool,
        follow: bool = False,
        servers: int = 1,
        home: str = "",
    ) -> None:
        """``home``: the address of the first server, for a client whose home it is."""
        self._greeting = greeting
        self._home = home
        self._servers = servers  # how many there are to try …
        self.told: tuple[Server, ...] = ()  # … and these, behind the first of them
        self._turn = 0  # the server that is tried …
        self._own = 0  # … and which of ours it is, or (0) was told us
        self._moved = False  # it is where another server has moved for good
        self._abroad = False  # it is a redirect target of another server …
        self._stays = False  # … and one of those could not be reached
        self._dialled: Server | None = None  # what was dialled last …
        # … and what was before, and whether it was abroad, if it has served us and sent us here
        self._sender: tuple[Server | None, bool] | None = None
        self._redial = redial
        self._follow = follow
        self._usual: Server | None = None  # where to dial first; None until a server has moved for good
        self._referrals = 0  # in a row
        self._chance = 0
        self._failures = 0  # in a row …
        self._waited_us = 0  # … and how long after the last
        self._up_since_us = 0
        self._said_us: int | None = None  # when a connection ended last on which CONNECT was sent
        self._forgiven_us: list[int] = []  # when *session taken over* was taken for our own doing
        self._ping_us = 0  # between two PINGREQs; 0: never
        self._unanswered = False  # a PINGREQ is out …
        self._asked_us = 0  # … since then
        self._flow: Flow | None = None  # as it was when we looked last, since that PINGREQ
        self.broker = ""  # the id of the broker that has accepted us last; empty: it did not say
        self._doubted = False  # the broker is said to be lost, and has not been heard since
        self._home_lost = False  # our home was given up for that, and we have not been there since
        self.round_trip_us: int | None = None  # of the last that was answered

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self._chance = event.incarnation
        return self._dial(event, now_us)

    def _dial(self, event: Event, now_us: int) -> list[Effect]:
        self._turn = int(self._home_lost and self._has_next(0))
        self._home_lost = False
        return self._dial_in_turn()

    def _has_next(self, turn: int) -> bool:
        """Whether there is a server behind that one."""
        return turn + 1 < self._servers + len(self.told) + (self._usual is not None)

    def _dial_in_turn(self) -> list[Effect]:
        self._referrals = 0
        self._abroad = self._moved = False
        self._sender = None
        self._own = max(0, self._turn - len(self.told))
        if 0 < self._turn <= len(self.told):
            return self._dial_at(self.told[self._turn - 1])
        if self._own == self._servers:  # the first of ours, from which the usual one has moved away
            self._own = 0
            return self._dial_at(None)
        return self._dial_at(None if self._turn else self._usual)

    def _dial_at(self, server: Server | None) -> list[Effect]:
        self.state = DiallerState.DIALLING
        self._dialled = server
        return [Dial(server=server, turn=self._own), self._deadline(self._patience_us())]

    def _patience_us(self) -> int:
        return HURRY_US if self._has_next(self._turn) else GREETING_DEADLINE_US

    def _deadline(self, delay_us: int) -> Effect:
        return SetTimer(name=DiallerTimer.DEADLINE, delay_us=delay_us)

    def _greet(self, event: Dialled, now_us: int) -> list[Effect]:
        self.state = DiallerState.GREETING
        greeting = self._greeting
        if self._home:
            greeting = _introduced(self._greeting, self._home, stays=self._stays)
        return [
            SendPacket(packet=greeting),
            self._deadline(GREETING_DEADLINE_US),
        ]

    def _on_answer(self, event: Heard, now_us: int) -> list[Effect]:
        answer = event.packet
        if not isinstance(answer, ConnAckPacket):
            return self._drop(now_us, f"the peer began with {type(answer).__name__}")
        if (refusal := refusal_of(answer)) is not None:
            code, server = int(answer.reason_code), server_of(answer.server_reference)
            self._move_home(code, answer.server_reference)
            return self._drop(now_us, f"refused: {refusal}", code, server)
        self.state = DiallerState.UP
        self._referrals = 0
        self._up_since_us = now_us
        self._unanswered = self._stays = False
        self._sender = None
        self._learn(answer)
        keep_alive_s = answer.server_keep_alive
        self._ping_us = (self._greeting.keep_alive if keep_alive_s is None else keep_alive_s) * 500_000
        effects: list[Effect] = [CancelTimer(name=DiallerTimer.DEADLINE), *self._trust()]
        if self._ping_us:
            effects.append(SetTimer(name=DiallerTimer.PING, delay_us=self._ping_us))
        return [*effects, Up(answer=answer)]

    def _learn(self, answer: ConnAckPacket) -> None:
        """Where we are, and where we could go."""
        self.broker = ""
        if not self._home:
            return
        try:
            GUEST.check(dict(answer.user_properties).get(PROPERTY_VERSION))
        except UNREADABLE:
            return  # a newer broker: we know of the servers that we were given
        self.broker = dict(answer.user_properties).get(PROPERTY_BROKER, "")
        if self._is_at_home():
            self._home = self.broker or self._home
        if self.broker == self._home:  # also by a redirect, or by another address
            self._turn, self._abroad, self._home_lost = 0, False, False
        self._note_told(value for name, value in answer.user_properties if name == PROPERTY_SERVER)

    def _is_at_home(self) -> bool:
        """Whether the server that is tried, or has accepted us, is our home, and not another one in its stead."""
        return (self._turn == 0 or self._moved) and not self._abroad

    def _move_home(self, reason_code: int, reference: str | None) -> None:
        """A server that has moved for good is our home at its new address: we must not be sent back."""
        if self._home and self._follow and reference and reason_code == SERVER_MOVED:
            self._home = reference.split()[0]

    def _note_told(self, references: Iterable[str]) -> None:
        servers = (server_of(each) for each in references)
        self.told = tuple(islice((server for server in servers if server is not None), TOLD_MAX))

    def _on_packet(self, event: Heard, now_us: int) -> list[Effect]:
        effects = self._hear(event.packet, now_us)
        return [*self._trust(), *effects] if self._doubted else effects

    def _hear(self, packet: Packet, now_us: int) -> list[Effect]:
        if isinstance(packet, DisconnectPacket):
            code, server = int(packet.reason_code), server_of(packet.server_reference)
            self._move_home(code, packet.server_reference)
            return self._drop(now_us, reason_of(packet), code, server)
        if isinstance(packet, PingRespPacket) and self._unanswered:
            self._unanswered = False
            self.round_trip_us = now_us - self._asked_us
        if self._home and isinstance(packet, PublishPacket) and packet.topic == SERVERS_TOPIC:
            self._note_told(packet.payload.decode(errors="replace").split())
        return []

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == DiallerTimer.PROBE:
            return self._on_silence(now_us)
        if event.name != DiallerTimer.PING:
            return []
        return [LookAtFlow()] if self._unanswered else self._ask(now_us)

    def _on_flow(self, event: FlowSeen, now_us: int) -> list[Effect]:
        """Whether the peer has had time to answer."""
        before, self._flow = self._flow, event.flow
        if not self._unanswered:
            return []
        moves = event.flow is not None and (before is None or event.flow.taken > before.taken)
        waited = event.flow is not None and (event.flow.waits or (before is not None and before.waits))
        if moves and waited:
            return [SetTimer(name=DiallerTimer.PING, delay_us=self._ping_us)]
        return self._leave(now_us, "the peer no longer answers")

    def _leave(self, now_us: int, reason: str) -> list[Effect]:
        """The peer may be frozen: do not begin with it again."""
        return self._drop(now_us, reason, abrupt=True, passes=self._redial and self._is_at_home())

    # ── a broker that is said to be lost ────────────────────────────────────────────────────────────────────

    def _on_alarm(self, event: Alarmed, now_us: int) -> list[Effect]:
        is_up = self.state is DiallerState.UP
        meant = self.broker if is_up else self._home if self._is_at_home() else ""
        if self._doubted or not meant or event.broker != meant:
            return []
        self._doubted = True
        asked = self._ask(now_us) if is_up and not self._unanswered else []
        longest_us = PROBE_ROUND_TRIPS * (self.round_trip_us or 0)
        patience_us = min(max(PROBE_US, longest_us), PROBE_MOST_US)
        return [*asked, SetTimer(name=DiallerTimer.PROBE, delay_us=patience_us)]

    def _trust(self) -> list[Effect]:
        """The broker was heard."""
        if not self._doubted:
            return []
        self._doubted = False
        return [CancelTimer(name=DiallerTimer.PROBE)]

    def _on_silence(self, now_us: int) -> list[Effect]:
        if not self._doubted:
            return []
        self._home_lost = self._home_lost or self._is_at_home()
        return self._leave(now_us, "the network counts the broker as lost, and it does not answer")

    def _ask(self, now_us: int) -> list[Effect]:
        """The peer has until the next one would be due."""
        self._unanswered, self._asked_us, self._flow = True, now_us, None
        due = [SetTimer(name=DiallerTimer.PING, delay_us=self._ping_us)] if self._ping_us else []
        return [SendPacket(packet=PingReqPacket()), *due]

    def _on_pinging(self, event: Pinging, now_us: int) -> list[Effect]:
        return [] if self._unanswered or not self._ping_us else self._ask(now_us)

    def _on_deadline(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == DiallerTimer.PROBE:
            return self._on_silence(now_us)
        if event.name != DiallerTimer.DEADLINE:
            return []
        waited_us = GREETING_DEADLINE_US if self.state is DiallerState.GREETING else self._patience_us()
        return self._drop(now_us, f"no answer within {waited_us // 1_000_000} s")

    def _on_lost(self, event: Lost, now_us: int) -> list[Effect]:
        up = self.state is DiallerState.UP
        ending = Ending.OTHER if event.ending is Ending.CLOSED and not up else event.ending
        return self._drop(now_us, event.reason, ending=ending)

    def _drop(
        self,
        now_us: int,
        reason: str,
        reason_code: int | None = None,
        server: Server | None = None,
        *,
        abrupt: bool = False,
        passes: bool = False,
        ending: Ending = Ending.OTHER,
    ) -> list[Effect]:
        """``passes``: from a connection that was up, too, to the server behind."""
        self._stays = self._stays or (self._abroad and self.state is DiallerState.DIALLING)
        if self.state is DiallerState.UP and now_us - self._up_since_us > max(STEADY_US, self._waited_us):
            self._failures = 0
        own = reason_code == TAKEN_OVER and self._forgives(now_us)
        if self.state in (DiallerState.GREETING, DiallerState.UP):
            self._said_us = now_us
        effects: list[Effect] = [
            CancelTimer(name=DiallerTimer.DEADLINE),
            CancelTimer(name=DiallerTimer.PING),
            *self._trust(),
            HangUp(abrupt=abrupt),
        ]
        if server is not None and self._goes_to(server, reason_code):
            if self.state is DiallerState.UP and reason_code == USE_ANOTHER_SERVER:
                self._sender = self._dialled, self._abroad
            self._abroad = reason_code == USE_ANOTHER_SERVER
            down = Down(reason=reason, reason_code=reason_code, retry_us=0)
            return [*effects, down, *self._dial_at(server)]
        if self._sender is not None and self.state is not DiallerState.UP:
            (back, self._abroad), self._sender, self._stays = self._sender, None, True
            down = Down(reason=reason, reason_code=reason_code, retry_us=0, own=own)
            return [*effects, down, *self._dial_at(back)]
        if (self.state is not DiallerState.UP or passes) and self._has_next(self._turn):
            self._turn += 1
            down = Down(reason=reason, reason_code=reason_code, retry_us=0, own=own)
            return [*effects, down, *self._dial_in_turn()]
        if not self._redial:
            self.state = DiallerState.CLOSED
            return [*effects, Down(reason=reason, reason_code=reason_code)]
        self.state = DiallerState.WAITING
        delay_us = self._backoff_us()
        return [
            *effects,
            SetTimer(name=DiallerTimer.RETRY, delay_us=delay_us),
            Down(reason=reason, reason_code=reason_code, retry_us=delay_us, own=own, ending=ending),
        ]

    def _forgives(self, now_us: int) -> bool:
        if self._said_us is None or now_us - self._said_us > OWN_US:
            return False
        self._forgiven_us = [each for each in self._forgiven_us if now_us - each < FORGIVE_US]
        if len(self._forgiven_us) >= FORGIVEN_MAX:
            return False
        self._forgiven_us.append(now_us)
        return True

    def _goes_to(self, server: Server, reason_code: int | None) -> bool:
        """Whether we go where a peer sends us."""
        if not self._follow or reason_code not in (USE_ANOTHER_SERVER, SERVER_MOVED):
            return False
        if self._referrals >= REFERRALS_MAX:
            return False
        self._referrals += 1
        if reason_code == SERVER_MOVED:
            self._usual, self._moved = server, True
        return True

    def _backoff_us(self) -> int:
        longest_us = min(BACKOFF_MAX_US, BACKOFF_FIRST_US << min(self._failures, 20))
        self._failures += 1
        self._chance = (self._chance * 6_364_136_223_846_793_005 + 1) % (1 << 64)  # Knuth's MMIX generator
        self._waited_us = longest_us - (self._chance >> 33) % (longest_us // 4)
        return self._waited_us

    def _on_retry(self, event: TimerFired, now_us: int) -> list[Effect]:
        return self._dial(event, now_us) if event.name == DiallerTimer.RETRY else []

    def _close(self, event: Closing, now_us: int) -> list[Effect]:
        packet = event.farewell or DisconnectPacket()
        farewell: list[Effect] = [SendPacket(packet=packet)] if self.state is DiallerState.UP else []
        self.state = DiallerState.CLOSED
        timers = [CancelTimer(name=name) for name in DiallerTimer]
        return [*farewell, *timers, HangUp()]

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (DiallerState.NEW, Started): _start,
        (DiallerState.DIALLING, Dialled): _greet,
        (DiallerState.DIALLING, TimerFired): _on_deadline,
        (DiallerState.DIALLING, Lost): _on_lost,
        (DiallerState.DIALLING, Alarmed): _on_alarm,
        (DiallerState.GREETING, Heard): _on_answer,
        (DiallerState.GREETING, TimerFired): _on_deadline,
        (DiallerState.GREETING, Lost): _on_lost,
        (DiallerState.GREETING, Alarmed): _on_alarm,
        (DiallerState.UP, Heard): _on_packet,
        (DiallerState.UP, TimerFired): _on_timer,
        (DiallerState.UP, FlowSeen): _on_flow,
        (DiallerState.UP, Pinging): _on_pinging,
        (DiallerState.UP, Alarmed): _on_alarm,
        (DiallerState.UP, Lost): _on_lost,
        (DiallerState.WAITING, TimerFired): _on_retry,
        (DiallerState.WAITING, Heard): _ignore,
        ("*", Pinging): _ignore,
        ("*", Alarmed): _ignore,
        ("*", FlowSeen): _ignore,
        ("*", Closing): _close,
        (DiallerState.CLOSED, Heard): _ignore,
        (DiallerState.CLOSED, Lost): _ignore,
        (DiallerState.CLOSED, Dialled): _ignore,
        (DiallerState.CLOSED, TimerFired): _ignore,
        (DiallerState.CLOSED, Closing): _ignore,
    }


def _introduced(greeting: ConnectPacket, home: str, *, stays: bool) -> ConnectPacket:
    """The same greeting, which says where the client is at home, and whether it must not be sent on."""
    fields = {name: getattr(greeting, name) for name in _GREETING_FIELDS}
    version = (PROPERTY_VERSION, GUEST.text)
    fields["user_properties"] = [*greeting.user_properties, version, (PROPERTY_HOME, home)]
    if stays:
        fields["user_properties"].append((PROPERTY_STAY, "yes"))
    return ConnectPacket(**fields)
