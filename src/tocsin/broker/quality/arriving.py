"""Messages with a latency budget at their destination: the first copy of each goes on, in order, within the budget.

What subscribers here want within a budget is told to all brokers, every WISH_S (``Wishes``). So an origin knows to whom
copies are worth sending. Its flows come through a window each (``core.quality.arrival_window``): as the usual messages,
and as copies over other ways. Only subscriptions with a budget get anything from a copy; nothing of it is passed on.

What is missed is told: to the subscribers (``missed``), and once a second to the origin of the flow (``Sees``). A
message is missed when it comes later than the budget, and when it is passed over because nothing may wait any longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tocsin.broker.quality.words import Words
from tocsin.core.quality.arrival_window import ArrivalWindow
from tocsin.core.quality.stamps import Stamp
from tocsin.model.network import BrokerInfo
from tocsin.model.publication import Publication
from tocsin.model.quality import Flow
from tocsin.runtime.machines.clock import now_us, wall_us
from tocsin.wire.internal.quality import (
    COPIED_MAX,
    WISHES_MAX,
    WORD,
    Seen,
    Sees,
    Wish,
    Wishes,
    destination_subject,
    words_subject,
)
from tocsin.wire.mqtt.topics import matches

WISH_S: Final = 5.0
SAY_S: Final = 1.0
WINDOWS_MAX: Final = 4_096  # the one that was idle for longest is forgotten first
TOPICS_MAX: Final = (
    4_096  # of which it is told what is missed, each for one origin; the oldest is forgotten first
)
WAITING_BYTES: Final = 16 << 20  # of all messages that wait
EVERYTHING: Final = "#"

Pass = Callable[[Publication, Stamp], None]
Missed = Callable[[str, int], None]  # the topic, and how many


class _Flow:
    __slots__ = ("missed", "window")

    def __init__(self, first: int) -> None:
        self.window: ArrivalWindow[tuple[Publication, Stamp]] = ArrivalWindow(first)
        self.missed = 0  # of these it was said


class _Topic:
    """What is told to one origin of one topic."""

    __slots__ = ("ahead", "came", "changed", "longest_us", "missed", "repeated")

    def __init__(self) -> None:
        self.came = self.missed = self.repeated = self.ahead = self.longest_us = 0
        self.changed = False


class Arriving:
    """The flows that one broker's subscribers want within a budget. ``give`` passes a message on to them."""

    def __init__(self, network: str, own: BrokerInfo, words: Words, give: Pass, missed: Missed) -> None:
        self._network = network
        self._own = own
        self._words = words
        self._give = give
        self._missed = missed
        self._wishes: dict[Wish, int] = {}
        self._budgets: dict[str, int] = {}  # topic → the least budget; 0: nobody has one
        self._flows: dict[Flow, _Flow] = {}  # the one that was idle for longest first
        self._waiting: dict[Flow, None] = {}  # flows of which something waits
        self._bytes = 0  # of what waits
        self._topics: dict[tuple[str, str], _Topic] = {}  # by origin and topic
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._saying: asyncio.TimerHandle | None = None
        self._said_us = 0
        self._closed = False
        self._repeated = self._passed_over = self._ahead = 0

    @property
    def wanted(self) -> bool:
        """Whether any subscription has a budget."""
        return bool(self._wishes)

    # ── subscribers ─────────────────────────────────────────────────────────────────────────────────────────

    def want(self, pattern: str, budget_us: int) -> None:
        wish = Wish(pattern, budget_us)
        self._wishes[wish] = self._wishes.get(wish, 0) + 1
        if self._wishes[wish] == 1:
            self._changed()

    def unwant(self, pattern: str, budget_us: int) -> None:
        wish = Wish(pattern, budget_us)
        self._wishes[wish] -= 1
        if not self._wishes[wish]:
            del self._wishes[wish]
            self._changed()
            for flow in [each for each in self._flows if not self.budget_us(each.topic)]:
                self._forget(flow)

    def _changed(self) -> None:
        self._budgets.clear()
        self._wish()
        self._wind_saying()

    def _wish(self) -> None:
        self._said_us = now_us()
        rows = tuple(self._wishes)
        if len(rows) > WISHES_MAX:
            rows = (Wish(EVERYTHING, min(each.budget_us for each in rows)),)
        self._words.say(words_subject(self._network), WORD.write(Wishes(self._own, rows)))

    def moved(self, own: BrokerInfo) -> None:
        """This broker is reached elsewhere now."""
        self._own = own
        if self._wishes:
            self._wish()

    def budget_us(self, topic: str) -> int:
        """The least budget of subscriptions to a topic; 0: none has one."""
        found = self._budgets.get(topic)
        if found is None:
            fit = (each.budget_us for each in self._wishes if matches(each.filter, topic))
            if len(self._budgets) >= TOPICS_MAX:
                self._budgets.clear()
            found = self._budgets[topic] = min(fit, default=0)
        return found

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, publication: Publication, stamp: Stamp, *, copied: bool) -> None:
        """A message has come: on the usual way, or as a copy."""
        budget_us = self.budget_us(stamp.flow.topic)
        if not budget_us:
            return
        found = self._flows.pop(stamp.flow, None) or self._open(stamp)
        self._flows[stamp.flow] = found
        window, before = found.window, found.window.size
        fresh, ready = window.take(
            stamp.number,
            (publication, stamp),
            sent_us=stamp.sent_us,
            budget_us=budget_us,
            now_us=wall_us(),
            size=len(publication.topic) + len(publication.payload),
        )
        topic = self._topic(stamp.flow)
        topic.repeated += not fresh
        topic.ahead += fresh and copied
        self._repeated += not fresh
        self._ahead += fresh and copied
        self._bytes += window.size - before
        self._pass(stamp.flow, found, ready)
        if self._bytes > WAITING_BYTES:
            self._let_go(stamp.flow, found)

    def _open(self, stamp: Stamp) -> _Flow:
        if len(self._flows) >= WINDOWS_MAX:
            self._forget(next(iter(self._flows)))
        return _Flow(stamp.number)

    def _let_go(self, flow: Flow, found: _Flow) -> None:
        """Nothing of a flow waits any longer."""
        before = found.window.size
        ready = found.window.rest()
        self._bytes += found.window.size - before
        self._pass(flow, found, ready)

    def _forget(self, flow: Flow) -> None:
        self._let_go(flow, self._flows[flow])
        self._flows.pop(flow, None)

    def _pass(self, flow: Flow, found: _Flow, ready: list[tuple[Publication, Stamp]]) -> None:
        window = found.window
        if len(window):
            self._waiting[flow] = None
            self._wind(window.next_us)
        else:
            self._waiting.pop(flow, None)
        missed = window.missed - found.missed
        if missed:
            found.missed = window.missed
            self._passed_over += missed
            self._note(flow, 0, missed, self.budget_us(flow.topic))
            self._missed(flow.topic, missed)
        for publication, stamp in ready:
            self.delivers(stamp)
            self._give(publication, stamp)

    def delivers(self, stamp: Stamp) -> None:
        """A message is delivered to subscriptions with a budget, now."""
        budget_us = self.budget_us(stamp.flow.topic)
        if budget_us:
            delay_us = max(0, wall_us() - stamp.sent_us)
            self._note(stamp.flow, 1, int(delay_us > budget_us), delay_us)

    def _note(self, flow: Flow, came: int, missed: int, delay_us: int) -> None:
        topic = self._topic(flow)
        topic.came += came
        topic.missed += missed
        topic.changed = True
        if missed and delay_us > topic.longest_us:
            topic.longest_us = delay_us
        self._wind_saying()

    def _topic(self, flow: Flow) -> _Topic:
        found = self._topics.get((flow.broker, flow.topic))
        if found is None:
            if len(self._topics) >= TOPICS_MAX:
                del self._topics[next(iter(self._topics))]
            found = self._topics[flow.broker, flow.topic] = _Topic()
        return found

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _wind(self, due_us: int | None) -> None:
        """Look at what waits when this is due, by the clock that stamps are of."""
        if due_us is None or self._closed or (self._timer is not None and self._timer_us <= due_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = due_us
        delay_s = max(0, due_us - wall_us()) / 1e6
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        now = wall_us()
        for flow in tuple(self._waiting):
            found = self._flows[flow]
            before = found.window.size
            ready = found.window.due(now)
            self._bytes += found.window.size - before
            self._pass(flow, found, ready)
        self._wind(min(self._dues(), default=None))

    def _dues(self) -> list[int]:
        found = (self._flows[flow].window.next_us for flow in self._waiting)
        return [due_us for due_us in found if due_us is not None]

    def _wind_saying(self) -> None:
        if self._saying is None and not self._closed and (self._wishes or self._topics):
            self._saying = asyncio.get_running_loop().call_later(SAY_S, self._say)

    def _say(self) -> None:
        """Once a second: tell origins what is missed."""
        self._saying = None
        rows: dict[str, list[Seen]] = {}
        for (origin, name), topic in self._topics.items():
            if topic.changed:
                rows.setdefault(origin, []).append(self._seen(name, topic))
                topic.changed, topic.longest_us = False, 0
        for origin, seen in rows.items():
            for at in range(0, len(seen), COPIED_MAX):
                word = Sees(self._own.id, tuple(seen[at : at + COPIED_MAX]))
                self._words.say(destination_subject(self._network, origin), WORD.write(word))
        if self._wishes and now_us() - self._said_us >= WISH_S * 1e6:
            self._wish()
        if self._wishes:
            self._wind_saying()

    def _seen(self, name: str, topic: _Topic) -> Seen:
        return Seen(
            name,
            topic.came,
            topic.missed,
            topic.longest_us,
            topic.repeated,
            topic.ahead,
            self.budget_us(name),
        )

    def close(self) -> None:
        self._closed = True
        for handle in (self._timer, self._saying):
            if handle is not None:
                handle.cancel()

    def statistics(self) -> dict[str, int]:
        return {
            "copies_repeated": self._repeated,
            "copies_ahead": self._ahead,
            "copies_passed_over": self._passed_over,
            "copies_waiting": sum(len(self._flows[flow].window) for flow in self._waiting),
        }
