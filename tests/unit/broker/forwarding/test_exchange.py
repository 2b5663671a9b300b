"""Runs of messages reach everybody as their packets would, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from hypothesis import example, given, settings
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from tests.unit.broker.harness import exchange_of
from tocsin.broker.client import Client
from tocsin.broker.connection.writer import Aliases
from tocsin.broker.forwarding.fanout import NOWHERE, Outbox, OutletSet
from tocsin.broker.links.link import NO_MAXIMUM, Link
from tocsin.core.filters import stored_filter
from tocsin.core.forwarding.table import Subscription
from tocsin.model.network import BrokerInfo, Role, Route, Scope
from tocsin.wire.mqtt.codec import Decoder, PublishRun, encode
from tocsin.wire.mqtt.connect import V5, V311, Version

PEERS = [
    BrokerInfo("near", "north", Role.EDGE, "127.0.0.1", 1),
    BrokerInfo("far", "south", Role.ROUTING, "127.0.0.1", 2),
]


class End:
    """A client or a peer that keeps what it gets. ``info`` and ``reachable`` are a peer's."""

    descriptor = NOWHERE
    reachable = True
    quiet = False
    full = False

    def __init__(
        self,
        client_id: str,
        *,
        version: Version = V5,
        send_max_bytes: int = NO_MAXIMUM,
        aliases: int = 0,
        info: BrokerInfo | None = None,
    ) -> None:
        self.client_id = client_id
        self.version = version
        self.send_max_bytes = send_max_bytes
        self.info = info
        self.group = OutletSet(self)
        self.got = b""
        self._aliases = Aliases(aliases)

    @property
    def outlet(self) -> End:
        return self

    @property
    def takes_aliases(self) -> bool:
        return bool(self._aliases)

    def may_receive(self, topic: str) -> bool:
        return True

    def aliased(self, frame: bytes) -> bytes:
        return self._aliases.of(frame)

    def deliver(self, data: bytes, messages: int) -> None:
        self.got += data

    def spill(self, data: bytes) -> None:
        raise AssertionError("it has no descriptor")

    def open(self) -> None:
        """A link would dial."""


class Broker:
    """An exchange, three clients and two peers."""

    def __init__(self, kinds: list[tuple[Version, int, int]]) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.peers: dict[str, End] = {}
        self.clients = [
            End(f"c{number}", version=version, send_max_bytes=most, aliases=aliases if version == V5 else 0)
            for number, (version, most, aliases) in enumerate(kinds)
        ]
        self.exchange = exchange_of(Outbox(self.waiting.append), self._link)
        self.exchange.links.update({info.id: self._link(info) for info in PEERS})

    def _link(self, info: BrokerInfo) -> Link:
        self.peers[info.id] = End(info.id, info=info)
        return cast(Link, self.peers[info.id])

    def client(self, number: int) -> Client:
        return cast(Client, self.clients[number])

    def end_of_tick(self) -> None:
        waiting, self.waiting[:] = list(self.waiting), []
        for act in waiting:
            act()

    def outcome(self) -> tuple[list[bytes], int, int, int]:
        counts = self.exchange.counts
        got = [each.got for each in (*self.clients, *self.peers.values())]
        return got, counts.published, counts.relayed, counts.dropped


def runs_of(messages: list[tuple[str, int]], version: Version) -> list[PublishRun]:
    """These topics and sizes, as a connection reads them."""
    decoder = Decoder(1 << 16, role="client", version=version)
    for topic in dict.fromkeys(topic for topic, _ in messages):
        decoder.feed(encode(PublishPacket(topic, b"known"), version))  # from now on it is
    stream = b"".join(encode(PublishPacket(topic, b"p" * size), version) for topic, size in messages)
    runs = decoder.feed_runs(stream)
    assert all(isinstance(run, PublishRun) for run in runs)
    return cast("list[PublishRun]", runs)


