"""What clients are told of latency budgets: messages that came late, and topics that get no further ways.

    $qos/late/TOPIC        to a subscriber: messages that came later than its budget, or were given up; to publishers:
                           the same of one broker's subscribers together
    $qos/admission/TOPIC   to both: what is expected to be late, where a topic does not get the ways that it should have

Late messages are told once a second at most for each subscription and topic; every one of them is told in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from tocsin.broker.client import Client
from tocsin.broker.quality.news import (
    ADMISSION,
    ADMISSION_NEWS,
    LATE,
    LATE_NEWS,
    LATE_THERE_NEWS,
    Admission,
    LateMessages,
    LateThere,
)
from tocsin.core.forwarding.table import Wanted
from tocsin.core.quality.lateness import TELL_US, Late, Lateness
from tocsin.core.quality.separation import SPACE, key_of
from tocsin.core.quality.texts import request_of, value_text
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.internal.quality import Given, Seen

TOLD_MAX: Final = (
    10_000  # pairs of a topic and a broker that were told left out; the oldest is forgotten first
)


class Publishers(Protocol):
    """The clients that publish here."""

    def publishing(self, topic: str) -> Iterable[Client]: ...


class BudgetNews:
    """Tells one broker's clients. ``inform`` sends news to a client that asked for them, ``number_of`` and
    ``client_of`` know clients with requests by numbers, ``find`` those who want a topic."""

    def __init__(
        self,
        inform: Callable[[Client, str, bytes], None],
        number_of: Callable[[Client], str],
        client_of: Callable[[str], Client | None],
        find: Callable[[str], Wanted[Client]],
        publishers: Publishers,
    ) -> None:
        self._inform = inform
        self._number_of = number_of
        self._client_of = client_of
        self._find = find
        self._publishers = publishers
        self._lateness = Lateness()
        self._left_out: dict[tuple[str, str], None] = {}  # topics and brokers that were told so
        self._missed: dict[tuple[str, str], int] = {}  # topic and broker → what publishers were told
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def late(self) -> int:
        return self._lateness.total

    # ── late messages ───────────────────────────────────────────────────────────────────────────────────────

    def came(
        self, target: Client, request: str, topic: str, delay_us: int, budget_us: int, count: int = 1
    ) -> None:
        """A message for a subscription was so long under way; or so many are not waited for any longer."""
        if delay_us <= budget_us:
            return
        key = key_of(self._number_of(target), request, topic)
        late = self._lateness.came(key, delay_us, budget_us, now_us(), count)
        if late is not None:
            self._tell(target, topic, budget_us, late)
        elif self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(TELL_US / 1e6, self._due)

    def gave_up(self, topic: str, count: int) -> None:
        """So many messages of a topic are not waited for any longer."""
        for target, subscriptions in self._find(topic):
            for request in {each.request for each in subscriptions if each.request}:
                budget_us = request_of(request).budget_us
                if budget_us is not None:
                    self.came(target, request, topic, budget_us + 1, budget_us, count)

    def _due(self) -> None:
        self._timer = None
        for key, late in self._lateness.due(now_us()):
            number, request, topic = key.split(SPACE)
            target, budget_us = self._client_of(number), request_of(request).budget_us
            if target is not None and budget_us is not None:
                self._tell(target, topic, budget_us, late)
        if not self._lateness.is_told and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(TELL_US / 1e6, self._due)

    def _tell(self, target: Client, topic: str, budget_us: int, late: Late) -> None:
        if target.may_receive(topic):
            budget, longest = value_text("budget_us", budget_us), value_text("budget_us", late.longest_us)
            news = LateMessages(budget, longest, late.total, late.change)
            self._inform(target, LATE + topic, LATE_NEWS.write(news))

    def forget(self, number: str, request: str) -> None:
        """A client has no such subscription any more."""
        self._lateness.forget(key_of(number, request, ""))

    def seen(self, row: Seen, broker: str) -> None:
        """A broker's subscribers have missed so much of a topic that clients here publish."""
        before = self._missed.get((row.topic, broker), 0)
        change = row.missed - before if row.missed >= before else row.missed
        if not change:
            return
        self._missed.pop((row.topic, broker), None)
        self._missed[row.topic, broker] = row.missed
        if len(self._missed) > TOLD_MAX:
            del self._missed[next(iter(self._missed))]
        budget, longest = (value_text("budget_us", us) for us in (row.budget_us, row.longest_us))
        news = LATE_THERE_NEWS.write(LateThere(budget, longest, row.missed, change, broker))
        for client in tuple(self._publishers.publishing(row.topic)):
            self._inform(client, LATE + row.topic, news)

    # ── admission ───────────────────────────────────────────────────────────────────────────────────────────

    def given(self, rows: Collection[Given], broker: str) -> None:
        """The origin of topics says what they get."""
        for row in rows:
            if (news := self._admission(row, broker)) is not None:
                for target, subscriptions in self._find(row.topic):
                    has_budget = any(
                        each.request and request_of(each.request).budget_us is not None
                        for each in subscriptions
                    )
                    if has_budget and target.may_receive(row.topic):
                        self._inform(target, ADMISSION + row.topic, news)

    def gives(self, row: Given, broker: str) -> None:
        """A topic that clients here publish gets this for a broker."""
        if (news := self._admission(row, broker)) is not None:
            for client in tuple(self._publishers.publishing(row.topic)):
                self._inform(client, ADMISSION + row.topic, news)

    def _admission(self, row: Given, broker: str) -> bytes | None:
        """What is news: that a topic is left out, or (for one that was) that it is not any more."""
        key = row.topic, broker
        if not row.why and key not in self._left_out:
            return None
        self._left_out.pop(key, None)
        if row.why:
            self._left_out[key] = None
            if len(self._left_out) > TOLD_MAX:
                del self._left_out[next(iter(self._left_out))]
        budget = value_text("budget_us", row.budget_us)
        return ADMISSION_NEWS.write(Admission(not row.why, row.why, budget, row.miss, broker))

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
