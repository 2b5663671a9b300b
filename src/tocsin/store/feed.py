"""A stream's messages as they come, from a position on: without gaps, without repeats, across every loss of connection.

A feed holds an ephemeral pull consumer on the server. The consumer numbers what it delivers; a number that is not
the next one, a heartbeat that does not come, a lost connection or a consumer that is gone all end in the same way:
a new consumer from the position after the last message that was handed on. So nothing has to be acknowledged or
kept by the server.

In a cluster a consumer is on one server, and gets what that server's replica has. A replica that cannot write any more
(its disk failed) goes on with heartbeats, as if there were nothing new. So a feed that hears only heartbeats asks the
leader now and then for what comes next; if the same message is still not there at the next heartbeat, the consumer
is given up as well, and the next one is, sooner or later, on another server.

The feed asks for a window of messages and for more when half of it is used, so what waits in memory is bounded
however slow the reader is, and a slow reader costs nobody else anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import msgspec

from tocsin.errors import StoreUnavailable, TocsinError
from tocsin.store.connection import Incoming, Listener, NotSent, Unanswered, frame
from tocsin.store.stream import PAUSE_MAX_S, PAUSE_S, Stored, Stream
from tocsin.store.verdict import judge, read_answer

WINDOW: Final = 512  # messages asked for ahead of the reader
WINDOW_MAX_BYTES: Final = 16 << 20  # and their bytes, at most
HEARTBEAT_S: Final = 2.0  # how often an idle server says that it is there
SILENCE_S: Final = 5.0  # two heartbeats and a margin: then the consumer is given up
EXPIRY_S: Final = 30.0  # how long the server holds a request for messages that do not come
LOOK_EVERY: Final = 3  # heartbeats in a row before the leader is asked whether there is really nothing
LOOK_S: Final = (
    1.0  # for its answer; whoever cannot append, for want of a leader, has nothing new for us either
)
UNHEARD_MAX: Final = 20  # with a pause each, one second: then the consumer is given up
INACTIVE_S: Final = 60.0  # the server removes a consumer that nobody asks for this long


class Begun(msgspec.Struct, frozen=True):
    """A consumer was made, the first or after a loss. ``newest`` was the stream's last position shortly before."""

    newest: int


class Idle(msgspec.Struct, frozen=True):
    """There is nothing more at present, although more was expected: it was removed before it could be delivered."""


class _Lost(Exception):
    """The consumer cannot be gone on with; make another."""


