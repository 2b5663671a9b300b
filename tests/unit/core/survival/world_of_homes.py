"""A small world of homes: real diallers, heartbeats with their guests, and a leader's refuges; the rest is dumb.

Nothing happens by itself. Processes are killed, started, promoted and deposed, messages are carried, lost and repeated,
and connections made, read and given up, one step at a time and in any order (``World.step``). ``World.settle`` is the
rest of time, without trouble. What a broker's entrance does in reality is here: one client id has one connection, a
guest is one from its CONNACK on, and a socket that was accepted before a process took another name is hung up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    ConnectPacket,
    DisconnectPacket,
    DisconnectReasonCode,
    Packet,
    PublishPacket,
)

from tocsin.core.coordination.participant.heartbeat import Heartbeat
from tocsin.core.coordination.participant.signals import DestinationsChanged, GuestCame, GuestWent, SendHome
from tocsin.core.links.dialler import Dialler, DiallerTimer
from tocsin.core.links.signals import Dial, Dialled, HangUp, Heard, Lost
from tocsin.core.machine import CancelTimer, Event, SetTimer, Started, TimerFired
from tocsin.core.session.signals import SendPacket
from tocsin.core.survival.homes import (
    PROPERTY_BROKER,
    PROPERTY_HOME,
    PROPERTY_SERVER,
    PROPERTY_STAY,
    SERVERS_TOPIC,
)
from tocsin.core.survival.refuges import RefugePlan, reference, references
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.wire.internal.control import Beat, Pulse

BEAT_US = 500_000
MQTT = Scheme.MQTT
EDGES = ("b1", "b2", "b3")
SPARES = ("s1", "s2")
QUIET_BEATS = 80  # forty seconds
T = TypeVar("T")


class Call:
    """One connection, as both of its ends see it."""

    def __init__(self, client: Client, process: Process) -> None:
        self.client, self.process, self.incarnation = client, process, process.incarnation
        self.connect: ConnectPacket | None = None
        self.state = "accepted"  # → resuming → in → over
        self.inbox: list[Packet] = []  # to the client
        self.broken = False  # behind these


class Client:
    """A dialler, and what carries it out."""

    def __init__(self, world: World, name: str, home: str) -> None:
        self.name, self.home = name, home
        self.call: Call | None = None
        self.target: str | None = None  # it dials this process
        self._world = world
        self._timers: set[str] = set()
        self._dialler = Dialler(
            ConnectPacket(name, keep_alive=0), redial=True, follow=True, home=f"{home}:1883"
        )
        self._tell(Started(incarnation=1))

    @property
    def is_home(self) -> bool:
        call = self.call
        return call is not None and call.state == "in" and call.process.own.id == self.home

    def _tell(self, event: Event) -> None:
        for effect in self._dialler.handle(event, self._world.now_us):
            match effect:
                case Dial(server=server):
                    self.target = server[0] if server else self.home
                case HangUp():
                    if self.call is not None:
                        self._world.hung_up.append(self.call)
                    self.call = self.target = None
                case SendPacket(packet=ConnectPacket() as packet) if self.call is not None:
                    self.call.connect = packet
                case SetTimer(name=name):
                    self._timers.add(name)
                case CancelTimer(name=name):
                    self._timers.discard(name)

    def dial(self) -> None:
        if self.target is None:
            return
        process, self.target = self._world.processes[self.target], None
        if process.alive:
            self.call = Call(self, process)
            self._tell(Dialled())
        else:
            self._tell(Lost(reason="refused"))

    def read(self) -> None:
        call = self.call
        if call is not None and call.inbox:
            self._tell(Heard(packet=call.inbox.pop(0)))
        elif call is not None and call.broken:
            self._tell(Lost(reason="closed"))

    def fire(self, *names: str) -> None:
        for name in names:
            if name in self._timers:
                self._timers.discard(name)
                self._tell(TimerFired(name=name))
                return


class Process:
    """A broker's process: under its own name, or in the place of another."""

    def __init__(self, world: World, name: str, role: Role) -> None:
        entrances = (Entrance(MQTT, f"{name}:1883"),)
        self.own = BrokerInfo(name, "north", role, "127.0.0.1", 1, entrances)
        self.alive = False
        self.incarnation = 0
        self.deaf = False  # it does not carry out the next word about a guest
        self.places: dict[str, str] = {}  # brokers that are gone → who stands in, as far as it has heard
        self._world = world
        self.begin(self.own)

    def begin(self, info: BrokerInfo) -> None:
        self.alive, self.info = True, info
        self.incarnation += 1
        self.heart = Heartbeat(info, BEAT_US, 10 * BEAT_US, 3 * BEAT_US)
        self.calls: dict[str, Call] = {}
        self.places = {}
        self._world.members[info.id] = self

    def die(self) -> None:
        self.alive = False
        self._break()

    def change(self, info: BrokerInfo) -> None:
        """Stop under one name, in good order, and go on under another."""
        there = reference(self.heart.refuges(self._world.now_us), MQTT, 0)
        for call in list(self.calls.values()):
            self.end(call, there)
        if self._world.members.get(self.info.id) is self:
            del self._world.members[self.info.id]
        self._break()
        self.begin(info)

    def _break(self) -> None:
        for client in self._world.clients:
            if client.call is not None and client.call.process is self:
                client.call.broken = True

    def end(self, call: Call, reference: str | None) -> None:
        if call.state == "in":
            moved, stops = DisconnectReasonCode.USE_ANOTHER_SERVER, DisconnectReasonCode.SERVER_SHUTTING_DOWN
            code = moved if reference else stops
            call.inbox.append(DisconnectPacket(reason_code=code, server_reference=reference))
        else:
            refused, busy = ConnAckReasonCode.USE_ANOTHER_SERVER, ConnAckReasonCode.SERVER_UNAVAILABLE
            answer = refused if reference else busy
            call.inbox.append(ConnAckPacket(reason_code=answer, server_reference=reference))
        call.broken = True
        self.forget(call)

    def forget(self, call: Call) -> None:
        """A connection is over, on this end."""
        name = call.client.name
        if self.calls.get(name) is call:
            del self.calls[name]
            if call.state == "in":
                self.heart.note(GuestWent(client=name))
        call.state = "over"

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def hear_connect(self, call: Call) -> None:
        if call.incarnation != self.incarnation or not self.alive:
            call.broken = True
            return
        assert call.connect is not None
        said = dict(call.connect.user_properties)
        instead = self.places.get(said[PROPERTY_HOME])
        if instead not in (None, self.info.id) and PROPERTY_STAY not in said:
            there = self._world.members.get(instead or "")
            if there is not None:
                self.end(call, f"{there.own.id}:1883")
                return
        before = self.calls.get(call.client.name)
        if before is not None:
            self.forget(before)
        self.calls[call.client.name] = call
        call.state = "resuming"

    def welcome(self, call: Call) -> None:
        assert call.connect is not None
        home = dict(call.connect.user_properties)[PROPERTY_HOME]
        self.heart.note(GuestCame(client=call.client.name, home=home, scheme=MQTT))
        servers = references(self.heart.refuges(self._world.now_us), MQTT, len(self.calls))
        told = [(PROPERTY_BROKER, self.info.id), *((PROPERTY_SERVER, each) for each in servers)]
        call.inbox.append(ConnAckPacket(user_properties=told))
        call.state = "in"

    # ── the leader ──────────────────────────────────────────────────────────────────────────────────────────

    def beat(self) -> Beat:
        return self.heart.beat(self.incarnation, 0, self._world.now_us)

    def hear(self, pulse: Pulse) -> None:
        if pulse.incarnation != self.incarnation or not self.alive:
            return
        self.heart.heard(self._world.now_us)
        for effect in self.heart.answered(pulse, self._world.now_us):
            match effect:
                case SendHome(client=client, server_reference=reference):
                    call = self.calls.get(client)
                    if self.deaf:
                        self.deaf = False
                    elif call is not None and call.state == "in":
                        self.end(call, reference)
                case DestinationsChanged():
                    servers = " ".join(references(self.heart.refuges(self._world.now_us), MQTT, 0)).encode()
                    for call in self.calls.values():
                        if call.state == "in":
                            call.inbox.append(PublishPacket(SERVERS_TOPIC, servers))


