"""The first of a message's copies counts: what a destination has of one flow that comes over several ways.

A flow's messages have numbers (``core.quality.stamps``). Of each number the first copy is **fresh**, whatever way it
took, and the others are dropped. In **order** a message waits for those before it that another way may still bring, but
never so long that it would be late itself, nor longer than WAIT_US: GRACE of its budget before the end, what is missing
is **passed over**. If it comes afterwards, it is dropped. It is **missed** all the same.

    take(number, item, …)   -> (fresh, what goes on in order now)
    due(now_us)             -> what goes on because nothing waits for longer
    rest()                  -> all that waits, now

A flow begins with the first message that comes. One before it that comes afterwards is missed, too.

A message is late by its broker's clock. If the quickest message of the flow seems to have been under way for less than
nothing, or for longer than the budget, that clock is another one: then the quickest counts as no delay at all.

Invariants: of each number at most one is fresh, and at most one goes on; what goes on rises; nothing waits beyond its
due time. Bounds: WINDOW numbers; BYTES of what waits.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

WINDOW: Final = 1_024  # numbers
BYTES: Final = 1 << 20  # of messages that wait
GRACE: Final = 16  # a sixteenth of the budget is left to deliver what has waited
WAIT_US: Final = 1_000_000  # however large the budget is: at QoS 0 a message may be lost on all ways


class ArrivalWindow(Generic[Item]):
    """What has come of one flow."""

    __slots__ = (
        "_bytes",
        "_fastest_us",
        "_first",
        "_seen",
        "_waiting",
        "before",
        "late",
        "next",
        "passed_over",
        "repeated",
        "top",
    )

    def __init__(self, first: int) -> None:
        """``first``: the number of the first message that came."""
        self._first = self.next = first  # everything before ``next`` went on, or is passed over
        self.top = first - 1  # the greatest number that came
        self.repeated = 0  # copies of what was here
        self.late = 0  # that came after they were passed over
        self.before = 0  # that came after a later one had begun the flow
        self.passed_over = 0  # numbers that nothing waited for any longer
        self._seen = 0  # bit n: top - n has come
        self._waiting: dict[
            int, tuple[Item, int, int]
        ] = {}  # with when each goes on at the latest, and its size
        self._bytes = 0
        self._fastest_us: int | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def size(self) -> int:
        """Bytes of what waits."""
        return self._bytes

    @property
    def next_us(self) -> int | None:
        """When something goes on, if nothing comes before."""
        return min((due_us for _, due_us, _ in self._waiting.values()), default=None)

    def take(
        self,
        number: int,
        item: Item,
        *,
        sent_us: int,
        budget_us: int,
        now_us: int,
        size: int = 0,
    ) -> tuple[bool, list[Item]]:
        """A message has come, on the usual way or as a copy: whether it is fresh, and what goes on in order."""
        if not self._note(number):
            self.repeated += 1
            return False, []
        delay_us = now_us - sent_us
        if self._fastest_us is None or delay_us < self._fastest_us:
            self._fastest_us = delay_us
        if number < self.next:
            self.before += number < self._first
            self.late += number >= self._first
            return True, []
        self._waiting[number] = item, min(self._due(sent_us, budget_us), now_us + WAIT_US), size
        self._bytes += size
        ready = self._in_order()
        while self._bytes > BYTES or (self._waiting and number - self.next >= WINDOW):
            ready += self._pass_over(min(self._waiting))
        return True, ready

    def rest(self) -> list[Item]:
        """Nothing waits any longer."""
        return self._pass_over(max(self._waiting)) if self._waiting else []

    @property
    def missed(self) -> int:
        """Numbers that did not go on, and do not any more."""
        return self.passed_over + self.before

    def _note(self, number: int) -> bool:
        """Whether a number comes for the first time, as far as that is known."""
        if number > self.top:
            beyond = number - self.top
            self._seen = ((self._seen << beyond) | 1) & ((1 << WINDOW) - 1) if beyond < WINDOW else 1
            self.top = number
            return True
        bit = self.top - number
        if bit >= WINDOW or self._seen >> bit & 1:
            return False
        self._seen |= 1 << bit
        return True

    def _due(self, sent_us: int, budget_us: int) -> int:
        fastest_us = self._fastest_us or 0
        if not 0 <= fastest_us <= budget_us:
            sent_us += fastest_us
        return sent_us + budget_us - budget_us // GRACE

    def due(self, now_us: int) -> list[Item]:
        """What has waited for long enough, and all before it."""
        ready: list[Item] = []
        while True:
            over = [number for number, (_, due_us, _) in self._waiting.items() if due_us <= now_us]
            if not over:
                return ready
            ready += self._pass_over(max(over))

    def _pass_over(self, first: int) -> list[Item]:
        """Wait for nothing before this number."""
        gone = [self._pop(number) for number in sorted(self._waiting) if number < first]
        self.passed_over += first - self.next - len(gone)
        self.next = first
        return [*gone, *self._in_order()]

    def _in_order(self) -> list[Item]:
        found = []
        while self.next in self._waiting:
            found.append(self._pop(self.next))
            self.next += 1
        return found

    def _pop(self, number: int) -> Item:
        item, _, size = self._waiting.pop(number)
        self._bytes -= size
        return item
