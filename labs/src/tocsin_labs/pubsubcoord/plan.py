"""The parameters of the experiments: the paper's as far as it says them, and those of a quick form."""

from __future__ import annotations

from typing import Literal

import msgspec

from tocsin_labs.pubsubcoord import paper

Way = Literal["nothing", "drained", "killed", "frozen"]


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

    ways: tuple[Way, ...] = ("nothing", "drained", "killed", "frozen")
    topics: int = 60  # a LAN: as many as two processors can do without being late themselves
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


class Plan(msgspec.Struct, frozen=True):
    """All of them."""

    words: str = "the paper's parameters, shorter"
    seed: int = 1
    wan: Wan = Wan()
    load: Load = Load()
    locality: Locality = Locality()
    failure: Failure = Failure()
    joining: Joining = Joining()


QUICK = Plan(
    words="a quick form with few brokers and topics: its figures are not to be compared with the paper's",
    wan=Wan(lans=2, hubs=2),
    load=Load(warm_s=0.5, settle_s=1.0),
    locality=Locality(topics=(10,), localities=(0.5,), lasts_s=1.5),
    failure=Failure(
        ways=("drained", "killed"), topics=10, before_s=0.5, after_s=3.0, empty_s=3.0, even_s=2.0
    ),
    joining=Joining(joins=(100, 200), rate=200, topics=100, edges=4, publishers=1, hubs=1),
)


def plan(*, quick: bool, seed: int) -> Plan:
    """The plan that the command line asks for."""
    return msgspec.structs.replace(QUICK if quick else Plan(), seed=seed)