class World:
    """Brokers, their clients and a leader, in virtual time: brokers fail, and clients find their homes again."""

    def __init__(self, clients: int = 4) -> None:
        self.now_us = 0
        self.members: dict[str, Process] = {}  # by name: as the leader has them
        self.places: dict[str, str] = {}  # names that are gone → who stands in
        self.clients: list[Client] = []
        self.hung_up: list[Call] = []  # by clients, and the broker has not noticed
        self.wire: list[tuple[Process, Beat | Pulse]] = []
        roles = {name: Role.STANDBY if name in SPARES else Role.EDGE for name in (*EDGES, *SPARES)}
        self.processes: dict[str, Process] = {}
        for name, role in roles.items():
            self.processes[name] = Process(self, name, role)
        self.clients = [Client(self, f"c{at}", EDGES[at % len(EDGES)]) for at in range(clients)]
        self.settle(0, beats=8)

    # ── one step ────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, kind: str, chance: int) -> None:
        """One thing happens, if it can."""
        processes = list(self.processes.values())
        match kind:
            case "kill":
                _some(chance, [each for each in processes if each.alive], Process.die)
            case "start":
                _some(
                    chance, [each for each in processes if not each.alive], lambda each: each.begin(each.own)
                )
            case "notice":
                _some(chance, [name for name, each in self.members.items() if not each.alive], self._lose)
            case "promote":
                _some(chance, [each for each in processes if self._is_spare(each)], self._promote)
            case "depose":
                _some(chance, [each for each in processes if self._is_deposed(each)], self._depose)
            case "inform":
                _some(chance, processes, self._inform)
            case "deafen":
                _some(chance, processes, lambda each: setattr(each, "deaf", True))
            case "beat":
                self.now_us += BEAT_US // len(processes)
                _some(chance, [each for each in processes if each.alive], self._beat)
            case "carry" | "lose" | "repeat":
                _some(chance, self.wire, lambda each: self._carry(each, kind))
            case "unnoticed":
                _some(chance, self.hung_up, self._notice)
            case "act":
                self.let_clients_act(("dial", "connect", "welcome", "read")[: 1 + chance % 4])
            case "pass":
                self.let_pass(1 + chance % 12)
            case _:
                _some(chance, self.clients, lambda each: self.move(each, kind))

    def move(self, client: Client, kind: str) -> None:
        call = client.call
        match kind:
            case "dial":
                client.dial()
            case "connect" if call is not None and call.state == "accepted" and not call.broken:
                call.process.hear_connect(call)
            case "welcome" if call is not None and call.state == "resuming" and not call.broken:
                call.process.welcome(call)
            case "read":
                client.read()
            case "fire":
                client.fire(DiallerTimer.RETRY, DiallerTimer.DEADLINE)

    def _lose(self, name: str) -> None:
        del self.members[name]
        others = [each for each in EDGES if each != name and each in self.members]
        if name in EDGES and others:
            self.places[name] = others[0]

    def _is_spare(self, each: Process) -> bool:
        return each.alive and each.info.role == Role.STANDBY and any(e not in self.members for e in EDGES)

    def _promote(self, each: Process) -> None:
        place = next(name for name in EDGES if name not in self.members)
        each.change(BrokerInfo(place, "north", Role.EDGE, "127.0.0.1", 1, each.own.entrances))

    def _is_deposed(self, each: Process) -> bool:
        return each.alive and each.info is not each.own and self.members.get(each.info.id) is not each

    def _depose(self, each: Process) -> None:
        each.change(each.own)

    def _inform(self, each: Process) -> None:
        each.places = {name: to for name, to in self.places.items() if name not in self.members}

    def _notice(self, call: Call) -> None:
        self.hung_up.remove(call)
        call.process.forget(call)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def _beat(self, process: Process) -> None:
        self.wire.append((process, process.beat()))

    def _carry(self, each: tuple[Process, Beat | Pulse], kind: str) -> None:
        if kind != "repeat":
            self.wire.remove(each)
        if kind == "lose":
            return
        process, message = each
        if isinstance(message, Pulse):
            process.hear(message)
        elif (answer := self._answer(process, message)) is not None:
            self.wire.append((process, answer))

    def _answer(self, process: Process, beat: Beat) -> Pulse | None:
        if self.members.get(process.info.id) is not process or beat.incarnation != process.incarnation:
            return None
        plan = RefugePlan()
        plan.rank([each.info for each in self.members.values()], {})
        homes = plan.homes(beat.homes) if beat.homes else None
        return Pulse(1, beat.incarnation, 0, plan.news(process.info, beat.refuges), homes, beat.number)

    # ── the rest of time ────────────────────────────────────────────────────────────────────────────────────

    def settle(self, lag: int, beats: int = QUIET_BEATS) -> None:
        """Everything is put right, and goes on without trouble; answers come so many beats later."""
        for process in self.processes.values():
            if not process.alive:
                process.begin(process.own)
        for process in self.processes.values():
            if self._is_deposed(process):
                self._depose(process)
            self._inform(process)
        self.let_pass(beats, lag)

    def let_pass(self, beats: int, lag: int = 0) -> None:
        """Time, as things are."""
        late: list[list[tuple[Process, Pulse]]] = [[] for _ in range(lag)]
        for _ in range(beats):
            self.now_us += BEAT_US
            living = [each for each in self.processes.values() if each.alive]
            answers = [(each, self._answer(each, each.beat())) for each in living]
            late.append([(each, answer) for each, answer in answers if answer is not None])
            for process, pulse in late.pop(0):
                process.hear(pulse)
            self.let_clients_act()

    def let_clients_act(self, far: Sequence[str] = ("dial", "connect", "welcome", "read")) -> None:
        """All that they do at once, or the first steps of it."""
        for call in list(self.hung_up):
            self._notice(call)
        for client in self.clients:
            client.read()
            client.fire(DiallerTimer.RETRY)
            for _ in range(12):  # more than any client does at once
                for kind in far:
                    self.move(client, kind)


def _some(chance: int, choices: Sequence[T], act: Callable[[T], object]) -> None:
    if choices:
        act(choices[chance % len(choices)])
