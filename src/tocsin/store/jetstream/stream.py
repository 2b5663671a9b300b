"""One JetStream stream, asked from outside: its bounds, its messages by subject and position, its newest and oldest.

Logs and tables are both streams; this is what they share. Every method tries until it succeeds, is refused for good,
or ``deadline_s`` has passed.

**Reads do not skip.** A page is read with batched direct gets, which any replica may answer, and a replica may be a
little behind. With one replica, the newest and the oldest message are asked for in the same write as the page, and
before it, so the server answers all three in that order and what the page does not show up to "newest" does not
exist. With several replicas the leader is asked for the bounds first, and after a page that is not full whether it
knows of a further message; only then is the reader sent past the end.

**Fresh reads.** A server that answers as the leader may be deposed. A server that was deposed, because it was cut off
from the others or stood still, goes on to answer with what it knew then, until it hears of its successor or has heard
of no quorum for ten seconds. It cannot write, though: a write needs a quorum. So a fresh read first writes a *mark*, a
small message on a subject that nobody reads, and then believes only an answer that shows the mark or a later one: it
shows everything that was acknowledged before the read was asked for. A stream with one replica needs none: nobody else
can answer for it. In a table marks on one subject replace each other, as all values do. In a log they go by themselves
after some seconds, and readers pass over them. (By a header they could replace each other there too; but the same
header, with another word, purges a log.)

**Direct gets** go over a connection of their own where servers have an account for them (``store.jetstream.reads``).
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Final, TypeVar

import msgspec

from tocsin.errors import Forbidden, OutcomeUnknown, StoreUnavailable
from tocsin.ports import READ_MAX, Usage
from tocsin.store import rules
from tocsin.store.jetstream.reads import Reads
from tocsin.store.jetstream.verdict import NO_MESSAGE, NO_TTL, Passing, judge, read_answer
from tocsin.store.nats.connection import Connection, Mailbox, NotSent, Unanswered
from tocsin.store.nats.protocol import Incoming, frame

ATTEMPT_S: Final = 2.0  # how long the first attempt waits for its answer; each further one twice that
PAUSE_S: Final = 0.05  # before the second attempt; doubles up to PAUSE_MAX_S
PAUSE_MAX_S: Final = 1.0
BEHIND: Final = "the server that answers is behind"
TOO_MANY: Final = "413"  # subjects match: a server shows the last of 1 024
PAGE_MAX_BYTES: Final = 16 << 20  # what one page may carry; it is cut short there
MARK: Final = (
    "$mark"  # the token of a mark's subject in the place of a wildcard: no topic or key of ours has it
)
MARK_TTL_S: Final = 10  # of a mark in a log; readers have to pass over marks, so they should be few
MARK_RENEW_S: Final = 5.0  # a read that still looks for its mark then writes another
MARKS_MAX: Final = 256  # messages that are asked for at once to pass over marks
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_HEADERS_BY_SERVER: Final = frozenset(
    {
        "Nats-Stream",
        "Nats-Subject",
        "Nats-Sequence",
        "Nats-Time-Stamp",
        "Nats-Num-Pending",
        "Nats-Last-Sequence",
    }
)

T = TypeVar("T")


class Stored(msgspec.Struct, frozen=True):
    """A message as the stream keeps it."""

    position: int
    subject: str
    payload: bytes
    headers: dict[str, str]
    at_us: int

    @property
    def bytes(self) -> int:
        """Its bytes in the server's file: 34 around subject, headers and payload."""
        lines = sum(len(k) + len(v) + 4 for k, v in self.headers.items() if k not in _HEADERS_BY_SERVER)
        return 46 + len(self.subject.encode()) + lines + len(self.payload)


class Bounds(msgspec.Struct, frozen=True):
    """Where a stream begins and ends: ``oldest`` is ``newest + 1`` when it is empty."""

    oldest: int
    newest: int
    bytes: int
    now: datetime  # by the server's clock


class Slice(msgspec.Struct, frozen=True):
    """A page of a stream, and the stream's ends when it was read."""

    messages: tuple[Stored, ...]
    next: int
    oldest: int
    newest: int


