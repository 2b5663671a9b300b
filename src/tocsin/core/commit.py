"""Group commit: many publishers' messages, one append to the log at a time.

While an append is under way, messages gather; the next append takes all of them, up to the log's bound on a batch.
So an acknowledgement costs a share of a write to disk, and the busier the broker is the smaller is the share. One
append at a time also keeps the order: what came first has the lower position.

A failed append that may succeed later is repeated with the same record ids, so that it takes effect once. One that
cannot (the store is full) fails its messages, and only those. One that is refused for what is in it (a message too
large) is taken apart: halves of it are tried, until the culprit is alone and fails alone.

States: ``idle`` ⇄ ``appending``; from ``appending`` also ``waiting`` for the next try.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from tocsin.errors import Refused, TocsinError
from tocsin.ports import BATCH_MAX, Record

BATCH_MAX_BYTES: Final = 4 << 20  # of payloads in one append: half of what a store takes at once
RETRY_FIRST_US: Final = 50_000
RETRY_MAX_US: Final = 2_000_000

Ticket = TypeVar("Ticket")


class CommitQueue(Generic[Ticket]):
    """Messages on their way into the log. ``Ticket`` is whatever the shell wants back with the outcome."""

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self._waiting: deque[tuple[Record, Ticket]] = deque()
        self._batch: list[tuple[Record, Ticket]] = []  # under way, or to be tried again
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

    def add(self, record: Record, ticket: Ticket) -> None:
        self._waiting.append((record, ticket))

    def start(self) -> Sequence[Record]:
        """The records to append now; none if an append is under way or nothing waits."""
        if self._batch or not self._waiting:
            return ()
        size = 0
        while self._waiting and len(self._batch) < self._batch_max:
            size += len(self._waiting[0][0].payload)
            if self._batch and size > BATCH_MAX_BYTES:
                break
            self._batch.append(self._waiting.popleft())
        return [record for record, _ in self._batch]

    def again(self) -> Sequence[Record]:
        """The records of the batch that failed, to be appended once more."""
        return [record for record, _ in self._batch]

    def succeeded(self) -> list[Ticket]:
        """The batch is durable: what to acknowledge, in order."""
        self._batch_max = min(BATCH_MAX, 2 * self._batch_max)
        return self._end()

    def failed(self, error: TocsinError) -> tuple[int, list[Ticket]]:
        """The batch is not durable: (when to try it again in microseconds, []), or (0, what has failed for good).

        After 0 ``start`` gives the next batch; it may have messages of this one.
        """
        if isinstance(error, Refused) and len(self._batch) > 1:
            self._batch_max = len(self._batch) // 2
            self._waiting.extendleft(reversed(self._batch))
            self._batch = []
            return 0, []
        if not error.retryable:
            return 0, self._end()
        delay_us = min(RETRY_MAX_US, RETRY_FIRST_US << min(self._failures, 10))
        self._failures += 1
        return delay_us, []

    def _end(self) -> list[Ticket]:
        batch, self._batch, self._failures = self._batch, [], 0
        return [ticket for _, ticket in batch]
