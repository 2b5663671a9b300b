"""The publishers that one broker's subscribers want to know alive, wherever they publish.

The broker of a publisher says when it is alive, lost (its lease is over) or has left (``Life``). A client's connections
have epochs that grow, so that the word of an earlier broker never counts against a later one.

**Takeover.** When a broker is lost, each of its publishers has one lease from then on to come back elsewhere; then it
is lost. The same holds for a publisher of which its broker does not speak any more: every broker is asked now and then
what it has (``ask``, ``answered``), and one that does not answer ASKS_MISSED times in a row counts as lost.

Invariants: ``counts`` are what the rows say; a row is there while somebody wants its topic, and at most ROWS_MAX are,
of which the oldest lost ones make room first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from tocsin.core.deadlines import Deadlines
from tocsin.model.quality import Life, LifeState

ROWS_MAX: Final = 20_000
ASKS_MISSED: Final = 3
_SPACE: Final = "\0"  # neither topics nor client ids have it


class _Row:
    __slots__ = ("ask", "broker", "life")

    def __init__(self, broker: str, life: Life, ask: int) -> None:
        self.broker = broker
        self.life = life
        self.ask = ask  # the newest that its broker has answered with it


class Liveness:
    """The publishers that are known, by topic and client."""

    __slots__ = ("_answered", "_ask", "_deadlines", "_lost", "_rows", "_topics", "left_out")

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._topics: dict[str, dict[str, None]] = {}  # topic → keys of its rows
        self._lost: dict[str, None] = {}  # keys of lost ones, the oldest first
        self._deadlines = Deadlines()  # of those that have to come back
        self._ask = 0
        self._answered: dict[str, int] = {}  # broker → the newest ask that it has answered
        self.left_out = 0  # publishers for which there was no room

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def next_us(self) -> int | None:
        return self._deadlines.next_us

    def counts(self, topic: str) -> tuple[int, int]:
        """How many publishers of a topic are alive, and how many are not."""
        states = [self._rows[key].life.state for key in self._topics.get(topic, ())]
        alive = states.count(LifeState.ALIVE)
        return alive, len(states) - alive

    def is_lost(self, topic: str, client: str) -> bool:
        row = self._rows.get(_key(topic, client))
        return row is not None and row.life.state is LifeState.LOST

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._topics)

    # ── what brokers say ────────────────────────────────────────────────────────────────────────────────────

    def know(self, broker: str, life: Life, ask: int = 0) -> bool:
        """A broker speaks of a publisher; whether the counts of its topic are others now."""
        key = _key(life.topic, life.client)
        row = self._rows.get(key)
        if row is not None and life.epoch < row.life.epoch:
            return False  # from an earlier broker
        if row is not None and life.epoch == row.life.epoch and broker != row.broker:
            return False
        if life.state is LifeState.LEFT:
            return self._drop(key)
        if row is None:
            if len(self._rows) >= ROWS_MAX and not self._make_room():
                self.left_out += 1
                return False
            self._rows[key] = _Row(broker, life, max(ask, self._ask))
            self._topics.setdefault(life.topic, {})[key] = None
            self._note(key, life.state)
            return True
        before = row.life.state
        row.broker, row.life, row.ask = broker, life, max(ask, self._ask)
        self._deadlines.drop(key)
        self._note(key, life.state)
        return before is not life.state

    def ask(self) -> int:
        """Every broker is asked now; the number of the question."""
        self._ask += 1
        return self._ask

    def answered(self, broker: str, ask: int, now_us: int) -> None:
        """A broker has told all that it has. Of whom it did not speak has to come back within its lease."""
        self._answered[broker] = max(ask, self._answered.get(broker, 0))
        self._expect(lambda row: row.broker == broker and row.ask < ask, now_us)

    def gone(self, brokers: Collection[str], now_us: int) -> None:
        """These are lost; and who does not answer counts as lost, too."""
        late = self._ask - ASKS_MISSED
        silent = {
            row.broker
            for row in self._rows.values()
            if row.ask <= late and self._answered.get(row.broker, 0) <= late
        }
        if brokers or silent:
            self._expect(lambda row: row.broker in brokers or row.broker in silent, now_us)

    def _expect(self, concerned: Callable[[_Row], bool], now_us: int) -> None:
        for key, row in self._rows.items():
            if row.life.state is LifeState.ALIVE and concerned(row) and key not in self._deadlines:
                self._deadlines.set(key, now_us + row.life.lease_us)

    def due(self, now_us: int) -> list[Life]:
        """Publishers that did not come back in time: they are lost."""
        found = []
        for key in self._deadlines.due(now_us):
            row = self._rows[key]
            row.life = msgspec.structs.replace(row.life, state=LifeState.LOST)
            self._note(key, LifeState.LOST)
            found.append(row.life)
        return found

    # ── what is wanted ──────────────────────────────────────────────────────────────────────────────────────

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Forget the topics that nobody wants any more."""
        for topic in tuple(self._topics):
            if not wanted(topic):
                for key in tuple(self._topics[topic]):
                    self._drop(key)

    def _note(self, key: str, state: LifeState) -> None:
        self._lost.pop(key, None)
        if state is LifeState.LOST:
            self._lost[key] = None

    def _make_room(self) -> bool:
        return bool(self._lost) and self._drop(next(iter(self._lost)))

    def _drop(self, key: str) -> bool:
        row = self._rows.pop(key, None)
        if row is None:
            return False
        self._lost.pop(key, None)
        self._deadlines.drop(key)
        keys = self._topics[row.life.topic]
        del keys[key]
        if not keys:
            del self._topics[row.life.topic]
        return True


def _key(topic: str, client: str) -> str:
    return topic + _SPACE + client
