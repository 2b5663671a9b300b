"""A stream's messages as they come, from a position on: without gaps, without repeats, across every loss of connection.

A follower holds an ephemeral pull consumer on the server. The consumer numbers what it delivers; a number that is not
the next one, a heartbeat that does not come, a lost connection or a consumer that is gone all end in the same way:
a new consumer from the position after the last message that was handed on. So nothing has to be acknowledged or
kept by the server.

In a cluster a consumer is on one server, and gets what that server's replica has. A replica that cannot write any more
(its disk failed) goes on with heartbeats, as if there were nothing new. So a follower that hears only heartbeats asks
the leader now and then for what comes next; if the same message is still not there at the next heartbeat, the consumer
is given up as well, and the next one is, sooner or later, on another server.

The follower asks for a window of messages and for more when half of it is used, so what waits in memory is bounded
however slow the reader is, and a slow reader costs nobody else anything. Each such request is a *pull*. The server ends
a pull when its messages, its bytes or its time are used up, and the follower asks again: the end of a pull is no loss.
``_MEANING`` says which words of the server end a pull, and which end the consumer.

In a cluster the consumer's server may be lost while ours is well, so that heartbeats come for as long as a pull lasts.
A server that is alone is lost with its connection, and says why it ends a consumer. A follower that has everything then
asks for a pull without heartbeats (*at rest*), which lasts REST_S: its end is the only sign of life.

A follower of a **selection** is handed only what matches its patterns, and tells how far it is all the same
(``Reached``). A heartbeat says how many messages the consumer has sent, and up to which position it has looked, by what
its own server has. If we got as many, nothing that matches is missing up to there. A short pull brings such a heartbeat
soon (``hasten``). It rests when two heartbeats in a row name the same position, for SELECTION_REST_S.

A follower that rewinds tells its reader everything again after a loss. If it is lost again before it was through, it
pauses twice as long each time, up to ``REWIND_PAUSE_MAX_S``, and says so in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Literal

import msgspec
import structlog

from tocsin.errors import StoreUnavailable, TocsinError
from tocsin.ports import Begun, Reached
from tocsin.store.jetstream.stream import PAUSE_MAX_S, PAUSE_S, JetStream, Stored
from tocsin.store.jetstream.verdict import judge, read_answer
from tocsin.store.nats.connection import Listener, NotSent, Unanswered
from tocsin.store.nats.protocol import Incoming, frame

WINDOW: Final = 512  # messages asked for ahead of the reader
WINDOW_MAX_BYTES: Final = 16 << 20  # and their bytes, at most
HEARTBEAT_S: Final = 2.0  # how often an idle server says that it is there
SILENCE_S: Final = (
    3.0  # a heartbeat and a margin: then there is another pull, and then the consumer is given up
)
EXPIRY_S: Final = 30.0  # how long the server holds a request for messages that do not come
ALONE_EXPIRY_S: Final = 4.0  # … a server that is alone, until there is nothing more to expect
REST_S: Final = 120.0  # … and from then on
SELECTION_REST_S: Final = 30.0  # … of a selection: while it rests, nothing tells how far it is
LOOK_EVERY: Final = 3  # heartbeats in a row before the leader is asked whether there is really nothing
SELECTION_DOUBTS: Final = (
    2  # looks before a selection is given up: a heartbeat may be as old as the one before it
)
LOOK_S: Final = (
    1.0  # for its answer; a stream without a leader takes no appends, and has nothing new for us either
)
UNHEARD_MAX: Final = 20  # with a pause each, one second: then the consumer is given up
INACTIVE_S: Final = 60.0  # the server removes a consumer that nobody asks for this long
CREATE_S: Final = 5.0  # for the server's answer that the consumer is there
HASTY_PULL_S: Final = 0.012  # a pull that only brings a heartbeat, twice …
HASTY_BEAT_S: Final = 0.004  # … since the server sends the first before it has looked again, now and then
REWIND_PAUSE_MAX_S: Final = (
    30.0  # between attempts of a follower that rewinds and is lost on its way, each time
)
LOST_SAID: Final = 2  # losses in a row, without progress between them, before the log says so

_log = structlog.get_logger("tocsin.store")

Meaning = Literal["beat", "ended", "lost"]

# A server's statuses of a pull, by status and first words of its description; any other is a loss. From
# nats-server 2.15, server/consumer.go.
_MEANING: Final[tuple[tuple[str, str, Meaning], ...]] = (
    ("100", "", "beat"),  # Idle Heartbeat
    ("404", "", "ended"),  # No Messages
    ("408", "", "ended"),  # Request Timeout, Interest Expired, Requests Pending
    ("409", "batch completed", "ended"),  # all messages were sent, and bytes are left
    ("409", "message size exceeds maxbytes", "ended"),  # bytes are used up, and messages are left
    ("409", "exceeded maxwaiting", "lost"),  # too many pulls: none of ours can be relied on
    ("409", "exceeded maxrequest", "lost"),  # a bound of the account on batch, bytes or expiry of a pull
    ("409", "consumer deleted", "lost"),
    ("409", "consumer is push based", "lost"),  # somebody else's consumer has our name
    ("409", "leadership change", "lost"),  # the new leader does not know our pulls
    ("409", "server shutdown", "lost"),
    ("400", "", "lost"),  # Bad Request
    ("412", "", "lost"),  # Required Api Level
    ("423", "", "lost"),  # pinned to somebody else
    ("503", "", "lost"),  # nobody has the consumer; a new one gets some patience first (UNHEARD_MAX)
)


def meaning(status: str, words: str) -> Meaning:
    """The meaning of a server's status for the follower."""
    low = words.lower()
    for code, beginning, found in _MEANING:
        if status == code and low.startswith(beginning):
            return found
    return "lost"