async def persist(
    connection: Connection,
    operation: str,
    deadline_s: float,
    attempt: Callable[[float], Awaitable[T]],
    *,
    writes: bool = False,
) -> T:
    """Call ``attempt`` with the time it may take until it succeeds or raises something final.

    When time is up: ``OutcomeUnknown`` if a write may have happened unanswered, else ``StoreUnavailable``.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    wait_s, pause_s = ATTEMPT_S, PAUSE_S
    unanswered = False
    while True:
        connection.check_open(operation)
        try:
            await connection.wait_connected(end_s - loop.time())
            return await attempt(min(wait_s, max(0.001, end_s - loop.time())))
        except Unanswered as error:
            unanswered = True
            wait_s *= 2
            reason = str(error)
        except NotSent as error:
            reason = str(error)
        except Passing as error:
            connection.check_open(operation)
            reason = error.reason
        if loop.time() + pause_s >= end_s:
            if unanswered and writes:
                raise OutcomeUnknown(operation, deadline_s)
            raise StoreUnavailable(operation, f"{reason}, for {deadline_s:g} s")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


class JetStream:
    """A stream by its name."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        replicas: int,
        deadline_s: float,
        reads: Reads | None = None,
    ) -> None:
        self.connection = connection
        self._reads = reads or Reads(connection)
        self.name = name
        self.replicas = replicas
        self.deadline_s = deadline_s

    async def api(
        self, operation: str, verb: str, request: object, *, writes: bool = False
    ) -> dict[str, Any]:
        """A request to JetStream's API about this stream; errors are judged."""
        payload = msgspec.json.encode(request)

        async def attempt(timeout_s: float) -> dict[str, Any]:
            reply = await self.connection.ask(f"$JS.API.{verb}.{self.name}", payload, timeout_s)
            answer, error = read_answer(operation, reply.payload)
            if error is not None:
                raise judge(operation, error)
            return answer

        return await persist(self.connection, operation, self.deadline_s, attempt, writes=writes)

    async def bounds(self, operation: str) -> Bounds:
        answer = await self.api(operation, "STREAM.INFO", {})
        state = answer["state"]
        newest = int(state["last_seq"])
        oldest = int(state["first_seq"]) if state["messages"] else newest + 1
        return Bounds(oldest, newest, int(state["bytes"]), datetime.fromisoformat(answer["ts"]))

    async def usage(self, operation: str) -> Usage:
        """The bytes that it holds, and its messages."""
        state = (await self.api(operation, "STREAM.INFO", {}))["state"]
        return Usage(int(state["bytes"]), int(state["messages"]))

    async def last_for(self, operation: str, subject: str) -> Stored | None:
        """The newest message of a subject, as the leader knows it."""
        if self.replicas == 1:
            return await self._direct_one(operation, {"last_by_subj": subject})
        return await self._leader_one(operation, {"last_by_subj": subject})

    async def next_for(self, operation: str, pattern: str, start: int) -> Stored | None:
        """The first message of a pattern from a position on, as the leader knows it."""
        return await self._leader_one(operation, {"seq": max(1, start), "next_by_subj": pattern})

    async def mark(self, operation: str, subject: str) -> int:
        """Write a mark: its position is beyond everything that was acknowledged before."""
        lines = b"" if self.name.startswith("KV_") else b"Nats-TTL: %ds\r\n" % MARK_TTL_S

        async def attempt(timeout_s: float) -> int:
            assert is_mark(subject), "a mark replaces what is on its subject"
            reply = await self.connection.ask(subject, b"", timeout_s, lines)
            answer, error = read_answer(operation, reply.payload)
            if error is not None and error.err_code == NO_TTL:  # nobody has adapted the stream yet
                reply = await self.connection.ask(subject, b"", timeout_s)
                answer, error = read_answer(operation, reply.payload)
            if error is not None:
                raise judge(operation, error)
            return int(answer["seq"])

        return await persist(self.connection, operation, self.deadline_s, attempt)  # twice does no harm

    async def fresh_last_for(self, operation: str, pattern: str, marks: str) -> Stored | None:
        """The newest message of a subject or of a pattern that few subjects match, by one answer that has the mark too.

        ``marks``: the subject of the mark.
        """
        if self.replicas == 1:
            return await self.last_for(operation, pattern)
        mark = _Mark(self, operation, marks)
        request = {"multi_last": [pattern, marks], "max_bytes": PAGE_MAX_BYTES}

        async def attempt(timeout_s: float) -> tuple[Stored | None]:
            position = await mark.position()
            with self._mailbox() as box:
                await self._send(self._get_frame(request, box))
                found, _ = await _take_page(box, timeout_s)
            if not any(each.subject == marks and each.position >= position for each in found):
                raise Passing(operation, "the server that answers is behind")
            others = [each for each in found if not is_mark(each.subject)]
            return (max(others, key=lambda each: each.position, default=None),)

        return (await self._read(operation, attempt))[0]

    async def last_for_many(
        self, operation: str, subjects: Sequence[str], marks: str | None = None
    ) -> list[Stored]:
        """The newest message of each of these subjects that has one, by one request. ``marks``: the subject of a mark,
        if no message that was acknowledged before may be missing; without it a replica that is behind may answer."""
        if not subjects:
            return []
        mark = None if marks is None or self.replicas == 1 else _Mark(self, operation, marks)
        asked = [*subjects, marks] if mark is not None else list(subjects)
        request = {"multi_last": asked, "max_bytes": PAGE_MAX_BYTES}

        async def attempt(timeout_s: float) -> list[Stored]:
            position = 0 if mark is None else await mark.position()
            with self._mailbox() as box:
                await self._send(self._get_frame(request, box))
                found, _ = await _take_page(box, timeout_s)
            seen = max((each.position for each in found if each.subject == marks), default=0)
            if seen < position:
                raise Passing(operation, BEHIND)
            return found

        found = await self._read(operation, attempt)
        if found and int(
            found[-1].headers.get("Nats-Num-Pending", "0")
        ):  # the page was full: ask for the rest
            known = {each.subject for each in found}
            rest = [each for each in subjects if each not in known]
            found += await self.last_for_many(operation, rest, marks)
        return [each for each in found if each.subject != marks]

    async def fresh_slice(self, operation: str, pattern: str, start: int, limit: int, marks: str) -> Slice:
        """As ``slice``; only a server that has a mark may say that nothing follows. ``marks``: its subject."""
        found = await self.slice(operation, pattern, start, limit)
        if self.replicas == 1 or found.next <= found.newest:
            return found  # further ones follow, in any case
        if rules.covers(pattern, marks):
            return await self._slice_to_mark(operation, pattern, start, limit, marks)

        async def attempt(timeout_s: float) -> Slice:
            newest = await self.fresh_last_for(operation, pattern, marks)
            found = await self._slice_checked(operation, pattern, start, limit)
            seen = found.messages[-1].position if found.messages else start - 1
            if newest is not None and seen < newest.position and found.next > newest.position:
                raise Passing(operation, "the server that answers is behind")
            return found

        return await persist(self.connection, operation, self.deadline_s, attempt)

    async def _slice_to_mark(self, operation: str, pattern: str, start: int, limit: int, marks: str) -> Slice:
        """A page up to a mark, which the pattern covers; without marks."""
        mark = _Mark(self, operation, marks)
        messages: list[Stored] = []
        after, asked = start, limit + 1

        async def attempt(timeout_s: float) -> Slice:
            nonlocal after, asked
            position = await mark.position()
            bounds = await self.bounds(operation)
            while True:
                page = await self._page(operation, pattern, after, asked)
                for message in page:
                    if is_mark(message.subject):
                        after = message.position + 1
                    elif len(messages) == limit:
                        return Slice(tuple(messages), after, bounds.oldest, max(bounds.newest, position))
                    else:
                        messages.append(message)
                        after = message.position + 1
                cut = sum(message.bytes for message in messages) >= PAGE_MAX_BYTES
                if cut or (messages and _is_cut(page, position)):
                    return Slice(tuple(messages), after, bounds.oldest, max(bounds.newest, position))
                if any(message.position >= position for message in page):
                    newest = max(position, after - 1)
                    return Slice(tuple(messages), newest + 1, min(bounds.oldest, newest + 1), newest)
                if len(page) < asked:
                    raise Passing(operation, BEHIND)
                asked = max(limit + 1, MARKS_MAX)

        return await persist(self.connection, operation, self.deadline_s, attempt)

    async def first_since(self, operation: str, when: datetime) -> Stored | None:
        """The oldest message that was stored at that time or later."""
        return await self._direct_one(operation, {"start_time": when.isoformat(), "batch": 1})

    async def slice(
        self, operation: str, pattern: str, start: int, limit: int, max_bytes: int = PAGE_MAX_BYTES
    ) -> Slice:
        """Up to ``limit`` messages of ``pattern`` from position ``start`` on; it ends with the one that reaches
        ``max_bytes``."""
        if self.replicas > 1:
            return await self._slice_checked(operation, pattern, start, limit, max_bytes)

        async def attempt(timeout_s: float) -> Slice | None:
            with self._mailbox() as newest, self._mailbox() as oldest, self._mailbox() as page:
                await self._send(
                    self._get_frame({"last_by_subj": ">"}, newest)
                    + self._get_frame({"seq": 1, "batch": 1}, oldest)
                    + self._get_frame(_page_request(pattern, start, limit, max_bytes), page)
                )
                last = _found(await newest.get(timeout_s))
                first = _found(await oldest.get(timeout_s))
                messages, _ = await _take_page(page, timeout_s)
            if last is None or first is None:
                return None  # empty, or its newest message was removed: only the bounds can tell
            return _slice(messages, start, limit, max_bytes, first.position, last.position)

        found = await self._read(operation, attempt)
        if found is not None:
            return found
        return await self._slice_checked(operation, pattern, start, limit, max_bytes)

    async def _slice_checked(
        self, operation: str, pattern: str, start: int, limit: int, max_bytes: int = PAGE_MAX_BYTES
    ) -> Slice:
        """A page whose end was checked with the leader; that nothing follows, by an answer that has the newest message
        too: of two servers that both believe to lead, one may know the end and the other say that nothing is there."""

        async def attempt(timeout_s: float) -> Slice:
            bounds = await self.bounds(operation)
            messages = await self._page(operation, pattern, start, limit, max_bytes)
            taken = sum(message.bytes for message in messages)
            while len(messages) < limit and taken < max_bytes:
                after = messages[-1].position + 1 if messages else max(1, start)
                if after > bounds.newest:
                    break
                further = await self.next_for(operation, pattern, after)
                if further is None:
                    await self._check_end(operation, pattern, after, bounds, timeout_s)
                    break
                messages.append(further)  # the replica that answered was behind
                taken += further.bytes
            return _slice(messages, start, limit, max_bytes, bounds.oldest, bounds.newest)

        return await self._read(operation, attempt)

    async def _check_end(
        self, operation: str, pattern: str, after: int, bounds: Bounds, timeout_s: float
    ) -> None:
        """See by one server's answer that it knows the stream up to its end, and has nothing of a pattern from a
        position on; ``Passing`` if another server has to be asked.

        Such an answer is that of ``multi_last``: its end says up to which position the server looked. It is given only
        if there is anything to show, so that the subject of any message is asked for beside the pattern.
        """
        if bounds.oldest > bounds.newest:
            return  # nothing at all is kept
        known, start = await self._direct_one(operation, {"last_by_subj": ">"}), after
        if known is None:  # the newest was removed, as marks are; the oldest is there
            known, start = await self._direct_one(operation, {"seq": bounds.oldest}), 1
        if known is None or (
            rules.covers(pattern, known.subject) and after <= known.position <= bounds.newest
        ):
            raise Passing(operation, BEHIND)
        status, known_to, found = await self._look(timeout_s, start, pattern, known.subject)
        if status == TOO_MANY:
            await self._check_all(operation, pattern, after, bounds.newest, known.subject, timeout_s)
        elif known_to < bounds.newest or any(
            rules.covers(pattern, each.subject) and after <= each.position <= bounds.newest for each in found
        ):
            raise Passing(operation, BEHIND)

    async def _look(self, timeout_s: float, after: int, *subjects: str) -> tuple[str, int, list[Stored]]:
        """The last messages of subjects from a position on; with how the answer ended, and how far the server knows."""
        request = {"multi_last": subjects, "seq": after, "max_bytes": PAGE_MAX_BYTES}
        found: list[Stored] = []
        with self._mailbox() as box:
            await self._send(self._get_frame(request, box))
            while not (answer := await box.get(timeout_s)).status:
                if (message := _found(answer)) is not None:
                    found.append(message)
        return answer.status, int(answer.headers.get("Nats-UpTo-Sequence", "0")), found

    async def _check_all(
        self, operation: str, pattern: str, after: int, newest: int, known: str, timeout_s: float
    ) -> None:
        """The same of a pattern that too many subjects match: look at all that follows. Nothing does if that was
        removed, or if the server is behind: how far it knows is then asked by the one subject."""
        while after <= newest:
            page = await self._page(operation, ">", after, READ_MAX)
            if any(rules.covers(pattern, each.subject) for each in page if each.position <= newest):
                raise Passing(operation, BEHIND)
            if not page and (await self._look(timeout_s, 1, known))[1] < newest:
                raise Passing(operation, BEHIND)
            after = page[-1].position + 1 if page else newest + 1

    async def _page(
        self, operation: str, pattern: str, start: int, limit: int, max_bytes: int = PAGE_MAX_BYTES
    ) -> list[Stored]:
        async def attempt(timeout_s: float) -> list[Stored]:
            with self._mailbox() as page:
                request = _page_request(pattern, start, limit, max_bytes)
                await self._send(self._get_frame(request, page))
                return (await _take_page(page, timeout_s))[0]

        return await self._read(operation, attempt)

    async def _direct_one(self, operation: str, request: object) -> Stored | None:
        async def attempt(timeout_s: float) -> Stored | None:
            with self._mailbox() as mailbox:
                await self._send(self._get_frame(request, mailbox))
                return _found(await mailbox.get(timeout_s))

        return await self._read(operation, attempt)

    async def _leader_one(self, operation: str, request: object) -> Stored | None:
        payload = msgspec.json.encode(request)

        async def attempt(timeout_s: float) -> Stored | None:
            reply = await self.connection.ask(f"$JS.API.STREAM.MSG.GET.{self.name}", payload, timeout_s)
            answer, error = read_answer(operation, reply.payload)
            if error is not None:
                if error.err_code == NO_MESSAGE:
                    return None
                raise judge(operation, error)
            return _from_json(answer["message"])

        return await persist(self.connection, operation, self.deadline_s, attempt)

    async def _read(self, operation: str, attempt: Callable[[float], Awaitable[T]]) -> T:
        """Attempts with direct gets."""
        try:
            return await persist(self.connection, operation, self.deadline_s, attempt)
        except Forbidden:
            if not await self._reads.again(self.deadline_s):
                raise
            return await persist(self.connection, operation, self.deadline_s, attempt)

    def _mailbox(self) -> Mailbox:
        """For the answer to a direct get."""
        return Mailbox(self._reads.connection)

    async def _send(self, gets: bytes) -> None:
        await self._reads.connection.send(gets)

    def _get_frame(self, request: object, mailbox: Mailbox) -> bytes:
        subject = f"$JS.API.DIRECT.GET.{self.name}"
        mailbox.about = subject
        return frame(subject, mailbox.address, b"", msgspec.json.encode(request))


