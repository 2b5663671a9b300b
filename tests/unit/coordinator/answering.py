"""A broker that answers for its summary, without the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tocsin.broker.survival.summary import Summaries, Weighing
from tocsin.core.forwarding.rates import Rates
from tocsin.model.network import BrokerInfo

Terms = dict[str, tuple[float, float]]


class Machine:
    """How fit it is, and how far others are, as a test says."""

    def __init__(
        self,
        score: float | None,
        problems: tuple[str, ...],
        terms: Terms,
        standby_terms: Terms | None = None,
    ) -> None:
        self._score, self._problems, self._terms = score, problems, terms
        self._standby_terms = terms if standby_terms is None else standby_terms
        self.wanted: list[str] = []
        self.probes: dict[str, tuple[int, int]] = {}

    async def run(self) -> None: ...

    def score(self, *, standby: bool = False) -> tuple[float | None, tuple[str, ...]]:
        return self._score, self._problems

    def terms(self, *, standby: bool = False) -> Terms:
        return self._standby_terms if standby else self._terms

    def busy(self, carried: float) -> float:
        return 0.0

    def want(self, peers: tuple[BrokerInfo, ...]) -> None:
        self.wanted += [each.id for each in peers]

    def known(self) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
        return self.probes, {}


def summaries_of(
    held: Callable[[], Iterable[tuple[str, int]]] = tuple,
    *,
    capacity: float = 0.0,
    score: float | None = None,
    problems: tuple[str, ...] = (),
    terms: Terms | None = None,
    weights: Mapping[str, float] | None = None,
    machine: Machine | None = None,
    capacity_bytes_per_s: float = 0.0,
    drains: bool = False,
    rates: Rates | None = None,
) -> Summaries:
    here = machine or Machine(score, problems, terms or {})
    weighing = Weighing(capacity, weights or {}, capacity_bytes_per_s=capacity_bytes_per_s)
    return Summaries(held, weighing, here, here, drains=lambda: drains, rates=lambda: rates or Rates())