class Idle(msgspec.Struct, frozen=True):
    """There is nothing more at present, although more was expected: it was removed before it could be delivered."""


class _Lost(Exception):
    """The consumer cannot be gone on with; make another."""


class Follower:
    """Messages of some patterns. ``check`` is called with (next position, oldest kept) and may refuse to go on."""

    def __init__(
        self,
        stream: JetStream,
        operation: str,
        patterns: Sequence[str],
        start: int,
        check: Callable[[int, int], None] | None = None,
        *,
        rewind: bool = False,
        tells: bool = False,
    ) -> None:
        self._stream = stream
        self._connection = stream.connection
        self._operation = operation
        self._patterns = tuple(patterns)
        self._start = start  # the position after the last message that was handed on
        self._check = check
        self._rewind = rewind  # whether a new consumer begins at the beginning again
        self._tells = tells  # whether ``Reached`` is told
        self._seen = 0  # the position that the last heartbeat named
        self._still = False  # … and the one before it, too
        self._inbox = ""
        self._queue: asyncio.Queue[Incoming | None] = asyncio.Queue()  # bounded by _credit
        self._consumer = ""
        self._credit = 0  # messages that the server may still send for what was asked
        self._barren = (
            False  # whether two pulls in a row ended for want of bytes, with no message between them
        )
        self._fruitless = False  # whether one did, with no message since
        self._through = False  # whether this consumer has come to the end of what there was
        self._beats = 0  # heartbeats since the last message
        self._owed = (
            0  # the position of a message that the leader had at the last heartbeat, and we did not get
        )
        self._doubts = 0  # looks in a row that found the same
        self._resting = False  # whether the newest pull has no heartbeats
        self._pulled_bytes = 0  # that came since it was asked for
        self.restarts = -1  # consumers made after the first
        self.pending = 0  # messages behind the one handed on last, as the server knew it then

    async def messages(self) -> AsyncGenerator[Stored | Begun | Idle | Reached, None]:
        """``Begun``, then messages for ever, and ``Reached`` if it tells that. Raises what ``check`` raises, or when
        the store is closed."""
        pause_s, losses = PAUSE_S, 0
        origin = self._start
        while True:
            reached = -1  # the position that this consumer came to, if it was made
            listener: Listener | None = None
            self._queue = asyncio.Queue()
            self._connection.lost.add(self._lose)
            try:
                if self._rewind:
                    self._start = origin
                inbox = self._inbox = self._connection.new_inbox()
                listener = await self._connection.listen(inbox, "", self._queue.put_nowait)
                yield await self._create()
                reached = self._start
                async with aclosing(self._consume()) as messages:
                    async for message in messages:
                        if self._through or not self._rewind:
                            pause_s, losses = PAUSE_S, 0
                        reached = self._start
                        yield message
            except (_Lost, NotSent, Unanswered, StoreUnavailable) as error:
                self._connection.check_open(self._operation)
                losses += 1
                if losses >= LOST_SAID and reached >= 0:
                    self._say_lost(error, losses, reached, pause_s)
            finally:
                self._connection.lost.discard(self._lose)
                if listener is not None:
                    await listener.stop()
                await self._remove()
            await asyncio.sleep(pause_s)
            # A rewind costs the server and its reader the whole way again; a server that is away costs nothing.
            longest_s = REWIND_PAUSE_MAX_S if self._rewind and reached >= 0 else PAUSE_MAX_S
            pause_s = min(2 * pause_s, longest_s)

    def _say_lost(self, error: Exception, losses: int, reached: int, pause_s: float) -> None:
        _log.warning(
            "a follower of the store is lost again and again",
            operation=self._operation,
            problem=str(error),
            losses=losses,
            position=reached,
            rewinds=self._rewind,
            pause_s=pause_s,
        )

    def _lose(self) -> None:
        self._queue.put_nowait(None)

    async def _create(self) -> Begun:
        newest = await self._look()
        name = secrets.token_hex(8)
        config: dict[str, object] = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, self._start),
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(INACTIVE_S * 1e9),
        }
        if len(self._patterns) > 1:
            config["filter_subjects"] = self._patterns
        elif self._patterns != (">",):
            config["filter_subject"] = self._patterns[0]
        request = msgspec.json.encode(
            {"stream_name": self._stream.name, "config": config, "action": "create"}
        )
        subject = f"$JS.API.CONSUMER.CREATE.{self._stream.name}.{name}"
        reply = await self._connection.ask(subject, request, CREATE_S)
        answer, error = read_answer(self._operation, reply.payload)
        if error is not None:
            raise judge(self._operation, error)
        self._consumer = name
        self._credit = self._beats = 0  # not what is owed: the next consumer may be on the same server
        self._barren = self._fruitless = self._resting = self._still = False
        self._seen = 0
        self.restarts += 1
        self.pending = int(answer.get("num_pending", 0))
        self._through = self.pending == 0
        return Begun(newest)

    async def _look(self) -> int:
        """Check that what comes next is still kept; the stream's last position."""
        bounds = await self._stream.bounds(self._operation)
        if self._check is not None:
            self._check(self._start, bounds.oldest)
        return bounds.newest

    async def hasten(self) -> None:
        """Have a heartbeat soon."""
        if not self._consumer:
            return  # a new one looks at what there is
        with contextlib.suppress(NotSent):
            await self._pull(1, HASTY_PULL_S, HASTY_BEAT_S)

    async def _consume(self) -> AsyncGenerator[Stored | Idle | Reached, None]:
        delivered = 0
        # Requests that reached nobody: in a cluster a new consumer is not known everywhere at once.
        unheard = 0
        while True:
            if self._credit <= WINDOW // 2:
                if self._credit == 0 and delivered and self._check is not None:
                    await self._look()  # it may have fallen so far behind that what it needs is gone
                await self._ask_for(WINDOW - self._credit)
            message = await self._next()
            if message.status == "503" and unheard < UNHEARD_MAX:
                unheard += 1
                self._credit = 0
                await asyncio.sleep(PAUSE_S)
                continue
            if message.status:
                self._note(message)
                if message.status == "100":
                    self._through = True
                    if self.pending:
                        self.pending = 0
                        yield Idle()
                    if self._tells and self._looked_on(message, delivered):
                        yield Reached(self._start - 1)
                    await self._doubt()
                continue
            number, stored, pending = _place(message, self._consumer)
            if number != delivered + 1:
                raise _Lost("a message is missing")
            delivered = number
            self._beats = self._owed = 0
            self._barren = self._fruitless = self._still = False
            self._credit -= 1
            self._start = stored.position + 1
            self._pulled_bytes += stored.bytes
            self.pending = pending
            self._through = self._through or pending == 0
            yield stored

    def _looked_on(self, beat: Incoming, delivered: int) -> bool:
        """Whether a heartbeat says that the consumer has looked further than we knew, and we have all that it found."""
        seen = int(beat.headers.get("Nats-Last-Stream", "0"))
        self._still, self._seen = seen == self._seen, seen
        if seen < self._start or int(beat.headers.get("Nats-Last-Consumer", "-1")) != delivered:
            return False
        self._start = seen + 1
        self._owed = 0
        return True

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
                owed = await self._next_position()
        self._doubts = self._doubts + 1 if owed and owed == self._owed else 0
        if self._doubts >= (SELECTION_DOUBTS if self._tells else 1):
            raise _Lost("the replica that the consumer is on is stuck")
        self._owed = owed

    async def _next_position(self) -> int:
        """The position that comes next, as the leader knows it; 0: there is nothing. Of a selection any position will
        do, as its heartbeats go on with the log."""
        if self._tells:
            return self._start if await self._newest() >= self._start else 0
        (pattern,) = self._patterns
        found = await self._stream.next_for(self._operation, pattern, self._start)
        return 0 if found is None else found.position

    async def _newest(self) -> int:
        return (await self._stream.bounds(self._operation)).newest

    def _may_rest(self) -> bool:
        """Whether nothing more is expected, and a loss would be heard."""
        return (self._still or not self._tells) and self._is_calm()

    def _is_calm(self) -> bool:
        return self._through and not self.pending and self._stream.replicas == 1 and self._connection.alone

    def _rest_s(self) -> float:
        return SELECTION_REST_S if self._tells else REST_S

    def _patience_s(self) -> float:
        """How long the server may be silent. A pull of which much was used may have ended without a word."""
        rests = self._resting and self._is_calm() and self._pulled_bytes < WINDOW_MAX_BYTES // 2
        return self._rest_s() + SILENCE_S - HEARTBEAT_S if rests else SILENCE_S

    async def _ask_for(self, count: int, *, rest: bool = True) -> None:
        """A pull. One message that no pull has room for, which somebody else wrote, is asked for by itself."""
        count = 1 if self._barren else count
        self._resting, self._pulled_bytes = rest and self._may_rest() and not self._barren, 0
        max_bytes = None if self._barren else WINDOW_MAX_BYTES
        if self._resting:
            self._still = False  # the next one has heartbeats again
            await self._pull(count, self._rest_s(), None, max_bytes)
        else:
            expiry_s = ALONE_EXPIRY_S if self._connection.alone else EXPIRY_S
            await self._pull(count, expiry_s, HEARTBEAT_S, max_bytes)

    async def _pull(
        self, count: int, expiry_s: float, beat_s: float | None, max_bytes: int | None = None
    ) -> None:
        request: dict[str, int] = {"batch": count, "expires": int(expiry_s * 1e9)}
        if beat_s is not None:
            request["idle_heartbeat"] = int(beat_s * 1e9)
        if max_bytes is not None:
            request["max_bytes"] = max_bytes
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream.name}.{self._consumer}"
        await self._connection.send(frame(subject, self._inbox, b"", msgspec.json.encode(request)))
        self._credit += count

    async def _next(self) -> Incoming:
        """The server's next message. A pull whose bytes are used up to the last one ends without a word: hence two."""
        for again in (True, False):
            try:
                if self._queue.empty():
                    async with asyncio.timeout(self._patience_s()):
                        message = await self._queue.get()
                else:
                    message = self._queue.get_nowait()  # a timer for each would cost more than the rest of it
                break
            except TimeoutError:
                if not again:
                    raise _Lost("the server is silent") from None
                self._credit = 0
                await self._ask_for(WINDOW, rest=False)
        if message is None:
            raise _Lost("the connection was lost")
        return message

    def _note(self, message: Incoming) -> None:
        """A message about a pull: a heartbeat, its end, or the end of the consumer."""
        words = message.headers.get("Description", "")
        meant = meaning(message.status, words)
        if meant == "lost":
            raise _Lost(f"{message.status} {words}")
        if meant == "ended":
            unused = int(message.headers.get("Nats-Pending-Messages", "0"))
            self._credit = max(0, self._credit - unused)
            if "maxbytes" in words.lower():
                self._barren = self._fruitless
                self._fruitless = True

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
