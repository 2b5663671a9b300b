"""The rest of a broker's process around its participant: tables, query sets, and messages that wait or travel.

Messages are QoS 0, over links that lose nothing but do not reach a broker that is down. Their way is that of the
product: at the publisher's broker they wait until the participant says that the way is clear.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tocsin.core.coordination.participant.signals import (
    Adopted,
    AllDispatched,
    AwaitAll,
    AwaitDispatch,
    ChangesKnown,
    ChangesRouted,
    ChangesSettled,
    ClientsChanged,
    Dispatched,
    Orphaned,
    QuerySetKnown,
    RoutesChanged,
    StreamChanged,
    StreamJoined,
    StreamLeft,
    StreamRefused,
    StreamsDescribed,
)
from tocsin.core.forwarding.origins import UNREGISTERED
from tocsin.core.tiers.slots import Slots, is_gate, slot_of
from tocsin.model.network import Address, BrokerInfo, Route, Scope, broker_address
from tocsin.model.stream import Metadata
from tocsin.sim.world import World
from tocsin.wire.internal.commands import ClientAway, ClientBack, ClientGone, Streams
from tocsin.wire.mqtt.topics import matches

DISPATCH_MAX_US = 400_000  # within which the message log was delivered up to some position
HOP_MAX_US = 20_000


class Message:
    """A message of a stream."""

    def __init__(self, topic: str, number: int, at_us: int) -> None:
        self.topic = topic
        self.number = number
        self.at_us = at_us


class Shell:
    """One broker's process, from its start to its end."""

    def __init__(self) -> None:
        self.routes: dict[Route, None] = {}
        self.tiers: dict[str, Slots] = {}
        self.sets: dict[str, dict[str, Metadata]] = {}
        self.known_us: dict[str, int] = {}  # query → when it was answered
        self.described: dict[str, Metadata] = {}  # metadata of the streams that are published here
        self.tickets = 0
        self.said: dict[int, Streams | ClientAway | ClientBack | ClientGone] = {}  # by ticket
        self.settled = 0
        self.cleared = 0
        self.held: list[tuple[int, Message]] = []  # with the ticket that they wait for
        self.waits: dict[str, int] = {}  # topic → the ticket of its last change
        self.routed = 0  # changes up to this ticket have their routes
        self.publishing: dict[
            str, dict[str, int]
        ] = {}  # client → its topics, and under which ticket it said so

    def note(self, ticket: int, command: Streams | ClientAway | ClientBack | ClientGone) -> None:
        if isinstance(command, ClientAway | ClientGone):
            self.publishing.pop(command.client, None)
        elif isinstance(command, Streams) and command.client:
            for topic, _ in command.changes:
                self.publishing.setdefault(command.client, {}).setdefault(topic, ticket)

    def is_registered(self, topic: str) -> bool:
        """Whether the routes for a topic's messages are all here."""
        return any(0 < topics.get(topic, 0) <= self.routed for topics in self.publishing.values())


