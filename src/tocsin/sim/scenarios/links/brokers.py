"""What a broker's process does with links and messages at QoS 0, around its participant."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from tocsin.core.coordination.signals import (
    Adopted,
    AwaitDispatch,
    ClearTo,
    DetoursChanged,
    Dispatched,
    InterestsChanged,
    LinksSeen,
    MeasureLinks,
    Orphaned,
    QuerySetKnown,
    RoutesChanged,
    Settled,
    StreamsDescribed,
)
from tocsin.core.distances import Delays
from tocsin.core.passage import STRAIGHT, Passage
from tocsin.model.message import Address, broker_address
from tocsin.model.network import BrokerInfo, Route, Scope
from tocsin.sim.node import Status
from tocsin.sim.world import World

TOPICS: Final = ("a", "b", "c")
LOOK_US: Final = 1_000_000
DIAL_US: Final = 20_000  # for a link to stand, if nothing is in its way
NOTICED_US: Final = (2_000_000, 4_000_000)  # within which a link that is cut is given up
REDIAL_MAX_US: Final = 10_000_000
HOLD_US: Final = 5_000_000
PUBLISH_US: Final = 200_000
BUSY_US: Final = 25_000
CUTS_MAX: Final = 6
MOMENT_US: Final = 1_000_000  # before the end, so that the last messages arrive


class Message:
    """Of a topic, published at a broker."""

    def __init__(self, topic: str, origin: str, at_us: int) -> None:
        self.topic = topic
        self.origin = origin
        self.at_us = at_us


class Link:
    """To one peer."""

    def __init__(self) -> None:
        self.up = False
        self.passage = Passage()
        self.held: deque[tuple[int, Message]] = deque()
        self.dialling = False
        self.again_us = -1  # when it is looked at again


class Broker:
    """One broker's process, from its start to its end."""

    def __init__(self, info: BrokerInfo) -> None:
        self.info = info
        self.routes: dict[Route, None] = {}
        self.links: dict[str, Link] = {}
        self.detours: dict[str, tuple[str, ...]] = {}
        self.delays = Delays()
        self._peers: dict[tuple[Scope, str], list[str]] = {}  # as routes have them

    def peers(self, scope: Scope, topic: str) -> list[str]:
        if (scope, topic) not in self._peers:
            found = {each.peer for each in self.routes if each.scope is scope and each.filter == topic}
            self._peers[scope, topic] = sorted(found)
        return self._peers[scope, topic]

    def reroute(self, added: Iterable[Route], removed: Iterable[Route]) -> None:
        for route in removed:
            del self.routes[route]
        self.routes.update(dict.fromkeys(added))
        self._peers.clear()


