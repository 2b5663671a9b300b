"""This broker's holdings, for the planner of backups (``wire.summaries``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from tocsin.model.network import BrokerInfo
from tocsin.ports import BusMessage
from tocsin.wire.summaries import PAGE, Summary, decode_ask, encode, name_of

NO_ROOM: Final = 1e-9  # a capacity that nothing fits into; 0 would be no bound


class Fitness(Protocol):
    """How well the machine could take another broker's place."""

    async def run(self) -> None:
        """Look at the machine now and then, until cancelled."""
        ...

    def score(self) -> tuple[float | None, tuple[str, ...]]:
        """From 0 to 1, and what of it is not known; None: nothing is."""
        ...

    def terms(self) -> dict[str, tuple[float, float]]:
        """What the score is made of: value and weight."""
        ...


class Measuring(Protocol):
    """How far other brokers are."""

    def want(self, peers: tuple[BrokerInfo, ...]) -> None:
        """Measure the way to these, unless that is known."""
        ...

    def known(self) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
        """Round trip and bandwidth by peer, and of whom they are not known."""
        ...


class Weighing(msgspec.Struct, frozen=True):
    """What the settings say of a broker's worth to others."""

    capacity: float = 0.0
    weights: Mapping[str, float] = {}  # of everything that a standby is scored by
    need_mbit: float = 0.0
    configuration: str = ""  # the preset of the weights …
    changed: Mapping[str, tuple[float, float]] = {}  # … and what it changed of a standby's: static's, its own


class Summaries:
    """``held`` has the subscriptions and how many clients have each; ``delays`` the round trips over links; ``drains``
    says whether the broker is being emptied: then it has no room for anybody else's clients."""

    def __init__(
        self,
        held: Callable[[], Iterable[tuple[str, int]]],
        weighing: Weighing,
        fitness: Fitness,
        measuring: Measuring,
        delays: Callable[[], dict[str, int]] = dict,
        drains: Callable[[], bool] = lambda: False,
    ) -> None:
        self._held = held
        self._weighing = weighing
        self._fitness = fitness
        self._measuring = measuring
        self._delays = delays
        self._drains = drains
        self._number = 0
        self._pages: list[dict[int, int]] = [{}]

    async def answer(self, request: BusMessage) -> bytes:
        ask = decode_ask(request.payload)
        if ask.peers:
            self._measuring.want(ask.peers)
        if ask.summary != self._number or ask.page == 0:
            self._number += 1
            items = [(name_of(name), count) for name, count in self._held()]
            pages = [dict(items[start : start + PAGE]) for start in range(0, len(items), PAGE)]
            self._pages = pages or [{}]
        page = ask.page if ask.summary == self._number and ask.page < len(self._pages) else 0
        score, problems = self._fitness.score()
        probes, unprobed = self._measuring.known()
        return encode(
            Summary(
                summary=self._number,
                pages=len(self._pages),
                held=self._pages[page],
                capacity=NO_ROOM if self._drains() else self._weighing.capacity,
                resources=score,
                problems=problems,
                terms=self._fitness.terms(),
                delays=self._delays(),
                probes=probes,
                unprobed=unprobed,
                weights=dict(self._weighing.weights),
                need_mbit=self._weighing.need_mbit,
                configuration=self._weighing.configuration,
                changed=dict(self._weighing.changed),
            )
        )