class _Mark:
    """The mark of one read."""

    def __init__(self, stream: JetStream, operation: str, subject: str) -> None:
        self._stream, self._operation, self._subject = stream, operation, subject
        self._position, self._written_s = 0, 0.0

    async def position(self) -> int:
        """The position of a mark that is still there."""
        now_s = asyncio.get_running_loop().time()
        if not self._position or now_s - self._written_s > MARK_RENEW_S:
            self._position = await self._stream.mark(self._operation, self._subject)
            self._written_s = now_s
        return self._position


def is_mark(subject: str) -> bool:
    """Whether a subject is one of marks."""
    return MARK in subject.split(".")


def marks_of(pattern: str, subjects: Sequence[str]) -> str:
    """The subject of marks for readers of a pattern, in a stream of these subjects.

    In the pattern itself, if a wildcard of it can be a mark's token, so that a page of it shows the mark; else beside
    it: then no more subjects match it than ``subjects`` has.
    """
    for each in subjects:
        common = _both(pattern.split("."), each.split("."))
        if common is not None and ("*" in common or ">" in common):
            return ".".join(MARK if token in ("*", ">") else token for token in common)
    return own_marks(subjects)


def _both(one: list[str], other: list[str]) -> list[str] | None:
    """The pattern of what matches both; None if nothing does."""
    if one[:1] == [">"] or other[:1] == [">"]:
        return other if one[:1] == [">"] else one
    if not one or not other:
        return [] if one == other else None
    if one[0] != other[0] and "*" not in (one[0], other[0]):
        return None
    rest = _both(one[1:], other[1:])
    return None if rest is None else [other[0] if one[0] == "*" else one[0], *rest]


