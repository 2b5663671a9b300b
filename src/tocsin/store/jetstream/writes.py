"""First attempts of writes to a table on JetStream: a publication for each, or an atomic batch for a lot of them.

``store.jetstream.lots`` decides which. Each message of a batch has an expectation and a time to live of its own, as a
single write has. If one expectation is wrong the server takes nothing of the batch; then each write goes alone, and
the one that is wrong is told so. An answer that is lost leaves open whether the batch happened; each write finds that
out for itself, as after a lost answer of its own (``store.jetstream.table``).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from tocsin.errors import Forbidden
from tocsin.store.jetstream.lots import Lots
from tocsin.store.jetstream.stream import JetStream
from tocsin.store.jetstream.verdict import NO_BATCHES, Passing, ServerError, read_answer
from tocsin.store.nats.connection import Mailbox, NotSent, Unanswered
from tocsin.store.nats.protocol import frame

ALONE: Final = 0  # no position: the write has to go alone
# Writers of a lot that go on in one turn of the loop. Each may have a client to welcome, and others wait for that turn.
TOLD_AT_ONCE: Final = 32


class _Write:
    """A write; while it waits, what becomes of it: its position, or ALONE."""

    __slots__ = ("lines", "outcome", "size", "subject", "value")

    def __init__(self, subject: str, value: bytes, lines: bytes) -> None:
        self.subject = subject
        self.value = value
        self.size = len(value)
        self.lines = lines
        self.outcome: asyncio.Future[int] | None = None

    def settle(self, position: int) -> None:
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_result(position)

    def fail(self, problem: str) -> None:
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_exception(Unanswered(problem))


class Writes:
    """The writes of one table."""

    def __init__(self, stream: JetStream, operation: str) -> None:
        self._connection = stream.connection
        self._operation = operation
        self._lots: Lots[_Write] = Lots()
        self._lot: asyncio.Task[None] | None = None  # that is under way

    async def publish(
        self, subject: str, value: bytes, lines: bytes, timeout_s: float
    ) -> tuple[int, ServerError | None]:
        """Write: the position, or the server's error. Raises as ``Connection.ask`` does."""
        write = _Write(subject, value, lines)
        try:
            if not self._lots.comes(write):
                write.outcome = asyncio.get_running_loop().create_future()
                self._go_on(timeout_s)
                position = await write.outcome
                if position != ALONE:
                    return position, None
            reply = await self._connection.ask(subject, value, timeout_s, lines)
        except (NotSent, Unanswered):
            for other in self._lots.give_way():
                other.settle(ALONE)
            raise
        finally:
            self._lots.left(write)
            self._go_on(timeout_s)
        answer, error = read_answer(self._operation, reply.payload)
        return (int(answer["seq"]), None) if error is None else (ALONE, error)

    def _go_on(self, timeout_s: float) -> None:
        """Something came, or ended: let those go that may."""
        while ready := self._lots.ready():
            if len(ready) == 1:
                ready[0].settle(ALONE)
            else:
                self._lot = asyncio.get_running_loop().create_task(self._publish_lot(ready, timeout_s))

    async def _publish_lot(self, lot: Sequence[_Write], timeout_s: float) -> None:
        """Write a lot, and tell each write what became of it."""
        newest, problem = ALONE, ""
        try:
            newest = await self._ask(lot, timeout_s)
        except Unanswered as error:
            problem = str(error)
        except (NotSent, Passing, Forbidden):
            pass  # each is told by itself
        finally:
            self._lots.lot_ended(happened=newest != ALONE)
        for number, write in enumerate(lot, 1):
            if problem:
                write.fail(problem)
            else:
                write.settle(ALONE if newest == ALONE else newest - len(lot) + number)
            if number % TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._go_on(timeout_s)

    async def _ask(self, lot: Sequence[_Write], timeout_s: float) -> int:
        """The position of the last; ALONE if the server takes none of them."""
        with Mailbox(self._connection) as mailbox:
            mailbox.about = lambda: (write.subject for write in lot)
            await self._connection.send(_frames(lot, mailbox.address))
            reply = await mailbox.get(timeout_s)
        answer, error = read_answer(self._operation, reply.payload)
        if error is None:
            return int(answer["seq"])
        if error.err_code == NO_BATCHES:
            self._lots.enabled = False
        return ALONE


def _frames(lot: Sequence[_Write], reply: str) -> bytes:
    batch = secrets.token_hex(8).encode()
    last = len(lot)
    return b"".join(
        frame(
            write.subject,
            reply if place == last else "",
            b"%bNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n%b"
            % (write.lines, batch, place, b"Nats-Batch-Commit: 1\r\n" if place == last else b""),
            write.value,
        )
        for place, write in enumerate(lot, 1)
    )
