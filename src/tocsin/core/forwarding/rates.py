"""The data rates of subscriptions: lam[k] of the REAPS paper (eq. 7), as one broker measures it.

A rate is an average over the past in which what is older counts less, by a factor e for each OVER_US:

    rate(now) = Σ bytes · exp(−(now − t) / τ) / τ        / (1 − exp(−age / τ))

The last factor is for a subscription that is younger than τ: without it, one that began a minute ago with τ of five
would have a fifth of its rate. An age below AGE_LEAST_US counts as that, lest a first message be taken for a stream of
them.

The largest by what they bring to all their clients are kept by name, NAMED_MAX of them; the others are one sum.
Bytes are kept multiplied by exp((t − t₀) / τ) (*forward decay*), so that two are compared, and a sum is made, without
looking at when each was counted; t₀ moves before the factor grows large.

Invariants: a kept subscription has at least as many bytes as one that was left out at the last trim; what is left out
is in ``_rest``, and there it stays: a subscription that grows is kept from then on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import nlargest
from typing import Final

import msgspec

from tocsin.core.forwarding.tallies import Count

OVER_US: Final = 300_000_000  # τ: five plans of backups, so that no single burst moves a backup
AGE_LEAST_US: Final = (
    60_000_000  # a message that comes once an hour counts five times too much at first, not ten
)
NAMED_MAX: Final = 4_096  # about 1 MB
_MOVE: Final = 30.0  # how many τ after t₀ it moves: exp(30) is far from what a float cannot hold
_NOTHING: Final = 1.0  # byte, of the average: no rate is left


class Rates(msgspec.Struct, frozen=True):
    """Bytes a second, at one time."""

    named: dict[str, float] = {}  # subscription → what each of its clients gets
    rest: float = 0.0  # what all clients of all other subscriptions get together


class _Flow:
    """A subscription by name."""

    __slots__ = ("bytes", "clients", "since_us")

    def __init__(self, since_us: int) -> None:
        self.bytes = 0.0  # to each client, times the factor
        self.clients = 1  # at the last count
        self.since_us = since_us  # nothing was counted before

    @property
    def weight(self) -> float:
        return self.bytes * self.clients


class DeliveryRates:
    """The rates of one broker's subscriptions. ``most`` are kept by name."""

    def __init__(self, now_us: int, most: int = NAMED_MAX, over_us: int = OVER_US) -> None:
        self._most = most
        self._over_us = over_us
        self._begun_us = now_us
        self._zero_us = now_us  # t₀
        self._counted_us = now_us  # everything up to then was counted
        self._flows: dict[str, _Flow] = {}
        self._rest = 0.0

    def __len__(self) -> int:
        return len(self._flows)

    def count(self, counts: Iterable[Count], now_us: int) -> None:
        """Add what was counted since the last ``counted``."""
        factor = self._factor(now_us)
        flows = self._flows
        for name, each_bytes, clients in counts:
            flow = flows.get(name)
            if flow is None:
                flow = flows[name] = _Flow(self._counted_us)
            flow.bytes += each_bytes * factor
            flow.clients = clients
        if len(flows) > 2 * self._most:
            self._trim(factor)

    def counted(self, now_us: int) -> None:
        """Everything that was delivered up to now has been counted."""
        self._counted_us = now_us
        self._trim(self._factor(now_us))

    def look(self, now_us: int) -> Rates:
        """The rates now."""
        factor = self._factor(now_us)
        self._trim(factor)
        named = {
            name: flow.bytes / factor * self._part(now_us - flow.since_us)
            for name, flow in self._flows.items()
        }
        return Rates(named, self._rest / factor * self._part(now_us - self._begun_us))

    def _part(self, age_us: int) -> float:
        """By what an average of bytes is multiplied to be a rate."""
        seen = -math.expm1(-max(age_us, AGE_LEAST_US) / self._over_us)
        return 1_000_000 / (self._over_us * seen)

    def _trim(self, factor: float) -> None:
        """Forget what is nothing any more, and keep the largest of the others."""
        flows = self._flows
        for name in [name for name, flow in flows.items() if flow.weight < _NOTHING * factor]:
            del flows[name]
        if len(flows) > self._most:
            kept = dict(nlargest(self._most, flows.items(), key=lambda item: (item[1].weight, item[0])))
            self._rest += math.fsum(flow.weight for name, flow in flows.items() if name not in kept)
            self._flows = kept

    def _factor(self, now_us: int) -> float:
        past = (now_us - self._zero_us) / self._over_us
        if past > _MOVE:
            shrink = math.exp(-past)
            for flow in self._flows.values():
                flow.bytes *= shrink
            self._rest *= shrink
            self._zero_us, past = now_us, 0.0
        return math.exp(past)