class Shells:
    """All of them. ``delivered`` is called with broker, query and message."""

    def __init__(self, world: World, brokers: tuple[BrokerInfo, ...]) -> None:
        self.infos = {broker_address(info.id): info for info in brokers}
        self.shells: dict[Address, Shell] = {}
        self.on_delivered: list[Callable[[Address, str, Message], None]] = []
        self.on_settled: list[Callable[[Address, Shell, int], None]] = []
        self.on_turn: list[Callable[[Address, str, str, str], None]] = []
        self._world = world
        self._chance = world.chances.of("data")
        world.observers.on_happening(self._on_happening)
        world.own(RoutesChanged, self._change_routes)
        world.own(QuerySetKnown, self._know)
        world.own(StreamJoined, self._join)
        world.own(StreamChanged, self._change)
        world.own(StreamLeft, self._leave)
        world.own(StreamRefused, lambda address, effect: None)
        world.own(Orphaned, lambda address, effect: None)
        world.own(Adopted, lambda address, effect: None)
        world.own(StreamsDescribed, self._describe)
        world.own(AwaitDispatch, self._await)
        world.own(AwaitAll, self._await_all)
        world.own(ChangesSettled, self._settle)
        world.own(ChangesKnown, self._clear)
        world.own(ChangesRouted, self._route)

    def _on_happening(self, address: Address, happening: str) -> None:
        if address in self.infos and happening == "started":
            self.shells[address] = Shell()

    # ── what clients do ─────────────────────────────────────────────────────────────────────────────────────

    def say(self, address: Address, command: Streams | ClientAway | ClientBack | ClientGone) -> bool:
        """Hand a change to the participant; False if the broker is away."""
        shell = self.shells[address]
        ticket = shell.tickets + 1
        event = ClientsChanged(ticket=ticket, command=command, cause=f"{address}:{ticket}")
        if not self._world.post(address, event):
            return False
        shell.tickets = ticket
        shell.said[ticket] = command
        shell.note(ticket, command)
        if isinstance(command, Streams):
            shell.waits.update((topic, ticket) for topic, _ in command.changes)
        return True

    def publish(self, address: Address, message: Message) -> None:
        """A message of a client here: it waits for the last change of its stream."""
        shell = self.shells[address]
        ticket = shell.waits.get(message.topic, 0)
        if ticket > shell.cleared:
            shell.held.append((ticket, message))
        else:
            self._forward(address, message)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def _forward(self, address: Address, message: Message) -> None:
        self._deliver(address, message)
        self._send(address, message, Scope.ORIGIN, self.infos[address].cluster)

    def _send(self, address: Address, message: Message, scope: Scope, cluster: str) -> None:
        routes = self.shells[address].routes
        tiers, slot = self.shells[address].tiers, slot_of(message.topic)
        registered = self.shells[address].is_registered(message.topic)
        peers = dict.fromkeys(
            route.peer
            for route in routes
            if route.scope is scope
            and (not registered if route.filter == UNREGISTERED else matches(route.filter, message.topic))
        )
        for name in peers:
            carries = is_gate(name)
            peer = broker_address(tiers[name].carriers[slot] if carries else name)
            if scope is Scope.TRANSIT and self.infos[peer].cluster == cluster:
                continue
            at_us = self._world.now_us + 1 + self._chance.below(HOP_MAX_US)
            self._world.at(at_us, partial(self._arrive, peer, message, cluster, carries))

    def _arrive(self, address: Address, message: Message, cluster: str, carries: bool) -> None:
        if self._world.machine(address) is None:
            return
        if not carries or self.infos[address].cluster != cluster:
            self._deliver(address, message)
        if carries:
            self._send(address, message, Scope.TRANSIT, cluster)

    def _deliver(self, address: Address, message: Message) -> None:
        for query, streams in self.shells[address].sets.items():
            if message.topic in streams:
                for hook in self.on_delivered:
                    hook(address, query, message)

    # ── what participants ask for ───────────────────────────────────────────────────────────────────────────

    def _change_routes(self, address: Address, effect: RoutesChanged) -> None:
        routes = self.shells[address].routes
        for route in effect.removed:
            del routes[route]
        routes.update(dict.fromkeys(effect.added))
        if effect.tiers is not None:
            self.shells[address].tiers = dict(effect.tiers)

    def _know(self, address: Address, effect: QuerySetKnown) -> None:
        shell = self.shells[address]
        shell.sets[effect.query] = dict(effect.streams)
        shell.known_us[effect.query] = self._world.now_us

    def drop(self, address: Address, query: str) -> None:
        """Nobody at a broker asks this query any more."""
        self.shells[address].sets.pop(query, None)
        self.shells[address].known_us.pop(query, None)

    def _join(self, address: Address, effect: StreamJoined) -> None:
        if self._told(address, "joined", effect.query, effect.topic):
            self.shells[address].sets[effect.query][effect.topic] = effect.metadata

    def _change(self, address: Address, effect: StreamChanged) -> None:
        if self._told(address, "changed", effect.query, effect.topic):
            self.shells[address].sets[effect.query][effect.topic] = effect.metadata

    def _leave(self, address: Address, effect: StreamLeft) -> None:
        if self._told(address, "left", effect.query, effect.topic):
            del self.shells[address].sets[effect.query][effect.topic]

    def _told(self, address: Address, what: str, query: str, topic: str) -> bool:
        """Whether anybody here asks that query; a frozen participant may not know yet that nobody does."""
        if query not in self.shells[address].sets:
            return False
        for hook in self.on_turn:
            hook(address, what, query, topic)
        return True

    def _describe(self, address: Address, effect: StreamsDescribed) -> None:
        shell = self.shells[address]
        kept = {} if effect.whole else shell.described
        shell.described = {**kept, **effect.streams}

    def _await(self, address: Address, effect: AwaitDispatch) -> None:
        at_us = self._world.now_us + self._chance.below(DISPATCH_MAX_US)
        event = Dispatched(position=effect.position, cause=effect.cause)
        self._world.at(at_us, lambda: self._post(address, event))

    def _await_all(self, address: Address, effect: AwaitAll) -> None:
        at_us = self._world.now_us + self._chance.below(DISPATCH_MAX_US)
        event = AllDispatched(number=effect.number, cause=effect.cause)
        self._world.at(at_us, lambda: self._post(address, event))

    def _post(self, address: Address, event: Dispatched | AllDispatched) -> None:
        self._world.post(address, event)

    def _settle(self, address: Address, effect: ChangesSettled) -> None:
        shell = self.shells[address]
        for hook in self.on_settled:
            hook(address, shell, effect.ticket)
        shell.settled = effect.ticket

    def _route(self, address: Address, effect: ChangesRouted) -> None:
        shell = self.shells[address]
        shell.routed = effect.ticket if effect.anew else max(shell.routed, effect.ticket)

    def _clear(self, address: Address, effect: ChangesKnown) -> None:
        shell = self.shells[address]
        shell.cleared = max(shell.cleared, effect.ticket)
        free = [message for ticket, message in shell.held if ticket <= shell.cleared]
        shell.held = [(ticket, message) for ticket, message in shell.held if ticket > shell.cleared]
        for message in free:
            self._forward(address, message)
