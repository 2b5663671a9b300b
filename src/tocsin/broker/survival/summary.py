"""This broker's holdings, for the planner of backups (``wire.summaries``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tocsin.ports import BusMessage
from tocsin.wire.summaries import PAGE, Summary, decode_ask, encode, name_of


class Summaries:
    """``held`` has the subscriptions and how many clients have each; ``resources`` the score of the machine, and what
    of that is not known; ``terms`` what the score is made of; ``delays`` how far other brokers are."""

    def __init__(
        self,
        held: Callable[[], Iterable[tuple[str, int]]],
        capacity: float,
        resources: Callable[[], tuple[float | None, tuple[str, ...]]],
        terms: Callable[[], dict[str, tuple[float, float]]] = dict,
        delays: Callable[[], dict[str, int]] = dict,
    ) -> None:
        self._held = held
        self._capacity = capacity
        self._resources = resources
        self._terms = terms
        self._delays = delays
        self._number = 0
        self._pages: list[dict[int, int]] = [{}]

    async def answer(self, request: BusMessage) -> bytes:
        ask = decode_ask(request.payload)
        if ask.summary != self._number or ask.page == 0:
            self._number += 1
            items = [(name_of(name), count) for name, count in self._held()]
            pages = [dict(items[start : start + PAGE]) for start in range(0, len(items), PAGE)]
            self._pages = pages or [{}]
        page = ask.page if ask.summary == self._number and ask.page < len(self._pages) else 0
        score, problems = self._resources()
        held = self._pages[page]
        return encode(
            Summary(
                summary=self._number,
                pages=len(self._pages),
                held=held,
                capacity=self._capacity,
                resources=score,
                problems=problems,
                terms=self._terms(),
                delays=self._delays(),
            )
        )