def own_marks(subjects: Sequence[str]) -> str:
    """Where the marks of a whole stream are; to be added to its subjects if none of them covers it.

    Below a subject with a wildcard, if there is one: beside a literal one another stream may have its subjects.
    """
    tokens = next((each for each in subjects if each.endswith((">", "*"))), subjects[0]).split(".")
    literal = list(takewhile(lambda token: token not in ("*", ">"), tokens))
    return ".".join([*literal, MARK])


def _page_request(pattern: str, start: int, limit: int, max_bytes: int) -> dict[str, object]:
    return {"seq": max(1, start), "next_by_subj": pattern, "batch": limit, "max_bytes": max_bytes}


def _is_cut(page: list[Stored], newest: int) -> bool:
    """Whether the server ended a page before the newest message: it counts headers of its own in the page's bytes."""
    if not page or page[-1].position >= newest:
        return False
    return int(page[-1].headers.get("Nats-Num-Pending", "0")) > 0


def _slice(messages: list[Stored], start: int, limit: int, max_bytes: int, oldest: int, newest: int) -> Slice:
    after = messages[-1].position + 1 if messages else 0
    cut = len(messages) >= limit or sum(message.bytes for message in messages) >= max_bytes
    cut = cut or _is_cut(messages, newest)
    newest = max(newest, after - 1)
    return Slice(tuple(messages), after if cut else max(start, newest + 1), min(oldest, newest + 1), newest)


