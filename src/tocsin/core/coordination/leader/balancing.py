"""Moving connected clients: which broker is being emptied, which is too full, and how many clients go where, when.

Two reasons to move clients:

- **drain**: an operator has ordered that a broker be emptied (``DrainOrders``). The order is a cell in the
  coordinators' table, so it holds until it is undone, whoever leads and whoever restarts. The broker is no refuge and
  no home for others' clients, takes no new ones, and lets its own go. First the clients that are known to follow a
  redirect; after ``grace_us`` all others too. A broker that is recruited as a standby is drained in the same way.
- **balance** (``BalanceRules.enabled``): if the fullest edge broker of a cluster is fuller than the emptiest by more
  than ``threshold``, a **batch** of clients that are known to follow moves from the one to the other: as many as make
  one of the two as full as the brokers of the cluster are in the mean. So each client moves once, also where one broker
  has all and several have none. Then the cluster rests for SETTLE_US, so that the next look counts those who have come.

      even ──difference > threshold──► batch under way ──all allowed to go──► resting ──SETTLE_US──► even
            a broker of the batch is gone, full or drained, or the one is no fuller than the other: even at once

A broker is told with each answer to a beat how many clients it may move now: ``rate`` for each second since it was told
last. An answer that is lost moves nobody, and nobody is moved twice for one answer. The size of a batch is reckoned
once. Reckoned again while clients are on their way, from counts of up to two seconds ago, it would send too many, and
then as many back.

Invariants:

- Nobody is moved to a broker that is being emptied or full, and nobody is moved if there is no other broker.
- Only connected clients are counted and moved. The session of a client that is away is in the store, and stays there.
- A broker is empty when it has said, in one beat, that it takes no new clients and has none. What it said of its
  clients before it had heard of the drain is not believed: they may have come since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tocsin.core.survival.refuges import FULL, RefugePlan
from tocsin.errors import FormatNewer, Malformed
from tocsin.model.network import BrokerInfo, Role
from tocsin.model.versions import Packed
from tocsin.ports import Change
from tocsin.wire.internal.control import Beat, Moves

KEY: Final = "core.drain."  # of the cells of orders, with the broker's name behind
SECOND_US: Final = 1_000_000
SPAN_MAX_US: Final = 2 * SECOND_US  # a broker that was not heard for longer does not move more for that
# After which a broker that does not say whether it takes new clients is believed to take none: it counts its clients
# once a second, and tells of them with the next beat.
UNSAID_US: Final = 3 * SECOND_US
# Between a batch and the next look: longer than clients take to go, and than counts take to tell of them.
SETTLE_US: Final = 10 * SECOND_US


class Order(msgspec.Struct, frozen=True, array_like=True):
    """An operator's order to empty a broker."""

    since_us: int  # by the wall's clock


ORDER: Final = Packed("an order to empty a broker", msgspec.msgpack.Decoder(Order))


class DrainOrders:
    """The brokers that are to be emptied, as the table says."""

    def __init__(self) -> None:
        self.brokers: frozenset[str] = frozenset()
        self._told: set[str] | None = None  # while the table tells everything anew

    def watched(self, change: Change) -> None:
        if change.kind == "reset":
            self._told = set()
        elif change.kind == "ready" and self._told is not None:
            self.brokers, self._told = frozenset(self._told), None
        elif change.key.startswith(KEY):
            broker = change.key.removeprefix(KEY)
            known = set(self.brokers) if self._told is None else self._told
            if change.kind != "put":
                known.discard(broker)
            elif _is_order(change.value):
                known.add(broker)
            if self._told is None:
                self.brokers = frozenset(known)


def _is_order(value: bytes) -> bool:
    """Whether a cell is an order. A server can be made to put its answers there, in JSON, by whoever has stolen the key
    of a role that may not (decision 044)."""
    try:
        ORDER.read(value)
    except (FormatNewer, Malformed):
        return False
    return True


class BalanceRules(msgspec.Struct, frozen=True):
    """What the settings say."""

    enabled: bool = False
    rate: int = 50  # clients a second that one broker lets go
    threshold: int = 200  # thousandths of ``limits.connections_max``
    grace_us: int = 30 * SECOND_US


class Emptying(msgspec.Struct, frozen=True):
    """How far a drain is."""

    broker: str
    clients: int  # that are still connected to it
    here: bool  # the broker is there
    refuses: bool  # it has said that it takes no new clients: from then on their number means something

    @property
    def empty(self) -> bool:
        """Nobody is connected to it, and nobody will be."""
        return not self.here or (self.refuses and not self.clients)


class Heard(msgspec.Struct, frozen=True):
    """What a broker has said of its clients last."""

    incarnation: int
    clients: int
    refuses: bool  # it takes no new ones


class Batch(msgspec.Struct):
    """Clients that move from one broker of a cluster to another."""

    fullest: str
    to: BrokerInfo  # the emptiest
    left: int  # clients that are still to be allowed to go
    rests_until_us: int = 0  # when all were allowed to go: until when the cluster rests


