"""The pipeline on the bus: scripts, its status, results for brokers that cannot read the storage, and a run now.

Everything is asked and answered in JSON, on ``{network}.pipeline.…``: see ``docs/reference/pipeline.md``. Nothing
that is asked can end the pipeline, and no answer is larger than the bus carries.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import Final

import structlog

from tocsin.core.access.sql_rules import OPERATOR
from tocsin.errors import Malformed, TocsinError, Trimmed
from tocsin.model.answer import Problem, Reply
from tocsin.model.catalogue import TEXT_MAX_BYTES
from tocsin.model.channel_names import ChannelNames
from tocsin.model.questions import (
    ASK,
    FETCH_MAX_BYTES,
    FETCHED,
    PIPELINE,
    RUN,
    SCRIPT,
    WANTED,
    AskedResults,
    Fetched,
)
from tocsin.model.results import decode_notice
from tocsin.model.versions import UNREADABLE
from tocsin.pipeline.definitions.answers import ROWS_MAX, encode_reply, problem_of
from tocsin.pipeline.definitions.statements import StatementRunner
from tocsin.pipeline.execution.failures import first_words
from tocsin.pipeline.status import Status
from tocsin.ports import Bus, BusMessage
from tocsin.results.reader import Result, ResultsReader

SCRIPT_MAX_BYTES: Final = 8 * TEXT_MAX_BYTES
KS_MAX: Final = 10_000  # that a broker may ask for at once
ROW_OVERHEAD: Final = 120  # of a row beside its payload
PIECE_BYTES: Final = FETCH_MAX_BYTES // 4 * 3  # of a payload; in base64 a third more


class Service:
    """Answers while ``serve`` lasts."""

    def __init__(
        self,
        bus: Bus,
        places: ChannelNames,
        desk: StatementRunner,
        reader: ResultsReader,
        status: Callable[[], Awaitable[Status]],
        threads: Executor,
    ) -> None:
        self._bus = bus
        self._places = places
        self._desk = desk
        self._reader = reader
        self._status = status
        self._threads = threads

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for subject, answer in (
                (self._places.service("sql"), self._sql),
                (self._places.sql("*"), self._sql),
                (self._places.service("status"), self._tell),
                (self._places.service("results"), self._results),
                (self._places.service("run"), self._run),
            ):
                await stack.enter_async_context(self._bus.serve(subject, answer))
            yield

    async def _sql(self, delivery: BusMessage) -> bytes:
        try:
            asked = SCRIPT.read(delivery.payload)
        except UNREADABLE as error:
            return encode_reply(Reply(error=problem_of(error)))
        if len(asked.text.encode()) > SCRIPT_MAX_BYTES:
            remedy = f"at most {SCRIPT_MAX_BYTES} bytes; run it in several pieces"
            return encode_reply(Reply(error=Problem("the script is too long", remedy=remedy)))
        limit = min(max(asked.limit, 0), ROWS_MAX)
        return encode_reply(await self._script(asked.text, limit, self._user(delivery)))

    def _user(self, delivery: BusMessage) -> str:
        """The user of a script: its subject has the name, and the store's servers let nobody ask under another's."""
        own = self._places.sql("")
        return delivery.subject.removeprefix(own) if delivery.subject.startswith(own) else OPERATOR

    async def _script(self, text: str, limit: int, user: str = OPERATOR) -> Reply:
        """A bug of ours costs one answer, and leaves a trace in the log."""
        try:
            return await self._desk.run(text, limit=limit, user=user)
        except Exception as error:
            structlog.get_logger().error("a script ended in a bug", script=text, exc_info=True)
            problem = f"this went wrong on our side: {type(error).__name__}: {first_words(error)}"
            return Reply(error=Problem(problem, remedy="see the pipeline's log"))

    async def _run(self, delivery: BusMessage) -> bytes:
        try:
            asked = RUN.read(delivery.payload)
        except UNREADABLE as error:
            return encode_reply(Reply(error=problem_of(error)))
        quoted = "`" + asked.channel.replace("`", "``") + "`"
        return encode_reply(await self._script(f"RUN CHANNEL {quoted}", 0))

    async def _tell(self, delivery: BusMessage) -> bytes:
        try:
            ASK.read(delivery.payload or b"{}")
        except UNREADABLE as error:
            return PIPELINE.write({"error": str(error)})
        return PIPELINE.write(await self._status())

    async def _results(self, delivery: BusMessage) -> bytes:
        try:
            asked = WANTED.read(delivery.payload)
            if len(asked.ks) > KS_MAX:
                raise Malformed(f"more than {KS_MAX} subscriptions at once")
            fetched = await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: fetch(self._reader, asked)
            )
        except Trimmed as error:
            fetched = Fetched(error=str(error), gone=True)
        except TocsinError as error:
            fetched = Fetched(error=str(error))
        return FETCHED.write(fetched)


def fetch(reader: ResultsReader, asked: AskedResults) -> Fetched:
    """The results that a broker asks for, as many as fit; at least one, if there is any."""
    try:
        notice = decode_notice(bytes.fromhex(asked.notice))
    except ValueError as error:
        raise Malformed(f"the notice cannot be read: {error}") from None
    bound = min(max(asked.limit_bytes, 0), FETCH_MAX_BYTES)
    own = reader.read(notice, asked.broker, start=asked.from_ordinal) if asked.broker else iter(())
    others = reader.find(notice, asked.ks, start=asked.from_ordinal)
    rows: list[tuple[int, str, int, str, int, str]] = []
    size = 0
    for each in _merged(own, others):
        # JSON within JSON: quotes are escaped.
        size += len(each.payload) + each.payload.count(b'"') + each.payload.count(b"\\") + ROW_OVERHEAD
        if rows and size > bound:
            return Fetched(tuple(rows), next=each.ordinal)
        if asked.pieces and not rows and (size > FETCH_MAX_BYTES or asked.from_byte):
            return _piece(each, asked.from_byte)
        rows.append(
            (each.ordinal, each.channel, each.execution, each.k, each.priority, each.payload.decode())
        )
    return Fetched(tuple(rows))


def _piece(result: Result, start: int) -> Fetched:
    """A piece of a result that is too large for one answer."""
    piece = result.payload[start : start + PIECE_BYTES]
    row = (result.ordinal, result.channel, result.execution, result.k, result.priority)
    text = base64.b64encode(piece).decode()
    return Fetched(((*row, text),), next=result.ordinal + 1, piece_of=len(result.payload))


def _merged(*ordered: Iterable[Result]) -> Iterator[Result]:
    """All in one order, and what is in several once."""
    last = -1
    for result in heapq.merge(*ordered, key=lambda each: each.ordinal):
        if result.ordinal != last:
            last = result.ordinal
            yield result
