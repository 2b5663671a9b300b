"""Clearance: which brokers must know a change before its publisher's broker may send on.

A command may concern other brokers: a stream joins their queries, a route begins at them. If messages of that
stream were sent before these brokers know, the first would be lost. So each broker says which notice it has
applied, and when all that a command concerns have, the broker that said the command is told that the way is
**clear**.

A client may move in the meantime, or another may publish on the same topic: then another broker says something of a
stream that the state has already, and that nobody has to be told of once more. It is not clear before the first is. So
a wait knows what it is **about**, and what is said of the same inherits whatever is still missing.

Brokers that spoke together of nothing but their filters share one wait: many do when a part of a large network fails.

This is a courtesy and no promise: a broker goes on by itself after a while, and a new leader knows nothing of what
its predecessor waited for. Waits are kept for FORGET_US at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

FORGET_US: Final = 6_000_000  # longer than any broker waits


class Cleared(NamedTuple):
    """Every affected broker knows all commands of a broker up to a number."""

    broker: str
    incarnation: int
    number: int


class _Wait:
    __slots__ = ("about", "missing", "since_us", "then")

    def __init__(
        self,
        then: dict[str, Cleared],
        missing: dict[str, int],
        since_us: int,
        about: Collection[str],
    ) -> None:
        self.then = then  # speaker → what is clear for it
        self.missing = missing  # brokers that have not seen what they have to, and the notices
        self.since_us = since_us
        self.about = about


class ClearanceWaits:
    """Tracks which brokers must apply a change before it is clear, for one leader."""

    def __init__(self) -> None:
        self._waits: dict[str, deque[_Wait]] = {}  # speaker → its waits, oldest first
        self._seen: dict[str, int] = {}  # broker → the last notice that it has applied
        # Broker → what waits for it to have seen which notice, in order.
        self._awaited: dict[str, deque[tuple[int, _Wait]]] = {}
        # What waits are about → the last of them: it has inherited what those before it miss.
        self._about: dict[str, _Wait] = {}
        self._recent: deque[_Wait] = deque()  # the waits that are about something, oldest first

    def has_seen(self, broker: str) -> bool:
        """Whether a broker has applied any notice, as far as this leader knows."""
        return broker in self._seen

    def waits(self, speaker: str, about: Collection[str] = ()) -> bool:
        """Whether an earlier command of this broker, or one about the same, is not clear."""
        return speaker in self._waits or any(each in self._about for each in about)

    def add(
        self,
        speaker: str,
        incarnation: int,
        number: int,
        needs: Mapping[str, int],
        now_us: int,
        about: Collection[str] = (),
    ) -> list[Cleared]:
        """Commands up to ``number`` are clear once each of these brokers has seen its notice; return the brokers that
        are clear now.

        A broker may have seen it before the leader hears that its append is done.
        """
        return self._add({speaker: Cleared(speaker, incarnation, number)}, needs, now_us, about)

    def add_row(self, speakers: Iterable[Cleared], needs: Mapping[str, int], now_us: int) -> list[Cleared]:
        """The same for several that spoke together, and have to wait for the same."""
        return self._add({each.broker: each for each in speakers}, needs, now_us, ())

    def _add(
        self, then: dict[str, Cleared], needs: Mapping[str, int], now_us: int, about: Collection[str]
    ) -> list[Cleared]:
        seen = self._seen
        missing = {each: notice for each, notice in needs.items() if seen.get(each, 0) < notice}
        for each in about:
            if (before := self._about.get(each)) is not None:
                for broker, notice in before.missing.items():
                    missing[broker] = max(notice, missing.get(broker, 0))
        if len(then) == 1:
            missing.pop(next(iter(then)), None)  # it is told in order, and goes on when it has been
        wait = _Wait(then, missing, now_us, about)
        for speaker in then:
            self._waits.setdefault(speaker, deque()).append(wait)
        for broker, notice in missing.items():
            _insert(self._awaited.setdefault(broker, deque()), notice, wait)
        if missing and about:
            self._about.update(dict.fromkeys(about, wait))
            self._recent.append(wait)
        return [clear for speaker in then for clear in self._advance(speaker)]

    def saw(self, broker: str, notice: int) -> list[Cleared]:
        """A broker has applied its notices up to this one; return the brokers that are clear now."""
        self._seen[broker] = max(notice, self._seen.get(broker, 0))
        awaited = self._awaited.get(broker, deque())
        clear: list[Cleared] = []
        while awaited and awaited[0][0] <= notice:
            _, wait = awaited.popleft()
            wait.missing.pop(broker, None)
            if not wait.missing:
                self._settle(wait)
                for speaker in wait.then:
                    clear += self._advance(speaker)
        if not awaited:
            self._awaited.pop(broker, None)
        return clear

    def gone(self, broker: str) -> list[Cleared]:
        """Nobody waits for this broker any more, and it waits for nobody."""
        self._waits.pop(broker, None)
        awaited = self._awaited.get(broker)
        clear = self.saw(broker, awaited[-1][0]) if awaited else []
        self._seen.pop(broker, None)  # its notices begin again at 1
        return clear

    def forget(self, now_us: int) -> None:
        """Give up on what has waited for too long."""
        for speaker, waits in list(self._waits.items()):
            while waits and now_us - waits[0].since_us > FORGET_US:
                waits.popleft()
            if not waits:
                del self._waits[speaker]
        for broker, awaited in list(self._awaited.items()):
            while awaited and now_us - awaited[0][1].since_us > FORGET_US:
                awaited.popleft()
            if not awaited:
                del self._awaited[broker]

        while self._recent and now_us - self._recent[0].since_us > FORGET_US:
            self._settle(self._recent.popleft())

    def _settle(self, wait: _Wait) -> None:
        """Nobody inherits anything of this wait any more."""
        for each in wait.about:
            if self._about.get(each) is wait:
                del self._about[each]

    def _advance(self, speaker: str) -> list[Cleared]:
        waits = self._waits.get(speaker)
        clear: list[Cleared] = []
        while waits and not waits[0].missing:
            clear = [waits.popleft().then[speaker]]
        if waits is not None and not waits:
            del self._waits[speaker]
        return clear


def _insert(awaited: deque[tuple[int, _Wait]], notice: int, wait: _Wait) -> None:
    """Behind all that wait for the same notice or an earlier one: mostly at the end."""
    if not awaited or awaited[-1][0] <= notice:
        awaited.append((notice, wait))
    else:
        awaited.insert(bisect_right(awaited, notice, key=itemgetter(0)), (notice, wait))
