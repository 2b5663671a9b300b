"""One client's connection at a broker that is backed: the part of the asyncio shells around the cores.

It asks whoever has the client to let it go before it takes the session; it tells the backups, and waits for them
before SUBACK, UNSUBACK and the CONNACK of a new session; it tells the client where it is and where it could go.

What it was **told** of its own end is noted here, at the boundary of the shell, for the promises: that its session's
cell has a larger epoch, or that a write of its own conflicts with what is there while none of its own is under way
unanswered. That there is nothing, because the cell has expired, is no word of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqtt5 import PublishPacket, Will

from tocsin.core.attendance import Subscribed, Unsubscribed, Usurped
from tocsin.core.coordination.signals import GuestCame, GuestWent
from tocsin.core.custody import SAVE
from tocsin.core.machine import Effect, Event, Stored, StoreFailed
from tocsin.core.session_signals import DelayWill
from tocsin.core.session_signals import Publish as PublishWill
from tocsin.core.stored_group import Claim
from tocsin.core.stored_session import decode_session
from tocsin.core.will import due, will_message
from tocsin.errors import Conflict, OutcomeUnknown
from tocsin.model.network import Scheme
from tocsin.model.publication import Publication
from tocsin.ports import Cell
from tocsin.sim.scenarios.channels.service import ChannelService
from tocsin.sim.scenarios.channels.wire import Unsuback
from tocsin.sim.scenarios.durable.service import Service
from tocsin.sim.scenarios.durable.wire import Disconnect, Packet, Suback
from tocsin.sim.scenarios.survival.replicating import head_of
from tocsin.sim.scenarios.survival.wire import Ousted, SentOn, Servers, Welcome
from tocsin.wire.replication import Bequest, Head, Positions

if TYPE_CHECKING:
    from tocsin.sim.scenarios.survival.broker import SurvivalBroker


class SurvivalService(ChannelService):
    """See the module's text."""

    _broker: SurvivalBroker
    home = ""  # where the client says that it is at home
    bequeaths = False  # the client came with a will
    will: Will | None = None  # until it is no longer the client's wish, or somebody else's affair
    _moving = False  # it was sent to another broker
    greeted = False  # it was told that it is in
    came_us = 0  # when it got its session
    fenced = False  # this broker was told that another has the client
    _asked = False  # who has the client was asked to let it go
    _announced = False
    arrived_us = 0  # by this broker's clock
    _early: tuple[Packet, ...] = ()  # what is to be sent once it is greeted
    _unsure = False  # a write may have taken effect, or still will

    # ── as it is seen ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> int:
        return 0 if self._taking is None else self._taking.epoch

    @property
    def here(self) -> bool:
        """Whether the client has its session, and has not gone."""
        return self.open and self.machine.state != "new"

    def head(self, *, connected: bool, will: Bequest | None) -> Head:
        uid = "" if self._taking is None else self._taking.uid
        return head_of(uid, self.epoch, self.expiry_s, connected=connected, will=will)

    @property
    def will_id(self) -> str:
        """Of the will that it came with; empty: it had none."""
        return f"{self.name}.will" if self.bequeaths else ""

    def bequest(self) -> Bequest | None:
        if self.will is None:
            return None
        return self._bequeathed(will_message(self.will), self.will.will_delay_interval)

    def _bequeathed(self, packet: PublishPacket, delay_s: int = 0) -> Bequest:
        publication = Publication.of(packet, packet.topic, f"{self.client}'s will")
        uid = "" if self._taking is None else self._taking.uid
        return Bequest(publication, delay_s, f"{self.name}.will", uid, self.epoch)

    @property
    def positions(self) -> Positions | None:
        messages, results = self.machine.messages, self.machine.results
        if messages.others is None and results.others is None:
            return None
        tracks = (messages.others, results.others, results.critical, messages.critical)
        return Positions(*(0 if each is None else each.delivery.position for each in tracks))

    # ── taking the session ──────────────────────────────────────────────────────────────────────────────────

    def take(self) -> None:
        if not self._announced:
            self._announced = True
            self._broker.bequeathing.came(self.client, self._broker.address)
            self.arrived_us = self._broker.now_us
            self._broker.presence.came(self.client, self.arrived_us)
        self._asked = False
        super().take()

    def _on_cell(self, event: Stored | StoreFailed) -> None:
        if self.open and isinstance(event, Stored) and event.value is not None and not self._asked:
            before = decode_session(event.value.value)
            if before.broker not in ("", self._broker.address):
                self._asked = True
                self._broker.ask_for(self.client, before.broker, self.arrived_us, self._look_again)
                return
        super()._on_cell(event)

    def _look_again(self) -> None:
        if self.open:
            Service.take(self)

    def welcome(self, revision: int, present: bool, claims: tuple[tuple[str, Claim], ...] = ()) -> None:
        self.begin(revision, claims)
        if self._taking is not None:
            self._broker.replicating.backup.note_taken(self._taking.uid, self._taking.epoch)
        if self.open:
            self.came_us = self._broker.ledger.world.now_us
            self._broker.announce(self.client, self.stream.connection, self.arrived_us)
            self._broker.replicating.came(self.client, lambda _: self._greet(present), waits=not present)

    def _greet(self, present: bool) -> None:
        if not self.open:
            return
        home, scheme = self.home, Scheme.MQTT
        self._broker.member.tell(GuestCame(client=self.client, home=home, scheme=scheme, cause=self.name))
        self.greeted = True
        self._send(Welcome(present, self._broker.address, self._broker.elsewhere()))
        early, self._early = self._early, ()
        for packet in early:
            self._send(packet)

    # ── packets ─────────────────────────────────────────────────────────────────────────────────────────────

    def on_packet(self, packet: Packet) -> None:
        if isinstance(packet, Disconnect):
            self.will = None
        super().on_packet(packet)
        if isinstance(packet, Disconnect):
            self._broker.replicating.when_synced(self.client, self._left_in_order)

    def _left_in_order(self, synced: bool) -> None:
        if synced:
            self._broker.ledger.left(self._broker, self.client, self.stream.connection)

    def since(self, topic_filter: str) -> int:
        """As it was, if it is not new: this broker may be behind the one at which it was made."""
        before = self.machine.subscriptions.get(topic_filter)
        return super().since(topic_filter) if before is None else before.since

    def acknowledge(self, topic_filter: str, qos: int) -> None:
        self._send_synced(Suback(topic_filter), topic_filter)

    def confirm(self, name: str) -> None:
        self._send_synced(Unsuback(name), name)

    def _send_synced(self, packet: Packet, name: str) -> None:
        """Send a packet about a subscription when the backups know, or should have."""
        watch = self._broker.ledger.awaits(self._broker, self, name)

        def send(synced: bool) -> None:
            if self.open:
                self._broker.ledger.acknowledges(watch, synced)
                self._send(packet)

        self._broker.replicating.when_synced(self.client, send)

    def send_home(self, reference: str) -> None:
        self._send(SentOn(reference))
        self._moving = True
        self.close()

    def supplanted(self) -> None:
        """Another connection of this client came: it is back before its will is due."""
        if self.will is not None and self.will.will_delay_interval:
            self.will = None
        if self.open and self.greeted:
            super()._send(Ousted())

    def tell_servers(self) -> None:
        if self.greeted:
            self._send(Servers(self._broker.elsewhere()))

    def _send(self, packet: Packet) -> None:
        if not self.greeted:
            self._early = (*self._early, packet)
            return
        if self.open:
            self._broker.ledger.sends(self._broker, self, packet)
        super()._send(packet)

    # ── the attendance ──────────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: Event) -> None:
        self._notice(event)
        super().tell(event)
        if isinstance(event, Subscribed | Unsubscribed):
            self._broker.ledger.changes(self._broker, self, event.topic_filter)
            self._broker.replicating.changed(self.client, event.topic_filter)

    def _notice(self, event: Event) -> None:
        """See whether what the store says means that another has the client."""
        match event:
            case Stored(value=Cell() as cell):
                self.fenced = self.fenced or decode_session(cell.value).epoch > self.epoch
            case Stored(request="save"):
                self._unsure = False
            case StoreFailed(request="save", error=Conflict(actual=actual)) if actual != 0:
                self.fenced = self.fenced or not self._unsure
            case StoreFailed(request="save", error=OutcomeUnknown()):
                self._unsure = True

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Usurped):
            self.supplanted()
        super()._carry_out(effect)

    @property
    def settled(self) -> bool:
        return self._broker.bequeathing.wills.unsettled(self.client) is None

    def close(self) -> None:
        was_open, begun = self.open, self.machine.state != "new"
        if was_open and self.greeted and self.will is not None:
            self._bequeath(due(self.will, self.expiry_s, moving=self._moving))
        self.will = None
        super().close()
        if was_open:
            self._broker.member.tell(GuestWent(client=self.client, cause=self.name))
            if begun:
                self._broker.replicating.went(self)

    def _bequeath(self, effect: Effect) -> None:
        match effect:
            case DelayWill(packet=packet, delay_s=delay_s, moving=moving):
                will = self._bequeathed(packet)
                self._broker.bequeathing.wills.delay(self.client, will, delay_s, moving=moving)
            case PublishWill(packet=packet):
                self._broker.bequeathing.publish(self._bequeathed(packet))
            case _:
                raise AssertionError(f"no way to carry out {effect}")


assert SAVE == "save", "what is told of a save is known by this name"
