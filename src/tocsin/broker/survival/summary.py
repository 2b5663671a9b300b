"""This broker's holdings, for the planner of backups (``wire.internal.summaries``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from tocsin.core.forwarding.rates import Rates
from tocsin.model.network import BrokerInfo
from tocsin.ports import BusMessage
from tocsin.wire.internal.summaries import PAGE, Summary, decode_ask, encode, name_of

NO_ROOM: Final = 1e-9  # a capacity that nothing fits into; 0 would be no bound


class Fitness(Protocol):
    """How well the machine could take another broker's place."""

    async def run(self) -> None:
        """Look at the machine now and then, until cancelled."""
        ...

    def score(self, *, standby: bool = False) -> tuple[float | None, tuple[str, ...]]:
        """From 0 to 1, and what of it is not known; None: nothing is. ``standby``: as that of a standby."""
        ...

    def terms(self, *, standby: bool = False) -> dict[str, tuple[float, float]]:
        """What the score is made of: value and weight."""
        ...

    def busy(self, carried: float) -> float:
        """The share of the time since the last call in which the process worked, or waited for its turn; ``carried``
        are messages a second since then. The machine of a simulated broker is as busy as those make it."""
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
    capacity_bytes_per_s: float = 0.0


class _Page(NamedTuple):
    """A part of what is held."""

    held: dict[int, int]
    rates: dict[int, float]


class Summaries:
    """``held`` has the subscriptions and how many clients have each; ``rates`` their data rates; ``delays`` the round
    trips over links; ``drains`` says whether the broker is being emptied: then it has no room for anybody else's
    clients."""

    def __init__(
        self,
        held: Callable[[], Iterable[tuple[str, int]]],
        weighing: Weighing,
        fitness: Fitness,
        measuring: Measuring,
        delays: Callable[[], dict[str, int]] = dict,
        drains: Callable[[], bool] = lambda: False,
        rates: Callable[[], Rates] = Rates,
    ) -> None:
        self._held = held
        self._weighing = weighing
        self._fitness = fitness
        self._measuring = measuring
        self._delays = delays
        self._drains = drains
        self._number = 0
        self._rates = rates
        self._pages: list[_Page] = [_Page({}, {})]
        self._rest = 0.0  # the rate of a client of a subscription that no page has a rate of

    async def answer(self, request: BusMessage) -> bytes:
        ask = decode_ask(request.payload)
        if ask.peers:
            self._measuring.want(ask.peers)
        if not ask.standby and (ask.summary != self._number or ask.page == 0):
            self._number += 1
            self._write()
        page = ask.page if ask.summary == self._number and ask.page < len(self._pages) else 0
        held, pages = (_Page({}, {}), 1) if ask.standby else (self._pages[page], len(self._pages))
        score, problems = self._fitness.score(standby=ask.standby)
        probes, unprobed = self._measuring.known()
        weighing, drains = self._weighing, self._drains()
        in_bytes = weighing.capacity_bytes_per_s
        return encode(
            Summary(
                summary=self._number,
                pages=pages,
                held=held.held,
                capacity=NO_ROOM if drains else weighing.capacity,
                resources=score,
                problems=problems,
                terms=self._fitness.terms(standby=ask.standby),
                delays=self._delays(),
                probes=probes,
                unprobed=unprobed,
                weights=dict(weighing.weights),
                need_mbit=weighing.need_mbit,
                configuration=weighing.configuration,
                changed=dict(weighing.changed),
                rates=held.rates,
                rest=self._rest,
                capacity_bytes_per_s=NO_ROOM if drains and in_bytes else in_bytes,
            )
        )

    def _write(self) -> None:
        """Make the pages anew."""
        items, measured = list(self._held()), self._rates()
        named = measured.named
        unnamed = sum(count for name, count in items if name not in named)
        self._rest = measured.rest / unnamed if unnamed else 0.0
        self._pages = [_Page({}, {})] if not items else []
        for start in range(0, len(items), PAGE):
            part = [(name, name_of(name), count) for name, count in items[start : start + PAGE]]
            self._pages.append(
                _Page(
                    {key: count for _, key, count in part},
                    {key: named[name] for name, key, _ in part if name in named},
                )
            )
