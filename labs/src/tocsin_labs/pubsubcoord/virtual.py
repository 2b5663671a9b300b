"""Many brokers in virtual time: the product's routing, and a queue with the measured cost in front of each broker.

Where messages go is what the product decides: its route plan (``core.forwarding.routes``), its placing of slots by
messages a second (``core.tiers.strategies``), and each broker's forwarding table. What a message costs is the model's
(``costs``): a broker has one processor, and works on one message after the other. The network between them has the
delays alone. All topics have the same period, and begin at a time of their own in it (``seed``).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tocsin.core.forwarding.routes import RoutePlan
from tocsin.core.forwarding.table import ForwardingTable
from tocsin.core.tiers.loads import Rate, TierLoad
from tocsin.core.tiers.slots import SLOTS, Slots, gate_of, slot_of
from tocsin.core.tiers.strategies import ACT, Strategy, Wanted
from tocsin.core.tiers.table import SlotTable
from tocsin.core.tiers.ways import TiersKnown
from tocsin.model.network import BrokerInfo, Role, Route
from tocsin_labs.figures import Spread
from tocsin_labs.pubsubcoord.costs import Costs

TIER: Final = "cloud"
ROUNDS: Final = 20  # at most, in which uneven slots are moved
WARM_S: Final = 0.5  # of virtual time, that does not count


class Size(msgspec.Struct, frozen=True):
    """A network, and its load: every topic has one publisher."""

    sources: int  # edge brokers of publishers
    targets: int  # edge brokers of subscribers
    hubs: int
    topics: int
    networks: int  # edge brokers that want each topic, with one subscriber each
    period_s: float
    lan_lag_s: float
    wan_lag_s: float
    lasts_s: float = 1.5


class Virtual(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one network."""

    size: Size
    in_s: float  # messages a second, into the tier …
    out_s: float  # … and out of it
    floor_ms: float
    all_ms: Spread
    source_share: float  # of a processor, in the mean
    hub_share: float
    hub_share_most: float
    target_share: float
    uneven: float  # the most loaded hub, against the mean

    @property
    def is_saturated(self) -> bool:
        """Whether a hub has more to do than it can."""
        return self.hub_share_most >= 1.0


class Layout:
    """Who sends each topic to whom, as the product's cores have it."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.hubs = [f"hub-{number:02}" for number in range(size.hubs)]
        sources = [f"source-{number}" for number in range(size.sources)]
        targets = [f"target-{number}" for number in range(size.targets)]
        self.topics = [f"topic/{number}" for number in range(size.topics)]
        self.source_of = {topic: sources[at % size.sources] for at, topic in enumerate(self.topics)}
        plan = RoutePlan()
        for name in (*sources, *targets):
            plan.join(BrokerInfo(name, f"lan-{name}", Role.EDGE, "127.0.0.1", 1), ())
        for name in self.hubs:
            plan.join(BrokerInfo(name, TIER, Role.ROUTING, "127.0.0.1", 1), ())
        wanted: dict[str, list[str]] = {name: [] for name in targets}
        for at, topic in enumerate(self.topics):
            for turn in range(size.networks):
                wanted[targets[(at + turn * max(1, size.targets // size.networks)) % size.targets]].append(
                    topic
                )
        for name, topics in wanted.items():
            plan.change(name, topics, ())
        for topic, name in self.source_of.items():
            plan.publish(topic, name)
        self.slots = placed(self.hubs, self.topics, 1 / size.period_s)
        known = TiersKnown(tiers={gate_of(TIER): self.slots}, cause="lab")
        self._tables = {name: _table(plan.routes(name), known) for name in (*sources, *self.hubs)}

    def over(self, topic: str) -> tuple[str, ...]:
        """The hubs to which the publisher's broker sends it."""
        return self._tables[self.source_of[topic]].resolve(topic).origin

    def onward(self, hub: str, topic: str) -> tuple[str, ...]:
        """The brokers to which a hub sends it."""
        return self._tables[hub].resolve(topic).transit


def _table(routes: Iterable[Route], known: TiersKnown) -> ForwardingTable[str]:
    table: ForwardingTable[str] = ForwardingTable()
    for route in routes:
        table.add_route(route)
    table.ways.handle(known, 0)
    return table


