"""Hints that a broker is gone, which come sooner than its silence: closed links, and a bus that does not find it.

A process that is killed leaves at once: its kernel closes every connection. A process that hangs, or whose packets are
lost, keeps them. So a link that its peer has **closed** without a word is a hint, and a listener that **refuses** a new
connection is a better one. Neither condemns anybody by itself: connections are reset by others too, and a broker that
restarts has closed its links as well.

    a link to X was closed by X ──► X is asked over the bus, at once
        X, or its subscription, is there ──► the hints are forgotten
        the bus finds nobody             ──► asked again after AGAIN_US, ASKS_MAX times at most
    X is **gone** if the bus has found nobody twice, AGAIN_US apart, and hints of ENOUGH weight are younger than HINT_US

A closed link weighs 1 for each peer that tells of it, a refused one 2. So two peers have to see their links close, or
one peer that the broker's machine refuses. The bus is a witness of its own: its server has ended the broker's session,
over another connection. No silence is among these reasons: an answer that does not come in time says nothing, and
neither does a link over which nothing comes. That is left to ``detection``.

What is heard of a broker itself, a beat above all, ends all hints about it.
"""

from __future__ import annotations

from typing import Final

CLOSED: Final = 1  # the weight of a link that the broker has closed, for each peer
REFUSED: Final = 2  # … and whose listener refuses a new one
ENOUGH: Final = 2
HINT_US: Final = (
    1_500_000  # a hint counts: as long as redials take that are refused, and a silence that is suspicious
)
AGAIN_US: Final = 40_000  # between two questions: some ten round trips
ASKS_MAX: Final = 12  # in a row: half a second, in which a redial is refused twice
WITNESSES_MAX: Final = 32  # peers whose hints are kept for one broker; two suffice


class _Case:
    """The hints about one broker."""

    __slots__ = ("absent_us", "asked", "asking", "next_us", "witnesses")

    def __init__(self) -> None:
        self.witnesses: dict[str, tuple[int, int]] = {}  # peer → weight, and when it told
        self.absent_us: int | None = None  # when the bus found nobody for the first time …
        self.asked = 0  # … of so many questions since the last new hint
        self.asking = False  # a question is under way
        self.next_us: int | None = None  # when to ask again


class Hints:
    """Weighs for one observer what closed links say of brokers."""

    def __init__(self) -> None:
        self._cases: dict[str, _Case] = {}

    def __len__(self) -> int:
        return len(self._cases)

    @property
    def next_us(self) -> int | None:
        """When to ask somebody again."""
        return min((each.next_us for each in self._cases.values() if each.next_us is not None), default=None)

    def told(self, broker: str, witness: str, *, refused: bool, now_us: int) -> bool:
        """A peer tells that its link was closed by the broker, or is refused; whether to ask the broker now."""
        case = self._cases.setdefault(broker, _Case())
        weight = REFUSED if refused else CLOSED
        if witness in case.witnesses or len(case.witnesses) < WITNESSES_MAX:
            case.witnesses[witness] = (weight, now_us)
        case.asked = 0
        if case.asking or case.next_us is not None:
            return False
        case.asking = True
        return True

    def due(self, now_us: int) -> list[str]:
        """The brokers that are to be asked again now."""
        found = []
        for broker, case in self._cases.items():
            if case.next_us is not None and case.next_us <= now_us:
                case.next_us, case.asking = None, True
                found.append(broker)
        return found

    def answered(self, broker: str, *, absent: bool, now_us: int) -> tuple[str, ...]:
        """What the bus said to a question: the witnesses, if that makes the broker gone, and otherwise nobody."""
        case = self._cases.get(broker)
        if case is None or not case.asking:
            return ()
        case.asking = False
        if not absent:
            del self._cases[broker]
            return ()
        if case.absent_us is None:
            case.absent_us = now_us
        fresh = {
            each: weight for each, (weight, at_us) in case.witnesses.items() if now_us - at_us <= HINT_US
        }
        if now_us - case.absent_us >= AGAIN_US and self._enough(fresh):
            del self._cases[broker]
            return tuple(sorted(fresh))
        case.asked += 1
        if case.asked >= ASKS_MAX or not fresh:
            del self._cases[broker]
        else:
            case.next_us = now_us + AGAIN_US
        return ()

    def _enough(self, fresh: dict[str, int]) -> bool:
        return sum(fresh.values()) >= ENOUGH

    def heard(self, broker: str) -> None:
        """The broker itself was heard, or is no longer watched."""
        self._cases.pop(broker, None)
