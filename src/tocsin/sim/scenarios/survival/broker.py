"""A broker's process, as ``broker.main`` wires it: its participant, its copies, its channels, its clients.

Under one name there may be two processes at a time: a broker that is lost and a standby in its place. On the bus both
are heard under that name; clients reach each at its own address. A process that is to take a place, or to give it back,
begins anew as the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from mqtt5 import QoS, Will

from tocsin.core.coordination.participant import Participant
from tocsin.core.coordination.places import Places
from tocsin.core.coordination.signals import (
    Adopted,
    AwaitDispatch,
    BackupsKnown,
    BecomePlace,
    Deposed,
    Dispatched,
    Leaving,
    Orphaned,
    RefugesChanged,
    RoutesChanged,
    SendHome,
    StandDown,
    StandIn,
)
from tocsin.core.holdings import Counted, Prepared, Unprepared
from tocsin.core.machine import CancelTimer, Effect, Event, Followed, Listen, Received, Send, Started, Stop
from tocsin.core.presence import Presence
from tocsin.core.refuge import reference
from tocsin.core.replication.backup import Backup
from tocsin.core.replication.primary import Primary
from tocsin.core.stored_session import StoredSession
from tocsin.core.waiting_wills import WaitingWills
from tocsin.model.message import Address, broker_address
from tocsin.model.network import BrokerInfo, Role, Scheme
from tocsin.sim.node import Disk
from tocsin.sim.scenarios.channels.broker import ChannelBroker, Keeper, channels_of
from tocsin.sim.scenarios.channels.wire import Told
from tocsin.sim.scenarios.durable.broker import Timed
from tocsin.sim.scenarios.durable.service import Service
from tocsin.sim.scenarios.durable.wire import Frame, Reset
from tocsin.sim.scenarios.survival.bequeathing import WILLS, Bequeathing
from tocsin.sim.scenarios.survival.part import Part
from tocsin.sim.scenarios.survival.replicating import POLICY, Replicating
from tocsin.sim.scenarios.survival.service import SurvivalService
from tocsin.sim.scenarios.survival.wire import (
    ARRIVALS,
    Arrived,
    Call,
    EndWatch,
    HandedOver,
    HandOver,
    Inquest,
    Knock,
    Opened,
    SentOn,
    Settled,
)
from tocsin.wire.replication import Applied, Begun, Behind, Declined, Dismiss, Mourned, Probe, Update

if TYPE_CHECKING:
    from tocsin.sim.scenarios.survival.ledger import Ledger

HEARTBEAT_US: Final = 1_000_000
SUSPECT_AFTER_US: Final = 3_000_000
HAND_OVER_US: Final = 2_000_000  # for who has a client to let it go; then it is taken

_REPLICATION: Final = (Update, Probe, Dismiss, Begun, Mourned, Applied, Behind, Declined)


class StandbyKeeper(Keeper):
    """The shell of the holdings, with the standby cells."""

    scan_every_us = 8_000_000

    def stand_by(self, primary: str, names: tuple[str, ...]) -> None:
        self.tell(Prepared(primary=primary, names=names, cause=f"standby {primary}"))

    def stand_down(self, primary: str, names: tuple[str, ...]) -> None:
        self.tell(Unprepared(primary=primary, names=names, cause=f"standby {primary}"))


class SurvivalBroker(ChannelBroker):
    """See the module's text."""

    service = SurvivalService
    keeper: type[Keeper] = StandbyKeeper
    keeping: StandbyKeeper
    services: dict[str, SurvivalService]  # type: ignore[assignment]
    participant: type[Participant] = Participant
    primary: type[Primary] = Primary
    backup: type[Backup] = Backup
    bequests: type[Bequeathing] = Bequeathing
    presences: type[Presence] = Presence
    wills: type[WaitingWills] = WaitingWills
    heartbeat_us = HEARTBEAT_US
    suspect_after_us = SUSPECT_AFTER_US
    policy = POLICY

    def __init__(self, node: Address, info: BrokerInfo, places: Places, disk: Disk, ledger: Ledger) -> None:
        place: BrokerInfo | None = disk.pop("place", None)
        self._spare = place is not None
        if place is not None:
            info = msgspec.structs.replace(info, id=place.id, cluster=place.cluster, role=place.role)
        super().__init__(info.id)
        self.keeping.tell(Counted(counted=False))  # until a leader does
        if self._spare:
            self.keeping.machine.borrow()
        self.node = node
        self.info = info
        self.ledger = ledger
        self.others = tuple(each for each in ledger.names if each != info.id)
        ledger.begins(self)
        self._disk = disk
        self._stopping = ""  # why this process is to begin anew, once it has said so
        self._commands = places.commands.name
        self.membership = self.participant(
            info, places, self.heartbeat_us, self.suspect_after_us, substitute=place is not None
        )
        self.member = Part(self, "member", self.membership, self._on_member)
        self.replicating = Replicating(self, self.primary, self.backup)
        self.bequeathing = self.bequests(self, self.wills)
        self.presence = self.presences()
        self.stands_in: dict[str, int] = {}  # for whom → the epoch
        self.heard_of: dict[str, int] = {}  # client → its newest connection: for those who look
        self._asked: dict[str, Callable[[], None]] = {}  # client → what to do when it was let go
        self._letting_go: dict[str, list[Address]] = {}  # client → who waits for that

    @property
    def past(self) -> int | None:
        """Behind which position another broker may have put a will into the log; None: the log knows its id."""
        return None

    @property
    def attended(self) -> Mapping[str, SurvivalService]:
        """The connections, by client."""
        return self.services

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        effects = super().handle(event, now_us)
        return [*effects, Stop(reason=self._stopping)] if self._stopping else effects

    def on(self, event: Event) -> None:
        match event:
            case Started():
                for address in (broker_address(self.address), ARRIVALS):
                    self.do(Listen(address=address, cause=event.cause))
                super().on(event)
                self.member.tell(event)
                self.replicating.start()
            case Followed(log=self._commands):
                self.member.tell(event)
            case Received(message=message):
                self._on_message(event, message)
            case _:
                super().on(event)

    def _on_message(self, event: Received, message: object) -> None:
        match message:
            case Frame() | Told():
                super().on(event)
            case Knock(connection=connection):
                self.send(event.sender, Opened(connection) if self.ready else Reset(connection))
            case Reset(connection=connection):
                service = self.services.get(event.sender)
                if service is not None and service.stream.connection == connection:
                    service.close()
            case HandOver(client=client, came_us=came_us):
                if self.presence.since(client, came_us):
                    self.send(event.sender, HandedOver(client))
                    return
                self._let_go(client)
                self._letting_go.setdefault(client, []).append(event.sender)
                self._let_gone(client)
            case HandedOver(client=client):
                self._look_again(client)
            case Arrived(broker=broker, client=client, came_us=came_us, connection=connection):
                if broker != self.address and not self.presence.since(client, came_us):
                    self.heard_of[client] = max(connection, self.heard_of.get(client, 0))
                    self._let_go(client)
                    self.bequeathing.came(client, broker)
                    self.replicating.moved(client)
            case Inquest(names=names):
                if any(map(self.replicating.backup.is_void, names)):
                    self.send(event.sender, Settled(names))
            case Settled(names=names):
                self.bequeathing.heard_settled(names)
            case _ if isinstance(message, _REPLICATION):
                self.replicating.hear(event)
            case _:
                self.member.tell(event)

    # ── what parts and connections ask for ──────────────────────────────────────────────────────────────────

    def do(self, effect: Effect) -> None:
        self._out.append(effect)

    def cancel_timer(self, part: Timed, name: str) -> None:
        full = f"{part.name} {name}"
        if self._timers.pop(full, None) is not None:
            self.do(CancelTimer(name=full, cause=self._cause))

    def elsewhere(self) -> tuple[str, ...]:
        """Where clients could go if this broker were gone, best first."""
        return tuple(self.membership.all_elsewhere(Scheme.MQTT, len(self.services), self.now_us))

    def announce(self, client: str, connection: int, now_us: int) -> None:
        arrived = Arrived(self.address, client, now_us, connection)
        self.heard_of[client] = max(connection, self.heard_of.get(client, 0))
        self.do(Send(to=ARRIVALS, message=arrived, cause=self._cause))

    def prefix(self) -> str:
        """For the record ids of one connection, or of one will: never given out twice."""
        self._count += 1
        return f"{self.address}.{self.incarnation:x}.{self._count}"

    def unwatch(self, table: str) -> None:
        self.do(EndWatch(table=table, cause=self._cause))

    def tell_home(self, session: StoredSession) -> None:
        if session.home != self.address and channels_of(session):
            self.send(broker_address(session.home), Told(session.uid, session.client))

    # ── handing over ────────────────────────────────────────────────────────────────────────────────────────

    def ask_for(self, client: str, broker: str, came_us: int, then: Callable[[], None]) -> None:
        """Ask a broker to let a client go, and go on when it has, or after a while."""
        self._asked[client] = then
        self.send(broker_address(broker), HandOver(client, came_us))
        self.set_timer(_Waits(self, client), "hand over", HAND_OVER_US)

    def _look_again(self, client: str) -> None:
        then = self._asked.pop(client, None)
        if then is not None:
            then()

    def _let_go(self, client: str) -> None:
        service = self.services.get(client)
        if service is not None:
            service.supplanted()
            service.close()

    def gone(self, service: Service) -> None:
        super().gone(service)
        if service.client not in self.services:
            self.presence.went(service.client)
        self._let_gone(service.client)

    def _let_gone(self, client: str) -> None:
        """Answer those who wait for a client, if nothing of it is left to store."""
        if self._letting_go.get(client) and client not in self.services and not self._endings.get(client):
            for asker in self._letting_go.pop(client):
                self.send(asker, HandedOver(client))

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, client: Address, frame: Frame, before: Service | None) -> None:
        call = frame.packet
        assert isinstance(call, Call)
        there = None if call.stays or not call.home else self.membership.picture.stands_in_for(call.home)
        if there is not None and there.id != self.address:
            where = reference((there,), Scheme.MQTT, 0)
            assert where is not None, "all brokers of this scenario have an entrance"
            self.send(client, Frame(frame.connection, 0, SentOn(where)))
            return
        if isinstance(before, SurvivalService):
            before.supplanted()
        super()._accept(client, frame, before)
        service = self.services[client]
        service.home = call.home
        if call.will_s is not None:
            service.bequeaths = True
            payload = str(frame.connection).encode()
            service.will = Will(
                WILLS + client, payload=payload, qos=QoS.AT_LEAST_ONCE, will_delay_interval=call.will_s
            )

    # ── the participant's effects ───────────────────────────────────────────────────────────────────────────

    def _on_member(self, effect: Effect) -> None:
        match effect:
            case BackupsKnown():
                self.replicating.know(effect)
            case StandIn(broker=broker, epoch=epoch):
                self.ledger.stands_in(self, broker, epoch)
                self.stands_in[broker] = epoch
                self.bequeathing.stand_in(broker, epoch)
            case StandDown(broker=broker):
                self.stands_in.pop(broker, None)
                self.bequeathing.stand_down(broker)
            case SendHome(client=client, server_reference=where):
                if client in self.services:
                    self.services[client].send_home(where)
            case RefugesChanged():
                for service in list(self.services.values()):
                    service.tell_servers()
            case BecomePlace(place=place) if self.info.role == Role.STANDBY:
                self.ledger.takes_place(self)
                self._begin_anew(place)
            case Deposed():
                self._begin_anew(None)
            case AwaitDispatch(position=position, cause=cause):
                self.member.tell(Dispatched(position=position, cause=cause))
            case Orphaned(cause=cause):
                self.keeping.tell(Counted(counted=False, cause=cause))
            case Adopted(cause=cause):
                self.keeping.tell(Counted(counted=True, cause=cause))
            case RoutesChanged() | BecomePlace():
                pass
            case _:
                raise AssertionError(f"no way to carry out {effect}")

    def _begin_anew(self, place: BrokerInfo | None) -> None:
        self._disk["place"] = place
        for service in list(self.services.values()):
            service.close()
        self.member.tell(Leaving(cause=f"{self.address}:stop"))
        self._stopping = "it takes a place" if place is not None else "it gives its place back"


class _Waits:
    """The timer of who waits for a client to be let go."""

    def __init__(self, broker: SurvivalBroker, client: str) -> None:
        self.name = f"for {client}"
        self._broker = broker
        self._client = client

    def tell(self, event: Event) -> None:
        self._broker._look_again(self._client)
