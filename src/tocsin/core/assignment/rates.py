"""The rates of a demand (lam[k], bytes a second for one client) from what brokers have measured.

lam[k] belongs to the subscription, and each broker measures it by its own clients. So it is the mean over all clients
of k at the brokers that know it:

| who knows k | lam[k] |
| --- | --- |
| brokers that measured it by name | the mean of those, by the number of clients |
| brokers that only have it among the rest of theirs | the mean of these rests, by the number of clients |
| only brokers that do not measure: of an earlier release | the mean of all pairs that were measured |

With it eq. 7 follows subscriptions and not the past: a broker whose clients came a moment ago has the load that they
bring, if anybody has measured what they subscribe to.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from tocsin.core.assignment.demand import FIGURE_MAX

Holdings = Mapping[str, Mapping[Any, int]]


class Measured(msgspec.Struct, frozen=True):
    """What one broker says of its subscriptions, in bytes a second for one client."""

    named: Mapping[Any, float]
    rest: float = 0.0  # of a subscription that is not named


def rates(holdings: Holdings, measured: Mapping[str, Measured]) -> dict[Hashable, float]:
    """lam[k] of everything that is held. Empty if nobody measures."""
    named: dict[Hashable, tuple[float, int]] = {}
    others: dict[Hashable, tuple[float, int]] = {}
    for broker, said in measured.items():
        for k, clients in holdings.get(broker, {}).items():
            rate = said.named.get(k)
            kind = others if rate is None else named
            total, count = kind.get(k, (0.0, 0))
            kind[k] = total + clients * _sane(said.rest if rate is None else rate), count + clients
    found = {k: total / count for k, (total, count) in (others | named).items() if count}
    mean = mean_rate(holdings, found, measured)
    for broker, held in holdings.items():
        if broker not in measured:
            for k in held:
                found.setdefault(k, mean)
    return found if measured else {}


def mean_rate(holdings: Holdings, found: Mapping[Hashable, float], measured: Mapping[str, Measured]) -> float:
    """The rate of a (client, subscription) pair, in the mean of the brokers that measure."""
    total, pairs = 0.0, 0
    for broker in measured:
        for k, clients in holdings.get(broker, {}).items():
            total += clients * found.get(k, 0.0)
            pairs += clients
    return total / pairs if pairs else 0.0


def _sane(rate: float) -> float:
    """A figure of another process, within what a demand may have."""
    return min(max(rate, 0.0), FIGURE_MAX) if rate == rate else 0.0