async def _take_page(mailbox: Mailbox, timeout_s: float) -> tuple[list[Stored], bool]:
    """The answers to a batched get, up to the end that the server marks."""
    messages: list[Stored] = []
    while True:
        message = await mailbox.get(timeout_s)
        found = _found(message)
        if found is None:
            return messages, bool(messages)
        messages.append(found)


def _found(message: Incoming) -> Stored | None:
    """The message that a direct get answers with; None for its 404 (none there) and 204 (no more)."""
    status = message.status
    if not status:
        headers = message.headers
        return Stored(
            int(headers["Nats-Sequence"]),
            headers["Nats-Subject"],
            message.payload,
            headers,
            microseconds(headers["Nats-Time-Stamp"]),
        )
    if status in ("404", "204"):
        return None
    raise NotSent(f"the server answers a read with {status} {message.headers.get('Description', '')}")


def _from_json(message: dict[str, Any]) -> Stored:
    headers: dict[str, str] = {}
    for line in base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace").split("\r\n")[1:]:
        name, separator, value = line.partition(":")
        if separator:
            headers[name.strip()] = value.strip()
    return Stored(
        int(message["seq"]),
        message["subject"],
        base64.b64decode(message.get("data", "")),
        headers,
        microseconds(message["time"]),
    )


def microseconds(text: str) -> int:
    """A server's time stamp as microseconds since 1970."""
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
