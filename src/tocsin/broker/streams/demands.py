"""``$wanted/<filter>``: clients that are told whether anybody else wants topics of a filter, and each change of that.

The coordinator says whether other brokers want some (``core.coordination.state``). Whether other clients of this broker
do is counted here (``core.streams.demand``), so that a client's own subscriptions do not count for it. As long as the
coordinator has not answered, a filter counts as wanted: a source that sends in vain does less harm than a silent one.

The messages are at QoS 0, on the topic that is the subscription's own name, with ``%2B`` and
``%23`` for wildcards. A client so slow that messages to it were
dropped is told again. A client that may not publish on the filter any more is told nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

from tocsin.broker.client import Client
from tocsin.core.filters import WantedFilter
from tocsin.core.streams.demand import Demand
from tocsin.model.demand_news import DEMAND_NEWS, DemandNews
from tocsin.model.stream import DEMAND

Tell = Callable[[Client, str, bytes], None]
_NOT_BEGUN: Final = None


class _Question:
    """A filter that somebody here asks about."""

    __slots__ = ("askers", "elsewhere", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.elsewhere: bool | None = None  # whether other brokers want it; None: not known yet
        # Client → what it was told last; None: nothing, as it does not know yet that it is subscribed.
        self.askers: dict[Client, bool | None] = {}


class Demands:
    """The questions of a broker's clients; ``tell`` sends a payload to a client, under the name of a subscription."""

    def __init__(self, demand: Demand[Hashable], tell: Tell) -> None:
        self._demand = demand
        self._tell = tell
        self._questions: dict[str, _Question] = {}  # by id
        self._asked: dict[Client, dict[str, None]] = {}  # client → ids
        self._stale: dict[Client, None] = {}  # the clients to be told again

    @property
    def subscriptions(self) -> int:
        return sum(map(len, self._asked.values()))

    def text(self, query: str) -> str | None:
        """The filter of a question that has no answer yet."""
        question = self._questions.get(query)
        return None if question is None or question.elsewhere is not None else question.pattern

    def is_known(self, query: str) -> bool:
        question = self._questions.get(query)
        return question is not None and question.elsewhere is not None

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, reader: Client, asked: WantedFilter) -> bool:
        """Add a question or start it again; True if nobody here asked it before. ``begin`` follows."""
        question = self._questions.get(asked.id)
        first = question is None
        if question is None:
            question = self._questions[asked.id] = _Question(asked.pattern)
            self._demand.ask(asked.pattern)
        question.askers[reader] = _NOT_BEGUN
        self._asked.setdefault(reader, {})[asked.id] = None
        return first

    def begin(self, reader: Client, query: str) -> None:
        """The client knows that it is subscribed: it is told."""
        question = self._questions.get(query)
        if question is not None and reader in question.askers:
            self._say(question, reader, self._is_wanted(question, reader))

    def withdraw(self, reader: Client, query: str) -> str | None:
        """Remove, if it is there; the question's id if nobody here asks it any more."""
        asked = self._asked.get(reader, {})
        if query not in asked:
            return None
        del asked[query]
        if not asked:
            del self._asked[reader]
            self._stale.pop(reader, None)
        question = self._questions[query]
        del question.askers[reader]
        if question.askers:
            return None
        del self._questions[query]
        self._demand.withdraw(question.pattern)
        return query

    def drop(self, reader: Client) -> tuple[str, ...]:
        """Remove all of a client's; the questions that nobody here asks any more."""
        gone = (self.withdraw(reader, query) for query in tuple(self._asked.get(reader, ())))
        return tuple(query for query in gone if query is not None)

    def lost(self, reader: Client) -> None:
        """Messages to this client were dropped."""
        if reader in self._asked:
            self._stale[reader] = None

    def recover(self, reader: Client) -> None:
        """The client takes messages again."""
        if reader in self._stale:
            del self._stale[reader]
            for query in self._asked[reader]:
                if self._questions[query].askers[reader] is not _NOT_BEGUN:
                    self.begin(reader, query)

    def access_changed(self) -> None:
        """The clients' rights have changed: those that may be told are told again."""
        for query, question in self._questions.items():
            for reader, told in question.askers.items():
                if told is not _NOT_BEGUN:
                    self.begin(reader, query)

    # ── what is wanted ──────────────────────────────────────────────────────────────────────────────────────

    def know(self, query: str, wanted: bool) -> None:
        """The coordinator says whether other brokers want topics of a filter."""
        question = self._questions.get(query)
        if question is not None:
            question.elsewhere = wanted
            self._look(question)

    def stirred(self) -> None:
        """Clients here want other filters than before: look, once for all that happen at a time."""
        asyncio.get_running_loop().call_soon(self.settle)

    def settle(self) -> None:
        for pattern, _, _ in self._demand.settle():
            self._look(self._questions[DEMAND + pattern])

    def _look(self, question: _Question) -> None:
        for reader, told in question.askers.items():
            wanted = self._is_wanted(question, reader)
            if told is not _NOT_BEGUN and told is not wanted:
                self._say(question, reader, wanted)

    def _is_wanted(self, question: _Question, reader: Client) -> bool:
        return question.elsewhere is not False or self._demand.is_wanted(question.pattern, reader)

    def _say(self, question: _Question, reader: Client, wanted: bool) -> None:
        question.askers[reader] = wanted
        name = WantedFilter.about(question.pattern)
        if reader not in self._stale and reader.may_subscribe(name):
            self._tell(reader, name, DEMAND_NEWS.write(DemandNews(question.pattern, wanted)))
