"""How long it takes until the subscribers of lost brokers have what they missed: a model of one broker that stands in.

The time begins when the network knows of the loss (detection has its own figures). Then, in virtual time:

    word ──► subscriptions that are lacking are created ──► results are fetched ──┐
      └────► subscribers are sent there, and let in ──────────────────────────────┴──► results are delivered

Each arrow is a queue: whatever is ready first is served first, at a rate. Nothing of it is measured here: the paper has
no numbers for it, and a machine of 100 brokers is not at hand. The rates are said beside each figure, and the shape is
what is to be looked at. Takeovers and missing subscriptions are decided by the product's code, not by a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Rates(msgspec.Struct, frozen=True):
    """How quick everything is."""

    # One way; half of the round trips of 20 ms inside a cluster and 80 ms between clusters.
    near_s: float = 0.010
    far_s: float = 0.040
    created_s: float = 500.0  # subscriptions a second: one after the other, each a durable write of 2 ms
    bulk_s: float = (
        15_000.0  # the same written in bulk, at the least that a store of three nodes was seen to take
    )
    admitted_s: float = 2_000.0  # subscribers a second that a broker lets in
    fetched_bytes_s: float = 125e6  # from the backend: a gigabit a second
    delivered_bytes_s: float = 125e6  # to subscribers, same


class Taken(msgspec.Struct, frozen=True):
    """One broker's subscribers, as the stand-in has to serve them."""

    remote: bool  # by the remote backup
    subscribers: Sequence[int]  # the k of each
    due: Mapping[int, int]  # k → results that its subscribers are to get: those in (eta, tau]


class Recovered(msgspec.Struct, frozen=True):
    """Seconds, of so many subscribers."""

    subscribers: int
    sum_s: float
    longest_s: float


def recover(
    taken: Sequence[Taken], lacking: frozenset[int], sizes: Sequence[int], rates: Rates, *, bulk: bool
) -> Recovered:
    """Everything that one broker stands in for; ``lacking``: the k that it has to create."""
    word_s = max(rates.far_s if each.remote else rates.near_s for each in taken)
    due: dict[int, int] = {}
    for each in taken:
        for k in each.subscribers:
            due[k] = max(due.get(k, 0), each.due.get(k, 0))
    ready_s = _created(due, lacking, word_s, rates.bulk_s if bulk else rates.created_s)
    fetched_s = _fetched(due, ready_s, sizes, rates.fetched_bytes_s)
    waiting: list[tuple[float, int]] = []  # when a subscriber is in and its results are there; their bytes
    for order, (hop_s, k, results) in enumerate(_arrivals(taken, rates)):
        # There and back for the connection, after the word; then the door.
        in_s = word_s + 2 * hop_s + (order + 1) / rates.admitted_s
        waiting.append((max(in_s, fetched_s[k]), results * sizes[k]))
    waiting.sort()
    free_s = total_s = longest_s = 0.0
    for at_s, amount in waiting:
        done_s = at_s
        if amount:
            free_s = done_s = max(free_s, at_s) + amount / rates.delivered_bytes_s
        total_s += done_s
        longest_s = max(longest_s, done_s)
    return Recovered(len(waiting), total_s, longest_s)


def _created(due: Mapping[int, int], lacking: frozenset[int], word_s: float, rate: float) -> dict[int, float]:
    """When each k is there: at once, or after those that are created before it."""
    ready: dict[int, float] = {}
    created = 0
    for k in sorted(due):
        created += k in lacking
        ready[k] = word_s + (created / rate if k in lacking else 0.0)
    return ready


def _fetched(
    due: Mapping[int, int], ready_s: Mapping[int, float], sizes: Sequence[int], rate: float
) -> dict[int, float]:
    """When the results of each k are there: one k after the other, in the order in which they are ready."""
    fetched: dict[int, float] = {}
    free_s = 0.0
    for k in sorted(due, key=lambda each: (ready_s[each], each)):
        fetched[k] = ready_s[k]
        if due[k]:
            free_s = fetched[k] = max(free_s, ready_s[k]) + due[k] * sizes[k] / rate
    return fetched


def _arrivals(taken: Sequence[Taken], rates: Rates) -> list[tuple[float, int, int]]:
    """(one way, k, results due) of each subscriber, those of all brokers by turns: all are sent at once."""
    found: list[tuple[float, int, int]] = []
    longest = max(len(each.subscribers) for each in taken)
    for number in range(longest):
        for each in taken:
            if number < len(each.subscribers):
                k = each.subscribers[number]
                hop_s = rates.far_s if each.remote else rates.near_s
                found.append((hop_s, k, each.due.get(k, 0)))
    return found