def placed(hubs: Sequence[str], topics: Iterable[str], messages_s: float) -> Slots:
    """The slots of a tier, placed by what each brings: when its members come, and again while they are uneven."""
    rates = tuple(Rate() for _ in range(SLOTS))
    for topic in topics:
        rates[slot_of(topic)].messages += messages_s
    load, strategy, table = TierLoad(rates), Strategy("messages"), SlotTable()
    slots = table.slots.after(table.follow(hubs))
    wanted = Wanted(slots, tuple(hubs))
    wanted = Wanted(slots.after(strategy.place(wanted, load)), tuple(hubs))
    for _ in range(ROUNDS):
        if strategy.strain(wanted, load) <= ACT:
            break
        wanted = Wanted(wanted.slots.after(strategy.relieve(wanted, load)), tuple(hubs))
    return wanted.slots


class Queue:
    """One broker's processor, which has messages in the order in which they come."""

    def __init__(self) -> None:
        self.free_s = 0.0
        self.busy_s = 0.0

    def done_s(self, comes_s: float, work_s: float) -> float:
        self.free_s = max(self.free_s, comes_s) + work_s
        self.busy_s += work_s
        return self.free_s


Message = tuple[float, float, str, str]  # when it comes, when it was published, where, its topic


def run(size: Size, costs: Costs, seed: int) -> Virtual:
    """Publish for a while, and follow every message."""
    layout = Layout(size)
    queues: dict[str, Queue] = {}
    end_s = WARM_S + size.lasts_s
    to_hubs: list[Message] = []
    for comes_s, published_s, source, topic in sorted(_published(layout, seed, end_s)):
        over = layout.over(topic)
        gone_s = _queue(queues, source).done_s(comes_s, costs.source_s * max(1, len(over)))
        to_hubs += [(gone_s + size.wan_lag_s, published_s, hub, topic) for hub in over]
    to_targets: list[Message] = []
    for comes_s, published_s, hub, topic in sorted(to_hubs):
        onward = layout.onward(hub, topic)
        gone_s = _queue(queues, hub).done_s(comes_s, costs.hub_work_s(len(onward)))
        to_targets += [(gone_s + size.wan_lag_s, published_s, target, topic) for target in onward]
    latencies = []
    for comes_s, published_s, target, _ in sorted(to_targets):
        gone_s = _queue(queues, target).done_s(comes_s, costs.target_work_s(1))
        if published_s >= WARM_S:
            latencies.append(1e3 * (gone_s + size.lan_lag_s - published_s))
    return _found(size, queues, latencies, len(to_hubs) / end_s, len(to_targets) / end_s, end_s)


def _published(layout: Layout, seed: int, end_s: float) -> list[Message]:
    chance, size = random.Random(seed), layout.size
    found: list[Message] = []
    for topic in layout.topics:
        at_s = chance.random() * size.period_s
        while at_s < end_s:
            found.append((at_s + size.lan_lag_s, at_s, layout.source_of[topic], topic))
            at_s += size.period_s
    return found


def _queue(queues: dict[str, Queue], name: str) -> Queue:
    if name not in queues:
        queues[name] = Queue()
    return queues[name]


def _found(
    size: Size, queues: Mapping[str, Queue], latencies: list[float], in_s: float, out_s: float, end_s: float
) -> Virtual:
    spread = Spread.of(latencies)
    assert spread is not None, "every topic is wanted"
    shares = {
        kind: [each.busy_s / end_s for name, each in queues.items() if name.startswith(kind)]
        for kind in ("source", "hub", "target")
    }
    hubs = sorted(shares["hub"]) + [0.0] * (size.hubs - len(shares["hub"]))
    mean = sum(hubs) / size.hubs
    return Virtual(
        size=size,
        in_s=in_s,
        out_s=out_s,
        floor_ms=2e3 * (size.lan_lag_s + size.wan_lag_s),
        all_ms=spread,
        source_share=sum(shares["source"]) / size.sources,
        hub_share=mean,
        hub_share_most=max(hubs),
        target_share=sum(shares["target"]) / size.targets,
        uneven=max(hubs) / mean,
    )