class Feed:
    """Messages of one pattern. ``check`` is called with (next position, oldest kept) and may refuse to go on."""

    def __init__(
        self,
        stream: Stream,
        operation: str,
        pattern: str,
        start: int,
        check: Callable[[int, int], None] | None = None,
        *,
        rewind: bool = False,
    ) -> None:
        self._stream = stream
        self._connection = stream.connection
        self._operation = operation
        self._pattern = pattern
        self._start = start  # the position after the last message that was handed on
        self._check = check
        self._rewind = rewind  # whether a new consumer begins at the beginning again
        self._queue: asyncio.Queue[Incoming | None] = asyncio.Queue()  # bounded by _credit
        self._consumer = ""
        self._credit = 0  # messages that the server may still send for what was asked
        self._beats = 0  # heartbeats since the last message
        self._owed = (
            0  # the position of a message that the leader had at the last heartbeat, and we did not get
        )
        self.restarts = -1  # consumers made after the first
        self.pending = 0  # messages behind the one handed on last, as the server knew it then

    async def messages(self) -> AsyncGenerator[Stored | Begun | Idle, None]:
        """``Begun``, then messages for ever; raises what ``check`` raises, or when the store is closed."""
        pause_s = PAUSE_S
        origin = self._start
        while True:
            listener: Listener | None = None
            self._queue = asyncio.Queue()
            self._connection.lost.add(self._lose)
            try:
                if self._rewind:
                    self._start = origin
                inbox = f"_INBOX.{secrets.token_hex(11)}"
                listener = await self._connection.listen(inbox, "", self._queue.put_nowait)
                yield await self._create()
                async with aclosing(self._consume(inbox)) as messages:
                    async for message in messages:
                        pause_s = PAUSE_S
                        yield message
            except (_Lost, NotSent, Unanswered, StoreUnavailable):
                self._connection.check_open(self._operation)
            finally:
                self._connection.lost.discard(self._lose)
                if listener is not None:
                    await listener.stop()
                await self._remove()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _lose(self) -> None:
        self._queue.put_nowait(None)

    async def _create(self) -> Begun:
        newest = await self._look()
        name = secrets.token_hex(8)
        config = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, self._start),
            "filter_subject": self._pattern,
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(INACTIVE_S * 1e9),
        }
        if self._pattern == ">":
            del config["filter_subject"]
        request = msgspec.json.encode(
            {"stream_name": self._stream.name, "config": config, "action": "create"}
        )
        subject = f"$JS.API.CONSUMER.CREATE.{self._stream.name}.{name}"
        reply = await self._connection.ask(subject, request, SILENCE_S)
        answer, error = read_answer(self._operation, reply.payload)
        if error is not None:
            raise judge(self._operation, error)
        self._consumer = name
        self._credit = self._beats = 0  # not what is owed: the next consumer may be on the same server
        self.restarts += 1
        self.pending = int(answer.get("num_pending", 0))
        return Begun(newest)

    async def _look(self) -> int:
        """Check that what comes next is still kept; the stream's last position."""
        bounds = await self._stream.bounds(self._operation)
        if self._check is not None:
            self._check(self._start, bounds.oldest)
        return bounds.newest

    async def _consume(self, inbox: str) -> AsyncGenerator[Stored | Idle, None]:
        delivered = 0
        # Requests that reached nobody: in a cluster a new consumer is not known everywhere at once.
        unheard = 0
        while True:
            if self._credit <= WINDOW // 2:
                if self._credit == 0 and delivered and self._check is not None:
                    await self._look()  # it may have fallen so far behind that what it needs is gone
                await self._ask_for(WINDOW - self._credit, inbox)
            message = await self._next()
            if message.status == "503" and unheard < UNHEARD_MAX:
                unheard += 1
                self._credit = 0
                await asyncio.sleep(PAUSE_S)
                continue
            if message.status:
                self._note(message)
                if message.status == "100":
                    if self.pending:
                        self.pending = 0
                        yield Idle()
                    await self._doubt()
                continue
            number, stored, pending = _place(message, self._consumer)
            if number != delivered + 1:
                raise _Lost("a message is missing")
            delivered = number
            self._beats = self._owed = 0
            self._credit -= 1
            self._start = stored.position + 1
            self.pending = pending
            yield stored

    async def _doubt(self) -> None:
        """There was a heartbeat, and no message: give the consumer up if its server does not get what there is."""
        self._beats += 1
        if self._stream.replicas == 1 or not (self._owed or self._beats % LOOK_EVERY == 0):
            return
        if not self._queue.empty():
            return  # the reader was slow, and what is owed may be there
        owed = 0
        with contextlib.suppress(TimeoutError, TocsinError):  # then nobody knows of more
            async with asyncio.timeout(LOOK_S):
                found = await self._stream.next_for(self._operation, self._pattern, self._start)
            owed = 0 if found is None else found.position
        if owed and owed == self._owed:
            raise _Lost("the replica that the consumer is on is stuck")
        self._owed = owed

    async def _ask_for(self, count: int, inbox: str) -> None:
        request = {
            "batch": count,
            "max_bytes": WINDOW_MAX_BYTES,
            "expires": int(EXPIRY_S * 1e9),
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream.name}.{self._consumer}"
        await self._connection.send(frame(subject, inbox, b"", msgspec.json.encode(request)))
        self._credit += count

    async def _next(self) -> Incoming:
        try:
            async with asyncio.timeout(SILENCE_S):
                message = await self._queue.get()
        except TimeoutError:
            raise _Lost("the server is silent") from None
        if message is None:
            raise _Lost("the connection was lost")
        return message

    def _note(self, message: Incoming) -> None:
        """A message about the request: a heartbeat, its end, or the end of the consumer."""
        words = message.headers.get("Description", "")
        if message.status == "100":
            return
        if message.status in ("404", "408") or (message.status == "409" and "Batch" in words):
            unused = int(message.headers.get("Nats-Pending-Messages", "0"))
            self._credit = max(0, self._credit - unused)
            return
        raise _Lost(f"{message.status} {words}")

    async def _remove(self) -> None:
        """Let the server forget the consumer, if it can be told; else it does so by itself."""
        if not self._consumer:
            return
        subject = f"$JS.API.CONSUMER.DELETE.{self._stream.name}.{self._consumer}"
        self._consumer = ""
        try:
            await self._connection.send(frame(subject, "", b"", b""))
        except NotSent:
            return


def _place(message: Incoming, consumer: str) -> tuple[int, Stored, int]:
    """The consumer's number of a message, the message itself, and how many are behind it; from its reply subject.

    ``$JS.ACK.[domain.account.]stream.consumer.deliveries.position.number.nanoseconds.pending[.…]``
    """
    tokens = message.reply.split(".")
    at = 2 if len(tokens) == 9 else 4
    try:
        if tokens[at + 1] != consumer:
            raise ValueError
        position, number, nanoseconds, pending = (int(token) for token in tokens[at + 3 : at + 7])
    except (IndexError, ValueError):
        raise _Lost("a message of somebody else's") from None
    stored = Stored(position, message.subject, message.payload, message.headers, nanoseconds // 1_000)
    return number, stored, pending
