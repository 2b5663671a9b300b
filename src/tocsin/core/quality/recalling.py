"""History at QoS 0: what a publisher's broker keeps, and the seam where history and live messages meet.

A **ring** has the last messages of one client on one topic: as many as the stream offers (``history``), none older than
its lifespan, and within a bound of bytes. It outlives a connection if the client's session does, or if the stream
offers transient.

A new subscription that requests durability has a **seam**. It asks every broker for its rings, and each answers once,
with the number of each flow's last message (``ends``). Until a broker has answered, its live messages are held here.
Then the history goes on, and after it those held messages that it has not. Our broker has enrolled
before it asked (``core.quality.resending``), so that all that follows comes, in order and once.

    take(flow, number, …)  -> whether a live message goes on now; if not, it is held or dropped
    part(broker, …)        -> some of a broker's answer has come
    close(broker)          -> its answer is whole: history, then what was held; None: it has to be asked again
    give_up(broker)        -> it does not answer: what was held goes on

Messages that came before the first way to this broker was known may be missing between history and what is held. Then
the answer is thrown away, and the broker is asked again: it has them by then. Of one client on one topic nothing goes
on that is older than what went on already, whatever broker it is from.

Invariants: of each flow the numbers that go on rise; none is left out between the first of its history and the newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

from tocsin.model.quality import EVERYTHING, Flow

Item = TypeVar("Item")

RING_MAX: Final = 10_000  # messages, whatever is offered
TRIES: Final = 5  # until a gap is taken as it is


class Ring(Generic[Item]):
    """The last messages of one client on one topic."""

    __slots__ = ("_cut", "_cut_us", "_depth", "_kept", "_lifespan_us", "bytes")

    def __init__(self) -> None:
        self._kept: deque[tuple[Item, int, int]] = deque()  # message, size, when it came; the oldest first
        self._depth = 1
        self._lifespan_us: int | None = None
        self._cut = 0  # messages for which there was no room
        self._cut_us = 0  # when the newest of them came
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def offer(self, depth: int | None, lifespan_us: int | None) -> None:
        """How much is kept from now on; of a depth that is not stated, one message."""
        self._depth = 1 if depth is None else depth
        self._lifespan_us = lifespan_us
        self._shorten()

    def add(self, item: Item, size: int, now_us: int) -> None:
        self._kept.append((item, size, now_us))
        self.bytes += size
        self._shorten()

    def _shorten(self) -> None:
        while len(self._kept) > (RING_MAX if self._depth == EVERYTHING else self._depth):
            self.bytes -= self._kept.popleft()[1]

    def fit(self, most_bytes: int) -> None:
        """Keep no more than there is room for."""
        while self.bytes > most_bytes:
            _, size, self._cut_us = self._kept.popleft()
            self.bytes -= size
            self._cut += 1

    def last(self, now_us: int) -> list[Item]:
        """What there is, oldest first."""
        if self._lifespan_us is not None:
            while self._kept and now_us - self._kept[0][2] >= self._lifespan_us:
                self.bytes -= self._kept.popleft()[1]
        return [item for item, _, _ in self._kept]

    def missing(self, now_us: int) -> int:
        """How many messages would be there if there had been room for them."""
        if not self._cut or (self._lifespan_us is not None and now_us - self._cut_us >= self._lifespan_us):
            return 0
        most = RING_MAX if self._depth == EVERYTHING else self._depth
        return min(self._cut, most - len(self._kept))


class Seam(Generic[Item]):
    """Where the history of one new subscription and its live messages meet."""

    __slots__ = ("_ends", "_history", "_newest", "_tries", "answered", "bytes", "held")

    def __init__(self) -> None:
        self.answered: set[str] = set()  # brokers whose history went on
        self.held: dict[str, list[tuple[Flow, int, Item]]] = {}  # by broker, as they came
        self.bytes = 0  # of what is held
        self._history: dict[str, tuple[list[tuple[Flow, Item]], dict[Flow, int]]] = {}  # answers so far
        self._ends: dict[Flow, int] = {}  # of history that went on
        self._newest: dict[tuple[str, str], int] = {}  # (topic, client) → the epoch of what went on
        self._tries: dict[str, int] = {}

    def take(self, flow: Flow, number: int, item: Item, size: int) -> bool:
        """Whether a live message goes on now."""
        if flow.broker in self.answered:
            return self._passes(flow, number)
        self.held.setdefault(flow.broker, []).append((flow, number, item))
        self.bytes += size
        return False

    def _passes(self, flow: Flow, number: int) -> bool:
        return number > self._ends.get(flow, 0) and self._is_newest(flow)

    def _is_newest(self, flow: Flow) -> bool:
        """Whether nothing newer of this client has gone on; from now on nothing older does."""
        key = (flow.topic, flow.client)
        if flow.epoch < self._newest.get(key, 0):
            return False
        self._newest[key] = flow.epoch
        return True

    def part(self, broker: str, history: Iterable[tuple[Flow, Item]], ends: Mapping[Flow, int]) -> None:
        """Some of what a broker has: messages, oldest first, and the last number of each flow."""
        if broker not in self.answered:
            messages, known = self._history.setdefault(broker, ([], {}))
            messages += history
            known.update(ends)

    def close(self, broker: str) -> tuple[list[Item], list[Item]] | None:
        """All has come: history, and the live messages that follow. None: there is a gap, so that it is asked again."""
        if broker in self.answered:
            return [], []
        messages, ends = self._history.pop(broker, ([], {}))
        tries = self._tries[broker] = self._tries.get(broker, 0) + 1
        if tries < TRIES and self._has_gap(broker, ends):
            return None
        self._ends |= ends
        history = [item for flow, item in messages if self._is_newest(flow)]
        for flow in sorted(ends, key=lambda flow: flow.epoch):
            self._is_newest(flow)
        return history, self.give_up(broker)

    def _has_gap(self, broker: str, ends: Mapping[Flow, int]) -> bool:
        first: dict[Flow, int] = {}
        for flow, number, _ in self.held.get(broker, ()):
            first.setdefault(flow, number)
        return any(number > ends[flow] + 1 for flow, number in first.items() if flow in ends)

    def give_up(self, broker: str) -> list[Item]:
        """Wait for nothing from this broker any more: what is held goes on."""
        self.answered.add(broker)
        held = self.held.pop(broker, [])
        if not self.held:
            self.bytes = 0
        return [item for flow, number, item in held if self._passes(flow, number)]
