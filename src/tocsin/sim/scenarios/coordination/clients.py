"""Clients of the brokers: they subscribe, ask, publish with metadata, come, go and move, at random."""

from __future__ import annotations

from collections.abc import Callable

from tocsin.core.coordination.participant.signals import InterestsChanged, QueriesChanged
from tocsin.model.network import Address
from tocsin.model.stream import PERMANENT, Value
from tocsin.query import parse
from tocsin.sim.scenarios.coordination.shells import Message, Shell, Shells
from tocsin.sim.world import World
from tocsin.wire.internal.commands import ClientAway, ClientBack, ClientGone, Streams

QUERIES = tuple(
    (parsed.id, parsed.text)
    for parsed in map(
        parse,
        (
            "kind = 'lamp'",
            "room = 1 OR room = 2",
            "EXISTS mark AND NOT kind = 'door'",
            "kind IN ('lamp', 'door') AND room > 1",
            "cluster = 'north'",
        ),
    )
)
FILTERS = ("a", "a/#", "b/+", "c")
TOPICS = ("a", "a/x", "b/y", "c", "d")
KINDS = ("lamp", "door", "heater")
NAMES = ("anna", "ben", "cleo")
EXPIRIES = (0, 0, 3, 60)
KEEP_S = 8  # short, so that metadata are forgotten in a run


class Client:
    """One client that publishes."""

    def __init__(self) -> None:
        self.broker: Address | None = None
        self.shell: Shell | None = None  # of the broker's process to which it connected
        self.expiry_s = 0
        self.epoch = 0
        self.topics: dict[str, None] = {}


class Clients:
    """All of them, and what they do: ``actions`` times within ``until_us``."""

    def __init__(self, world: World, shells: Shells, actions: int, until_us: int) -> None:
        self.clients = {name: Client() for name in NAMES}
        self.marks = 0  # each change of metadata has its own mark
        self.messages: list[Message] = []
        self.changed_us: dict[str, int] = {}  # topic → when anybody said anything of it last
        self._world = world
        self._shells = shells
        self._brokers = tuple(shells.infos)
        self._chance = world.chances.of("clients")
        acts: tuple[tuple[Callable[[], None], int], ...] = (
            (self._subscribe, 2),
            (self._ask, 3),
            (self._publish, 6),
            (self._describe, 2),
            (self._disconnect, 2),
            (self._return, 2),
        )
        for _ in range(actions):
            world.at(self._chance.below(until_us), self._chance.weighted(acts))

    def _subscribe(self) -> None:
        broker, text = self._chance.one_of(self._brokers), self._chance.one_of(FILTERS)
        wants = self._chance.below(3) > 0  # more come than go, so that there is something to agree on
        event = InterestsChanged(
            added=(text,) if wants else (),
            removed=() if wants else (text,),
            cause=f"{broker}:{'+' if wants else '-'}{text}",
        )
        self._world.post(broker, event)  # lost if the broker is away: then so is the client

    def _ask(self) -> None:
        broker, (query, text) = self._chance.one_of(self._brokers), self._chance.one_of(QUERIES)
        if self._chance.below(4):
            self._world.post(broker, QueriesChanged(added=((query, text),), cause=f"{broker}:?{text}"))
        elif self._world.post(broker, QueriesChanged(removed=(query,), cause=f"{broker}:!{text}")):
            self._shells.drop(broker, query)

    def _diff(self) -> dict[str, Value | None] | None:
        chance = self._chance
        if not chance.below(12):
            return None
        self.marks += 1
        diff: dict[str, Value | None] = {"mark": self.marks}
        if chance.below(2):
            diff["kind"] = chance.one_of((*KINDS, None))
        if chance.below(2):
            diff["room"] = chance.between(1, 3)
        if not chance.below(8):
            diff[PERMANENT] = not chance.below(2)
        return diff

    def _publish(self) -> None:
        """A client says something of a stream and publishes on it, and then once more without a change."""
        name = self._chance.one_of(NAMES)
        client = self.clients[name]
        if not self._is_connected(client):
            self._connect(client, self._chance.one_of(self._brokers), self._chance.one_of(EXPIRIES))
        topic, diff = self._chance.one_of(TOPICS), self._diff()
        position = self._chance.between(0, 50)
        change = Streams(name, client.expiry_s, ((topic, diff),), position, client.epoch)
        assert client.broker is not None
        if not self._shells.say(client.broker, change):
            client.shell = None
            return
        client.topics[topic] = None
        self.changed_us[topic] = self._world.now_us
        message = Message(topic, len(self.messages), self._world.now_us)
        self.messages.append(message)
        self._shells.publish(client.broker, message)

    def _describe(self) -> None:
        """Somebody who does not publish on it says something of a stream."""
        broker, topic = self._chance.one_of(self._brokers), self._chance.one_of(TOPICS)
        if self._shells.say(broker, Streams("", 0, ((topic, self._diff()),))):
            self.changed_us[topic] = self._world.now_us

    def _disconnect(self) -> None:
        name = self._chance.one_of(NAMES)
        client = self.clients[name]
        if not self._is_connected(client):
            return
        assert client.broker is not None
        position = self._chance.between(0, 50)
        if client.expiry_s and self._chance.below(3):
            self._shells.say(client.broker, ClientAway(name, client.expiry_s, position, client.epoch))
        else:
            self._shells.say(client.broker, ClientGone(name, position, client.epoch))
            client.topics.clear()
        self._note_end(client)
        client.shell = None

    def _return(self) -> None:
        """A client connects somewhere, perhaps while its old broker still believes to have it."""
        name = self._chance.one_of(NAMES)
        client, broker = self.clients[name], self._chance.one_of(self._brokers)
        before = client.broker if self._is_connected(client) else None
        epoch = client.epoch
        if before is not None and not client.expiry_s:
            client.topics.clear()
        self._connect(client, broker, client.expiry_s)
        self._note_end(client)
        self._shells.say(broker, ClientBack(name, client.expiry_s, client.epoch))
        if before is not None and before != broker:
            self._shells.say(before, ClientGone(name, 0, epoch))

    def _connect(self, client: Client, broker: Address, expiry_s: int) -> None:
        client.epoch += 1
        client.broker, client.expiry_s = broker, expiry_s
        client.shell = self._shells.shells.get(broker)
        client.topics = {}  # a broker hears of a topic at the first message on this connection

    def _is_connected(self, client: Client) -> bool:
        """Whether it is still there: it is not if its broker has ended."""
        return client.shell is not None and self._shells.shells.get(client.broker or "") is client.shell

    def _note_end(self, client: Client) -> None:
        for topic in TOPICS:
            self.changed_us[topic] = self._world.now_us

    def connected(self) -> dict[str, Client]:
        return {name: client for name, client in self.clients.items() if self._is_connected(client)}