class Brokers:
    """All of them. ``on_got`` is called with a broker's name and a message."""

    def __init__(self, world: World, infos: tuple[BrokerInfo, ...], trouble_us: int, until_us: int) -> None:
        self.infos = {info.id: info for info in infos}
        self.brokers: dict[str, Broker] = {}
        self.cut: dict[tuple[str, str], int] = {}  # links that are, and how many cuts they have
        self.messages: list[Message] = []
        self.rerouted_us = 0  # when anybody's routes changed last
        self.on_got: list[Callable[[str, Message], None]] = []
        self._world = world
        self._chance = chance = world.streams.stream("links")
        self._arrivals_us: dict[tuple[str, str], int] = {}
        self._round_trips_us = {
            frozenset((a, b)): chance.between(500, 200_000) for a in self.infos for b in self.infos if a < b
        }
        self.wanted = {
            name: tuple(chance.some_of(TOPICS, chance.between(0, len(TOPICS)))) for name in self.infos
        }
        world.observers.on_life(self._life)
        for kind, act in (
            (RoutesChanged, self._change_routes),
            (DetoursChanged, self._change_detours),
            (MeasureLinks, self._measure),
            (AwaitDispatch, self._dispatch),
        ):
            world.own(kind, act)  # type: ignore[arg-type]
        for nothing in (QuerySetKnown, StreamsDescribed, Settled, ClearTo, Orphaned, Adopted):
            world.own(nothing, lambda address, effect: None)
        self._plan_cuts(trouble_us)
        names = sorted(self.infos)
        for at_us in range(PUBLISH_US, until_us - MOMENT_US, PUBLISH_US):
            world.at(at_us, partial(self._publish, chance.one_of(names), chance.one_of(TOPICS)))
        busy = chance.one_of(names)  # publishes so often that messages could overtake each other
        for at_us in range(BUSY_US, trouble_us, BUSY_US):
            world.at(at_us, partial(self._publish, busy, TOPICS[0]))

    # ── cuts ────────────────────────────────────────────────────────────────────────────────────────────────

    def _plan_cuts(self, trouble_us: int) -> None:
        chance, names = self._chance, sorted(self.infos)
        for _ in range(chance.between(1, CUTS_MAX)):
            one, other = chance.some_of(names, 2)
            pairs = [(one, other), (other, one)] if chance.below(2) else [(one, other)]
            if not chance.below(4):  # nobody reaches it
                pairs = [(each, other) for each in names if each != other]
            at_us = chance.below(trouble_us)
            self._world.at(at_us, partial(self._begin_cut, pairs))
            if chance.below(2):
                end_us = min(trouble_us, at_us + chance.between(1, 30) * LOOK_US)
                self._world.at(end_us, partial(self._end_cut, pairs))

    def _begin_cut(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1
            at_us = self._world.now_us + self._chance.between(*NOTICED_US)
            self._world.at(at_us, partial(self._notice, pair))

    def _end_cut(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self.cut[pair] -= 1
            if not self.cut[pair]:
                del self.cut[pair]

    def _notice(self, pair: tuple[str, str]) -> None:
        """The sender has had no answer for a while."""
        broker = self.brokers.get(pair[0])
        if pair in self.cut and broker is not None and pair[1] in broker.links:
            self._set_down(pair[0], pair[1], broker.links[pair[1]])

    # ── links ───────────────────────────────────────────────────────────────────────────────────────────────

    def _life(self, address: Address, happening: str) -> None:
        name = address.partition("/")[2]
        if name not in self.infos:
            return
        if happening == "started":
            self.brokers[name] = Broker(self.infos[name])
            self._world.at(self._world.now_us + 1, partial(self._begin, name, self.brokers[name]))
        for other, broker in self.brokers.items():
            link = broker.links.get(name)
            if link is not None and link.up and other != name:
                self._set_down(other, name, link)

    def _begin(self, name: str, broker: Broker) -> None:
        event = InterestsChanged(added=self.wanted[name], cause=f"{name}:begin")
        if self.wanted[name]:
            self._world.post(broker_address(name), event)
        self._look(name, broker)

    def is_up(self, name: str) -> bool:
        running = (Status.RUNNING, Status.PAUSED)
        return name in self.brokers and self._world.node(broker_address(name)).status in running

    def _look(self, name: str, broker: Broker) -> None:
        """Every second: dial, and say how links are."""
        if self.brokers[name] is not broker:
            return
        self._tell(name, broker, asked=False)
        self._world.at(self._world.now_us + LOOK_US, partial(self._look, name, broker))

    def _tell(self, name: str, broker: Broker, *, asked: bool) -> None:
        down = []
        for peer, link in broker.links.items():
            if link.up:
                broker.delays.measured(peer, self.round_trip_us(name, peer))
            else:
                broker.delays.lost(peer)
                down.append(peer)
        seen = LinksSeen(down=tuple(down), delays=broker.delays.all(), asked=asked, cause=f"{name}:links")
        self._world.post(broker_address(name), seen)

    def round_trip_us(self, one: str, other: str) -> int:
        return self._round_trips_us[frozenset((one, other))]

    def _dial(self, name: str, peer: str, broker: Broker, delay_us: int) -> None:
        link = broker.links.get(peer)
        if link is not None and not link.up and not link.dialling:
            link.dialling = True
            self._world.at(self._world.now_us + delay_us, partial(self._dialled, name, peer, broker, link))

    def _dialled(self, name: str, peer: str, broker: Broker, link: Link) -> None:
        link.dialling = False
        if self.brokers[name] is not broker or broker.links.get(peer) is not link:
            return
        if (name, peer) in self.cut or not self.is_up(peer) or not self.is_up(name):
            self._dial(name, peer, broker, self._chance.between(100_000, REDIAL_MAX_US))
            return
        link.up = True
        link.passage.link_up(self._world.now_us)
        self._drain(name, peer, broker, link)

    def _set_down(self, name: str, peer: str, link: Link) -> None:
        if link.up:
            link.up = False
            link.passage.link_down()
            self._drain(name, peer, self.brokers[name], link)
            self._dial(name, peer, self.brokers[name], self._chance.between(100_000, REDIAL_MAX_US))

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def _publish(self, origin: str, topic: str) -> None:
        if not self.is_up(origin):
            return
        message = Message(topic, origin, self._world.now_us)
        self.messages.append(message)
        for peer in self.brokers[origin].peers(Scope.ORIGIN, topic):
            self._send(origin, peer, message)

    def _send(self, name: str, peer: str, message: Message) -> None:
        broker = self.brokers[name]
        link = broker.links[peer]
        link.held.append((self._world.now_us, message))
        self._drain(name, peer, broker, link)

    def _drain(self, name: str, peer: str, broker: Broker, link: Link) -> None:
        now_us = self._world.now_us
        while link.held:
            if link.held[0][0] < now_us - HOLD_US:
                link.held.popleft()
                continue
            way = link.passage.way(now_us)
            if way is None:
                self._drain_later(name, peer, broker, link)
                return
            message = link.held.popleft()[1]
            link.passage.sent(way, now_us)
            self._pass_on(name, (*way, peer), message)

    def _drain_later(self, name: str, peer: str, broker: Broker, link: Link) -> None:
        again_us = link.passage.look_again_us(self._world.now_us)
        if again_us is not None and link.again_us != again_us:
            link.again_us = again_us
            self._world.at(max(again_us, self._world.now_us + 1), partial(self._again, name, peer, broker))

    def _again(self, name: str, peer: str, broker: Broker) -> None:
        if self.brokers[name] is broker and peer in broker.links:
            self._drain(name, peer, broker, broker.links[peer])

    def _pass_on(self, name: str, way: tuple[str, ...], message: Message) -> None:
        """Over the link to the first of a way; what is cut loses it, and a relay needs a link that is up."""
        link = self.brokers[name].links.get(way[0])
        if link is None or not link.up or (name, way[0]) in self.cut:
            return
        leg = (name, way[0])
        straight_us = self._world.now_us + self.round_trip_us(*leg) // 2
        self._arrivals_us[leg] = max(straight_us, self._arrivals_us.get(leg, 0) + 1)  # in order
        self._world.at(self._arrivals_us[leg], partial(self._arrive, way[0], way[1:], message))

    def _arrive(self, name: str, way: tuple[str, ...], message: Message) -> None:
        if not self.is_up(name):
            return
        if way:
            self._pass_on(name, way, message)
            return
        for hook in self.on_got:
            hook(name, message)
        from_cluster = self.infos[message.origin].cluster
        for peer in self.brokers[name].peers(Scope.TRANSIT, message.topic):
            if self.infos[peer].cluster != from_cluster:
                self._send(name, peer, message)

    # ── what participants ask for ───────────────────────────────────────────────────────────────────────────

    def _change_routes(self, address: Address, effect: RoutesChanged) -> None:
        name = address.partition("/")[2]
        broker = self.brokers[name]
        broker.reroute(effect.added, effect.removed)
        if effect.added or effect.removed:
            self.rerouted_us = self._world.now_us
        wanted = {peer.id for peer in effect.peers}
        for peer in [each for each in broker.links if each not in wanted]:
            broker.delays.lost(peer)
            del broker.links[peer]
        for peer in sorted(wanted - set(broker.links)):
            broker.links[peer] = Link()
            broker.links[peer].passage.detour = broker.detours.get(peer, STRAIGHT)
            self._dial(name, peer, broker, DIAL_US)

    def _change_detours(self, address: Address, effect: DetoursChanged) -> None:
        name = address.partition("/")[2]
        broker = self.brokers[name]
        broker.detours = dict(effect.around)
        for peer, link in broker.links.items():
            link.passage.detour = broker.detours.get(peer, STRAIGHT)
            self._drain(name, peer, broker, link)

    def _measure(self, address: Address, effect: MeasureLinks) -> None:
        name = address.partition("/")[2]
        self._world.at(self._world.now_us + 150_000, partial(self._measured, name, self.brokers[name]))

    def _measured(self, name: str, broker: Broker) -> None:
        if self.brokers[name] is broker:
            self._tell(name, broker, asked=True)

    def _dispatch(self, address: Address, effect: AwaitDispatch) -> None:
        self._world.post(address, Dispatched(position=effect.position, cause=effect.cause))