class Balance:
    """The moves of clients that one leader asks for."""

    def __init__(self, orders: DrainOrders, rules: BalanceRules) -> None:
        self._orders = orders
        self._rules = rules
        self._heard: dict[str, Heard] = {}
        self._told_us: dict[str, int] = {}  # broker → when it was told of moves last
        self._began_us: dict[str, int] = {}  # broker → since when it is being emptied, for this leader
        self._batches: dict[str, Batch] = {}  # cluster → the batch that is under way, or was a moment ago
        self.recruits: frozenset[str] = frozenset()  # brokers that are emptied to stand by …
        self.standing_by: frozenset[str] = frozenset()  # … and recruits that do

    @property
    def drained(self) -> frozenset[str]:
        """The brokers that take no clients."""
        return self.ordered | self.recruits | self.standing_by

    @property
    def ordered(self) -> frozenset[str]:
        """Those that an operator has emptied."""
        return self._orders.brokers

    @property
    def clients(self) -> Mapping[str, int]:
        """How many clients brokers have, as they have said."""
        return {broker: each.clients for broker, each in self._heard.items()}

    def heard(self, beat: Beat, now_us: int) -> None:
        """A broker has so many clients, and takes more or not."""
        broker, refuses = beat.broker, beat.refuses
        if refuses is None:
            began_us = self._began_us.get(broker)
            refuses = began_us is not None and now_us - began_us >= UNSAID_US
        self._heard[broker] = Heard(beat.incarnation, beat.clients, refuses and broker in self.drained)

    def emptying(self, members: Mapping[str, int]) -> tuple[Emptying, ...]:
        """The brokers that an operator has emptied, and how far that is. ``members`` are the brokers that are there,
        with their incarnations: what an earlier one said of its clients is over with it."""
        return tuple(self._emptying(each, members.get(each)) for each in sorted(self.ordered))

    def _emptying(self, broker: str, incarnation: int | None) -> Emptying:
        said = self._heard.get(broker)
        if said is None or said.incarnation != incarnation:
            return Emptying(broker, 0, incarnation is not None, False)
        return Emptying(broker, said.clients, True, said.refuses)

    def look(self, brokers: Iterable[BrokerInfo], loads: Mapping[str, int], now_us: int) -> None:
        """Decide from which broker to which clients move, in each cluster."""
        known = {each.id: each for each in brokers}
        for gone in [each for each in self._heard if each not in known]:
            del self._heard[gone]
        self._told_us = {each: at for each, at in self._told_us.items() if each in known}
        self._began_us = {each: at for each, at in self._began_us.items() if each in self.drained}
        if self._rules.enabled:
            self._batches = dict(self._choose(known.values(), loads, now_us))

    def _choose(
        self, brokers: Iterable[BrokerInfo], loads: Mapping[str, int], now_us: int
    ) -> Iterator[tuple[str, Batch]]:
        """The batches that go on, and those that begin."""
        clusters: dict[str, dict[str, BrokerInfo]] = {}
        for each in brokers:
            if each.role == Role.EDGE and each.entrances and each.id not in self.drained and each.id in loads:
                clusters.setdefault(each.cluster, {})[each.id] = each
        for cluster, able in clusters.items():
            batch = self._go_on(self._batches.get(cluster), able, loads, now_us)
            if batch is None:
                batch = self._begin(able, loads)
            if batch is not None:
                yield cluster, batch

    def _go_on(
        self, batch: Batch | None, able: Mapping[str, BrokerInfo], loads: Mapping[str, int], now_us: int
    ) -> Batch | None:
        if batch is None or batch.fullest not in able or batch.to.id not in able:
            return None
        if not batch.left:
            return batch if now_us < batch.rests_until_us else None
        batch.to = able[batch.to.id]  # it may have another address
        load = loads[batch.to.id]
        return batch if load < loads[batch.fullest] and load < FULL else None

    def _begin(self, able: Mapping[str, BrokerInfo], loads: Mapping[str, int]) -> Batch | None:
        ordered = sorted(able, key=lambda each: (loads[each], each))
        emptiest, fullest = ordered[0], ordered[-1]
        if loads[fullest] - loads[emptiest] <= self._rules.threshold:
            return None
        said = self._heard.get(fullest)
        clients = said.clients if said is not None else 0
        total, brokers = sum(loads[each] for each in able), len(able)
        away = min(
            loads[fullest] * brokers - total, total - loads[emptiest] * brokers
        )  # from the mean, so many times
        return Batch(fullest, able[emptiest], max(1, round(away * clients / (brokers * loads[fullest]))))

    def moves(self, broker: BrokerInfo, refuges: RefugePlan, now_us: int) -> Moves | None:
        """What a broker is told with the answer to its beat."""
        if broker.id in self.drained:
            began_us = self._began_us.setdefault(broker.id, now_us)
            to, count = refuges.of(broker), self._allowed(broker.id, now_us)
            others = now_us - began_us >= self._rules.grace_us
            return Moves(True, count if to else 0, to, others, broker.id in self.recruits)
        batch = self._batches.get(broker.cluster)
        if batch is None or batch.fullest != broker.id or not batch.left:
            self._told_us.pop(broker.id, None)
            return None
        left, count = batch.left, min(batch.left, self._allowed(broker.id, now_us))
        batch.left -= count
        batch.rests_until_us = now_us + SETTLE_US
        return Moves(False, count, (batch.to,), left=left)

    def _allowed(self, broker: str, now_us: int) -> int:
        """How many clients a broker may move now."""
        told_us = self._told_us.get(broker, now_us - SECOND_US)
        count = self._rules.rate * min(now_us - told_us, SPAN_MAX_US) // SECOND_US
        if count:
            self._told_us[broker] = now_us
        return count
