"""Group commit: many publishers' messages, one append to the log at a time.

While an append is under way, messages gather; the next append takes all of them, up to the log's bound on a batch.
So an acknowledgement costs a share of a write to disk, and the busier the broker is the smaller is the share. One
append at a time also keeps the order: what came first has the lower position.

A failed append that may succeed later is repeated with the same record ids, so that it takes effect once. One that
cannot (the store is full) fails its messages, and only those. One that is refused for what is in it (a message too
large) is taken apart: halves of it are tried, until the culprit is alone and fails alone.

**Doubt.** A log remembers ids for a while, by its own clock. How long ago a try took effect is not known: the store may
have been away for minutes since, or its clock may have jumped. So after a try without an answer the log is looked at,
behind the position that was known before the first try (``doubted``), and what it has is not appended again
(``found``). A try that takes effect between the look and the next try is within what any log remembers. A message that
somebody else may have appended under its id is in doubt from the beginning. So is a message that waited for a batch of
longer than LONG_US: its publisher may have gone to another broker and repeated it there.

    idle ──start──► appending ──Stored──► idle
      │                │ ──failed, it did not happen──► waiting ──again──► appending
      │                └ ──failed, nobody knows───────► waiting ──► looking ──found──► idle, or appending the rest
      └──start, of what may be there already──────────────────────► looking
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from tocsin.errors import OutcomeUnknown, Refused, TocsinError
from tocsin.ports import BATCH_MAX, Record

BATCH_MAX_BYTES: Final = 4 << 20  # of payloads in one append: half of what a store takes at once
RETRY_FIRST_US: Final = 50_000
RETRY_MAX_US: Final = 2_000_000
LONG_US: Final = 5_000_000  # of one batch: far less than a log remembers ids
NEW: Final = -1  # nobody has tried to append it

Ticket = TypeVar("Ticket")


class CommitQueue(Generic[Ticket]):
    """Messages on their way into the log. ``Ticket`` is whatever the shell wants back with the outcome."""

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        # With the position behind which the log may have it already, or NEW; and the newest position when it came.
        self._waiting: deque[tuple[Record, Ticket, int, int]] = deque()
        self._batch: list[tuple[Record, Ticket, int, int]] = []  # under way, or to be tried again
        self._started_us = 0  # when it began
        self._end = 0  # a position that the log had before the first try of this batch
        self._failures = 0  # tries of this batch so far that failed
        self._batch_max = BATCH_MAX  # smaller after a refusal, until appends succeed again

    def __len__(self) -> int:
        return len(self._waiting) + len(self._batch)

    @property
    def full(self) -> bool:
        """Whether publishers should be held back."""
        return len(self) >= self._records_max

    @property
    def drained(self) -> bool:
        """Whether publishers that were held back may go on: not before half of it is gone."""
        return len(self) <= self._records_max // 2

    def add(self, record: Record, ticket: Ticket, end: int, behind: int | None = None) -> None:
        """``end``: the newest position of the log that is known here; ``behind``: somebody may have appended it, behind
        that position."""
        self._waiting.append((record, ticket, NEW if behind is None else behind, end))

    def start(self, end: int, now_us: int) -> Sequence[Record]:
        """The records to append now; none if an append is under way or nothing waits. ``end``: the newest position of
        the log that is known here."""
        if self._batch or not self._waiting:
            return ()
        size, self._end, self._started_us = 0, end, now_us
        while self._waiting and len(self._batch) < self._batch_max:
            size += len(self._waiting[0][0].payload)
            if self._batch and size > BATCH_MAX_BYTES:
                break
            self._batch.append(self._waiting.popleft())
        return self.again()

    def again(self) -> Sequence[Record]:
        """The records of the batch, to be appended once more; if nothing of it is in doubt."""
        return [each[0] for each in self._batch]

    @property
    def doubted(self) -> tuple[Sequence[Record], int] | None:
        """Those of the batch that are to be looked for in the log before the next try, and behind which position."""
        doubted = [(record, behind) for record, _, behind, _ in self._batch if behind != NEW]
        if not doubted:
            return None
        return [record for record, _ in doubted], min(behind for _, behind in doubted)

    def found(self, positions: Mapping[str, int], end: int, now_us: int) -> list[tuple[Ticket, int]]:
        """The log was looked at up to ``end``: the positions of those that it has, by id. The messages to acknowledge;
        the others can be appended.
        """
        self._end = max(self._end, end)
        there = [
            (ticket, positions[record.id]) for record, ticket, *_ in self._batch if record.id in positions
        ]
        left = [each for each in self._batch if each[0].id not in positions]
        self._batch = [(record, ticket, NEW, came) for record, ticket, _, came in left]
        if not self._batch:
            self._finish(now_us)
        return there

    def succeeded(self, now_us: int) -> list[Ticket]:
        """The batch is durable: what to acknowledge, in order."""
        self._batch_max = min(BATCH_MAX, 2 * self._batch_max)
        return self._finish(now_us)

    def failed(self, error: TocsinError, now_us: int) -> tuple[int, list[Ticket]]:
        """The batch is not durable: (when to try it again in microseconds, []), or (0, what has failed for good).

        After 0 ``start`` gives the next batch, which may have messages of the failed one.
        """
        if isinstance(error, Refused) and len(self._batch) > 1:
            self._batch_max = len(self._batch) // 2
            self._waiting.extendleft(reversed(self._batch))
            self._batch = []
            return 0, []
        if not error.retryable:
            return 0, self._finish(now_us)
        if isinstance(error, OutcomeUnknown):
            self._batch = [
                (record, ticket, self._end if behind == NEW else behind, came)
                for record, ticket, behind, came in self._batch
            ]
        delay_us = min(RETRY_MAX_US, RETRY_FIRST_US << min(self._failures, 10))
        self._failures += 1
        return delay_us, []

    def _finish(self, now_us: int) -> list[Ticket]:
        batch, self._batch, self._failures = self._batch, [], 0
        if now_us - self._started_us > LONG_US:
            self._waiting = deque(
                (record, ticket, came if behind == NEW else behind, came)
                for record, ticket, behind, came in self._waiting
            )
        return [each[1] for each in batch]
