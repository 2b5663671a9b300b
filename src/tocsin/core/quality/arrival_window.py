"""The first of a message's copies counts: what a destination has of one flow that comes over several ways.

A flow's messages have numbers (``core.quality.stamps``). Of each number the first copy is **fresh**, whatever way it
took, and the others are dropped. In **order** a message waits for those before it that another way may still bring, but
never so long that it would be late itself: GRACE of its budget before the end, what is missing is **passed over**. If
it comes afterwards, it is dropped in order, and told apart from a repeat.

    take(number, item, …)   -> (fresh, what goes on in order now)
    due(now_us)             -> what goes on because nothing waits for longer

Before the first copy, and after the last (``rest``), one way brings everything (``guarded`` is false). Nothing waits
then, and no number is dropped but those before that: a window costs nobody a message who has no second way.

A message is late by its broker's clock. If the quickest message of the flow seems to have been under way for less than
nothing, or for longer than the budget, that clock is another one: then the quickest counts as no delay at all.

Invariants: of each number at most one is fresh, and at most one goes on; what goes on rises, while the window is
guarded; nothing waits beyond its due time. Bounds: WINDOW numbers; BYTES of what waits.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

WINDOW: Final = 1_024  # numbers
BEGINNING: Final = 64  # a flow whose first number is this small begins here
BYTES: Final = 1 << 20  # of messages that wait
GRACE: Final = 16  # a sixteenth of the budget is left to deliver what has waited


class ArrivalWindow(Generic[Item]):
    """What has come of one flow."""

    __slots__ = (
        "_barrier",
        "_bytes",
        "_fastest_us",
        "_seen",
        "_waiting",
        "guarded",
        "late",
        "next",
        "passed_over",
        "repeated",
        "top",
    )

    def __init__(self, first: int) -> None:
        """``first``: the number of the first message that came."""
        begins = 1 if first <= BEGINNING else first
        self.next = begins  # everything before it went on, or is passed over
        self.top = begins - 1  # the greatest number that came
        self.guarded = False  # copies come
        self.repeated = 0  # copies of what was here
        self.late = 0  # that came after they were passed over
        self.passed_over = 0  # numbers that nothing waited for any longer
        self._barrier = 0  # what is before it went on while copies came
        self._seen = 0  # bit n: top - n has come
        self._waiting: dict[
            int, tuple[Item, int, int]
        ] = {}  # with when each goes on at the latest, and its size
        self._bytes = 0
        self._fastest_us: int | None = None

    def __len__(self) -> int:
        return len(self._waiting)

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
        copied: bool = False,
    ) -> tuple[bool, list[Item]]:
        """A message has come, on the way of all or as a copy: whether it is fresh, and what goes on in order."""
        self.guarded = self.guarded or copied
        if not self._note(number):
            self.repeated += 1
            return False, []
        delay_us = now_us - sent_us
        if self._fastest_us is None or delay_us < self._fastest_us:
            self._fastest_us = delay_us
        if number < self.next:
            if self.guarded or number < self._barrier:
                self.late += 1
                return True, []
            return True, [item]
        if not self.guarded:
            self.next = number + 1
            return True, [item]
        self._waiting[number] = item, self._due(sent_us, budget_us), size
        self._bytes += size
        ready = self._in_order()
        while self._bytes > BYTES or (self._waiting and number - self.next >= WINDOW):
            ready += self._pass_over(min(self._waiting))
        return True, ready

    def rest(self) -> list[Item]:
        """No copies come any more: what waits goes on."""
        ready = self._pass_over(max(self._waiting)) if self._waiting else []
        self.guarded, self._barrier = False, self.next
        return ready

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