kinds = st.tuples(
    st.sampled_from((V5, V5, V311)),
    st.sampled_from((NO_MAXIMUM, NO_MAXIMUM, 40, 80)),
    st.sampled_from((0, 0, 2)),
)
numbers = st.integers(0, 2)
filters = st.sampled_from(("a", "a", "b", "+", "$share/g/a"))
subscriptions = st.builds(
    Subscription,
    no_local=st.sampled_from((False, False, True)),
    identifier=st.sampled_from((None, None, 7)),
)
subscribe = st.tuples(st.just("subscribe"), numbers, filters, subscriptions)
route = st.tuples(
    st.just("route"),
    st.builds(Route, st.sampled_from(Scope), st.sampled_from(("near", "far")), filters),
    st.sampled_from((True, True, False)),
)
messages = st.lists(
    st.tuples(st.sampled_from(("a", "a", "b")), st.sampled_from((5, 5, 50))), min_size=1, max_size=5
)
publish = st.tuples(st.just("publish"), numbers, messages)
relay = st.tuples(st.just("relay"), st.sampled_from(("north", "south")), messages)
change = st.one_of(
    subscribe,
    st.tuples(st.just("unsubscribe"), numbers, filters),
    route,
    st.just(("end of tick",)),
)
Step = tuple[object, ...]
chapters = st.tuples(
    st.lists(subscribe, min_size=1, max_size=4),
    st.lists(route, max_size=1),
    st.lists(publish | publish | relay, min_size=1, max_size=3),
    st.lists(change, max_size=2),
    st.lists(publish, max_size=2),
).map(lambda parts: [step for part in parts for step in part])


def tell(broker: Broker, step: Step, *, whole: bool) -> None:
    """Have a broker do something; ``whole``: runs as runs, and else their packets one by one."""
    exchange = broker.exchange
    match step:
        case ("subscribe", int() as number, str() as name, Subscription() as subscription):
            exchange.subscribe(broker.client(number), stored_filter(name), subscription)
        case ("unsubscribe", int() as number, str() as name):
            exchange.unsubscribe(broker.client(number), stored_filter(name))
        case ("route", Route() as changed, True):
            exchange.change_routes([changed], (), PEERS)
        case ("route", Route() as changed, False):
            exchange.change_routes((), [changed], PEERS)
        case ("publish", int() as number, list() as sent):
            for run in runs_of(sent, broker.clients[number].version):
                if whole:
                    exchange.publish_run(broker.client(number), run)
                else:
                    for packet in run.packets():
                        exchange.publish(broker.client(number), run.topic, packet)
        case ("relay", str() as cluster, list() as sent):
            for run in runs_of(sent, V5):
                if whole:
                    exchange.relay_run(cluster, run)
                else:
                    for packet in run.packets():
                        exchange.relay(cluster, run.topic, packet)
        case _:
            broker.end_of_tick()


PLAIN, OLD, NUMBERED = (V5, NO_MAXIMUM, 0), (V311, NO_MAXIMUM, 0), (V5, NO_MAXIMUM, 2)
BOTH: list[Step] = [
    ("subscribe", 1, "a", Subscription()),
    ("subscribe", 2, "a", Subscription()),
    ("publish", 0, [("a", 5), ("a", 5)]),
]


@settings(max_examples=200, deadline=None)
@example([PLAIN, PLAIN, OLD], [BOTH])
@example([PLAIN, PLAIN, NUMBERED], [BOTH])
@given(st.lists(kinds, min_size=3, max_size=3), st.lists(chapters, min_size=1, max_size=2))
def test_a_run_reaches_everybody_as_its_packets_would_one_by_one(
    clients: list[tuple[Version, int, int]], story: list[list[Step]]
) -> None:
    whole, single = Broker(clients), Broker(clients)
    for chapter in story:
        for step in (*chapter, ("end of tick",)):
            tell(whole, step, whole=True)
            tell(single, step, whole=False)
    assert whole.outcome() == single.outcome()
