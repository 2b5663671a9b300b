"""One append to a log on JetStream, however many attempts it takes.

**An append** of one record is a publication with the record's id; of several it is an atomic batch, which the
server stages and then commits with one acknowledgement. Both are written as protocol bytes in one piece.

**Once, whatever is repeated.** The server remembers ids for the dedupe window. It answers a repeated single publication
with the first position, but refuses a whole batch that holds a known id. Then each id is asked for by a *probe*: a
publication with that id and an expectation that cannot be met. A server that knows the id answers with its position;
another finds the expectation wrong; in neither case is anything written. Missing records are then appended as a batch
of their own. The same probe tells, after a wrong expected position, whether this append had already happened.

The two kinds of stream check in a different order, so the expectation differs: a stream with one replica looks at
ids after the expected position but before the expected last id; a replicated one looks at ids before the expected
position.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final

from tocsin.errors import Conflict, OutcomeUnknown, StoreFull, StoreUnavailable
from tocsin.ports import Record
from tocsin.store import rules
from tocsin.store.jetstream.stream import JetStream
from tocsin.store.jetstream.verdict import (
    BATCH_INCOMPLETE,
    DUPLICATE_IN_BATCH,
    WRONG_LAST_ID,
    WRONG_LAST_SEQUENCE,
    Passing,
    judge,
    read_answer,
)
from tocsin.store.nats.connection import Mailbox, NotSent, Unanswered
from tocsin.store.nats.protocol import Incoming, frame

CAUSE_S: Final = 1.0  # what a server that is alive needs at most to say that it is
_NEVER_ID: Final = b"Nats-Expected-Last-Msg-Id: %b\r\n" % (
    b"-" * (rules.ID_MAX_BYTES + 1)
)  # too long for an id
_NEVER_POSITION: Final = b"Nats-Expected-Last-Sequence: 18446744073709551614\r\n"  # 2⁶⁴ − 2


class Append:
    """The records of one append, and what became of each so far. ``attempt`` is called until it returns."""

    def __init__(
        self, stream: JetStream, operation: str, records: Sequence[Record], expected: int | None
    ) -> None:
        self._stream = stream
        self._connection = stream.connection
        self._operation = operation
        self._expected = expected
        once: dict[str, Record] = {}
        for record in records:
            once.setdefault(record.id, record)
        self._fresh = list(once.values())  # records whose position is not known yet
        self._unsure = False  # whether an attempt went unanswered, and may have happened in part
        self.positions: dict[str, int] = {}  # by record id
        self.attempts = 0
        self.repeats = 0  # records that were there already

    async def attempt(self, timeout_s: float) -> None:
        """Append what is not there yet, or raise why not."""
        self.attempts += 1
        while self._fresh:
            losses = self._connection.losses
            try:
                done = await self._publish(timeout_s)
            except Unanswered:
                self._unsure = True
                await self._explain_silence(losses)
                raise
            except StoreFull as error:
                if self._unsure and await self._probe(timeout_s):
                    raise OutcomeUnknown(self._operation, self._stream.deadline_s) from error
                raise
            if not done:
                await self._sort_out(timeout_s)

    async def _publish(self, timeout_s: float) -> bool:
        """Publish; False if the server knows some of the records already, or expects another position."""
        records = self._fresh
        with Mailbox(self._connection) as mailbox:
            mailbox.about = self._subjects
            await self._connection.send(_append_frames(records, self._expected, mailbox.address))
            reply = await mailbox.get(timeout_s)
        answer, error = read_answer(self._operation, reply.payload)
        if error is None:
            first = int(answer["seq"]) - len(records) + 1
            self.positions.update((record.id, first + i) for i, record in enumerate(records))
            self.repeats += bool(answer.get("duplicate"))
            self._fresh = []
            return True
        if error.err_code == DUPLICATE_IN_BATCH or error.err_code in WRONG_LAST_SEQUENCE:
            return False
        if error.err_code == BATCH_INCOMPLETE:
            await self._explain_incomplete()
        raise judge(self._operation, error)

    def _subjects(self) -> Iterable[str]:
        return (record.subject for record in self._fresh)

    async def _sort_out(self, timeout_s: float) -> None:
        """Keep what is not there yet, if it may still be appended."""
        known = await self._probe(timeout_s)
        self.positions.update(known)
        self.repeats += len(known)
        missing = [record for record in self._fresh if record.id not in known]
        if missing and self._expected is not None:
            newest = (await self._stream.bounds(self._operation)).newest
            if newest != self._expected:
                raise Conflict(self._operation, self._expected, newest)
        if len(missing) == len(self._fresh):
            raise Passing(self._operation, "the server is deciding on an earlier attempt")
        self._fresh = missing

    async def _probe(self, timeout_s: float) -> dict[str, int]:
        """The positions of those records that the server has; writes nothing."""
        never = _NEVER_ID if self._stream.replicas == 1 else _NEVER_POSITION
        known: dict[str, int] = {}
        with ExitStack() as stack:
            boxes = [stack.enter_context(Mailbox(self._connection)) for _ in self._fresh]
            for record, box in zip(self._fresh, boxes, strict=True):
                box.about = record.subject
            frames: list[bytes] = []
            for record, box in zip(self._fresh, boxes, strict=True):
                lines = b"Nats-Msg-Id: %b\r\n%b" % (record.id.encode(), never)
                frames.append(frame(record.subject, box.address, lines, b""))
            await self._connection.send(b"".join(frames))
            for record, box in zip(self._fresh, boxes, strict=True):
                position = _probed(self._operation, await box.get(timeout_s))
                if position is not None:
                    known[record.id] = position
        return known

    async def _explain_silence(self, losses: int) -> None:
        """Raise ``StoreFull`` if the server did not answer because it cannot write.

        A server whose disk is full drops publications without a word, but goes on to answer probes. A stream with one
        replica takes what comes over one connection in order: when it answers a probe and does not know the record
        before it, then it has dropped that record.
        """
        if self._stream.replicas > 1:
            return
        try:
            known = await self._probe(CAUSE_S)
        except (NotSent, Unanswered, StoreUnavailable):
            return
        if self._connection.losses == losses and len(known) < len(self._fresh):
            self._give_up(bool(known))

    async def _explain_incomplete(self) -> None:
        """Raise ``StoreFull`` if a batch was left incomplete because the server cannot stage even one message."""
        record = max(self._fresh, key=lambda each: len(each.payload))
        lines = b"Nats-Msg-Id: %b\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: 1\r\n" % (
            record.id.encode(),
            secrets.token_hex(8).encode(),
        )
        try:
            reply = await self._connection.ask(record.subject, record.payload, CAUSE_S, lines)
            if not reply.payload:
                return  # staged: it can write; the batch is not gone on with, and the server drops it after a while
            _, error = read_answer(self._operation, reply.payload)
            known = await self._probe(CAUSE_S)
        except (NotSent, Unanswered, StoreUnavailable):
            return
        if error is not None and error.err_code == BATCH_INCOMPLETE:
            self._give_up(bool(known))

    def _give_up(self, partly: bool) -> None:
        if partly:  # the disk was full in the middle of a batch
            raise OutcomeUnknown(self._operation, self._stream.deadline_s)
        raise StoreFull(self._operation, "the server cannot write to its disk; its output says why")


def _append_frames(records: list[Record], expected: int | None, reply: str) -> bytes:
    expectation = b"" if expected is None else b"Nats-Expected-Last-Sequence: %d\r\n" % expected
    if len(records) == 1:
        record = records[0]
        lines = b"Nats-Msg-Id: %b\r\n%b" % (record.id.encode(), expectation)
        return frame(record.subject, reply, lines, record.payload)
    batch = secrets.token_hex(8).encode()
    frames: list[bytes] = []
    last = len(records)
    for i, record in enumerate(records, 1):
        lines = b"Nats-Msg-Id: %b\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n%b" % (
            record.id.encode(),
            batch,
            i,
            expectation if i == 1 else b"Nats-Batch-Commit: 1\r\n" if i == last else b"",
        )
        frames.append(frame(record.subject, reply if i == last else "", lines, record.payload))
    return b"".join(frames)


def _probed(operation: str, reply: Incoming) -> int | None:
    """A probe's answer: the position, or None if the server does not know the id."""
    answer, error = read_answer(operation, reply.payload)
    if error is None:
        if not answer.get("duplicate"):
            raise Unanswered("a probe was taken for a record")
        return int(answer["seq"])
    if error.err_code == WRONG_LAST_ID or error.err_code in WRONG_LAST_SEQUENCE:
        return None
    raise judge(operation, error)
