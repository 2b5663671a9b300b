"""The parameters of the experiments: the paper's as far as it says them, and those of a quick form."""

from __future__ import annotations

from typing import Literal

import msgspec

from tocsin_labs.pubsubcoord import paper

Way = Literal["nothing", "moved", "drained", "killed", "frozen"]


class Wan(msgspec.Struct, frozen=True):
    """The emulated network. A lag is that of one direction, so half of the paper's round trips."""

    lans: int = 5
    hubs: int = 5
    lan_lag_s: float = 0.010  # between clients and their edge broker
    wan_lag_s: float = 0.040  # between edge and routing brokers

    def floor_ms(self, locality: float) -> float:
        """The mean that a network without any work of its own would have."""
        return 2e3 * (self.lan_lag_s + (1 - locality) * self.wan_lag_s)


class Load(msgspec.Struct, frozen=True):
    """The traffic: one publisher and one subscriber for each topic."""

    period_s: float = 0.05
    payload_bytes: int = 64
    warm_s: float = 4.0  # after the first message of every topic has come
    settle_s: float = 2.0  # after the last one that counts, for those under way


class Locality(msgspec.Struct, frozen=True):
    """Figure 6."""

    topics: tuple[int, ...] = (60, 80, 100)  # a LAN
    localities: tuple[float, ...] = paper.LOCALITIES
    lasts_s: float = 10.0
    peer: bool = True  # whether NATS with leaf nodes has the same load


class Failure(msgspec.Struct, frozen=True):
    """Hubs that fail under Figure 6's load."""

    ways: tuple[Way, ...] = ("nothing", "moved", "drained", "killed", "frozen")
    topics: int = 60  # a LAN: as many as two processors can do without being late themselves
    moved_topics: int = 100  # where every slot moves: 10 000 messages a second
    locality: float = 0.1
    before_s: float = 3.0  # of each case, until something happens
    after_s: float = 12.0
    frozen_s: float = 6.0
    empty_s: float = 30.0  # at most, from an order to drain until the hub is empty
    even_s: float = 30.0  # at most, until all hubs carry their part


class Joining(msgspec.Struct, frozen=True):
    """Figure 7c."""

    joins: tuple[int, ...] = (2_000, 4_000, 6_000, 8_000, 10_000)
    rate: int = 1_000  # a second
    topics: int = 1_000
    edges: int = 20  # brokers without clients, each in a cluster of its own
    publishers: int = 2  # further ones, whose clients publish on the topics
    hubs: int = 2


class Deadline(msgspec.Struct, frozen=True):
    """Figure 8 and Table 1."""

    delays_s: tuple[float, ...] = (0.030, 0.050, 0.075, 0.100, 0.125)  # of both links of the single path
    losses: tuple[float, ...] = (0.0, 0.01)
    near: tuple[float, float] = (0.030, 0.0)  # a link of kind A: delay and loss, in each direction
    far: tuple[float, float] = (0.250, 0.01)  # of kind B
    cases: int = 8  # of Table 1
    budgets_s: tuple[float, ...] = (0.050, 0.100, 0.300)  # a case has the least that its best way can keep
    known_s: float = 25.0  # in which brokers find how long links take, before messages count
    lasts_s: float = 75.0
    rest_s: float = 10.0  # before that, without messages
    more_s: float = 15.0  # with further topics on the same links
    load: Load = Load(warm_s=5.0, settle_s=5.0)


class Topics(msgspec.Struct, frozen=True):
    """Figures 7a and 7d, on real brokers; ``networks``: topics a network, in virtual time."""

    topics: tuple[int, ...] = (20, 50, 100, 150, 200)
    readers: tuple[int, ...] = (2, 5, 10)
    lans: int = 5  # of subscribers, to find what a further broker costs
    others: int = 50  # topics of those with more than one subscriber
    lasts_s: float = 8.0
    networks: tuple[int, ...] = (20, 50, 100, 150, 200)


class Cloud(msgspec.Struct, frozen=True):
    """The paper's network, in virtual time."""

    sources: int = 20  # edge brokers of publishers
    targets: int = 100  # of subscribers
    hubs: int = 40
    networks: int = 10  # that want each topic
    lasts_s: float = 1.0


class Hubs(msgspec.Struct, frozen=True):
    """Figures 7b and 7e: routing brokers that are held to a share of a processor."""

    hubs: tuple[int, ...] = (1, 2, 4, 8)
    share: float = 0.025  # of a processor, that a hub may use
    topics: int = 400
    rate: float = 1_800.0  # messages a second at first, for one hub
    step: float = 1.12  # from one rate to the next
    lasts_s: float = 2.5  # of each rate
    rates: int = 20  # at most
    added_s: float = 24.0  # for which the course is followed after hubs were added
    virtual: tuple[int, ...] = (5, 10, 20, 40)
    topics_each: int = 100  # a network, in virtual time


class Plan(msgspec.Struct, frozen=True):
    """All of them."""

    words: str = "the paper's parameters, shorter"
    seed: int = 1
    wan: Wan = Wan()
    load: Load = Load()
    locality: Locality = Locality()
    failure: Failure = Failure()
    joining: Joining = Joining()
    deadline: Deadline = Deadline()
    topics: Topics = Topics()
    hubs: Hubs = Hubs()
    cloud: Cloud = Cloud()


QUICK = Plan(
    words="a quick form with few brokers and topics: its figures are not to be compared with the paper's",
    wan=Wan(lans=2, hubs=2),
    load=Load(warm_s=0.5, settle_s=1.0),
    locality=Locality(topics=(10,), localities=(0.5,), lasts_s=1.5),
    failure=Failure(
        ways=("moved", "drained", "killed"), topics=10, moved_topics=10,
        before_s=0.5, after_s=3.0, empty_s=3.0, even_s=2.0,
    ),
    joining=Joining(joins=(100, 200), rate=200, topics=100, edges=4, publishers=1, hubs=1),
    topics=Topics(topics=(5, 10, 20), readers=(2,), lans=2, others=5, lasts_s=1.0, networks=(10, 20)),
    cloud=Cloud(sources=2, targets=6, hubs=3, networks=2, lasts_s=0.3),
    hubs=Hubs(
        hubs=(1, 2), share=0.1, topics=20, rate=200.0, step=2.0, lasts_s=0.7, rates=2, added_s=5.0, virtual=(2, 3),
        topics_each=10,
    ),
    deadline=Deadline(
        delays_s=(0.030,), near=(0.010, 0.0), far=(0.050, 0.01), cases=2, budgets_s=(0.030,), known_s=6.0,
        rest_s=1.0, more_s=2.0, lasts_s=3.0,
        load=Load(warm_s=1.0, settle_s=1.0),
    ),
)  # fmt: skip


def plan(*, quick: bool, seed: int) -> Plan:
    """The plan that the command line asks for."""
    return msgspec.structs.replace(QUICK if quick else Plan(), seed=seed)
