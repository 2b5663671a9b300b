"""The socket on which a process is told what to cut: a UNIX socket in the state directory, for its owner.

    DIR/chaos/NAME.sock      NAME is the process's, with ``-`` for each ``/``

One JSON object a line each way: ``{"v": 1, "cut": [["127.0.0.1", 4222]], "until_s": 83265.5}`` cuts these addresses
off, or heals all if there are none; with ``"weather": {"lag_s": 0.05}`` they are slow or lossy instead
(``runtime.faults.weather``). The answer says how many connections that concerned, or what is wrong. ``until_s`` is by
the machine's monotonic clock: a process that was stopped, and reads what it was asked for too late, does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import structlog

from tocsin.errors import TocsinError
from tocsin.model.versions import UNREADABLE, Document
from tocsin.runtime.faults.partition import Address, CuttableLoop
from tocsin.runtime.faults.weather import Weather

DIRECTORY: Final = "chaos"
PATH_MAX_BYTES: Final = 107  # of a UNIX socket's name on Linux, without the end
LINE_MAX_BYTES: Final = 64 << 10
DEADLINE_S: Final = 3.0
SECONDS_MAX: Final = 600.0


class CutOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    cut: Annotated[tuple[Address, ...], msgspec.Meta(max_length=1_024)]
    until_s: float = 0.0
    weather: Weather | None = None  # None: nothing passes
    v: int = 1  # the format writes and reads it


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    connections: int = 0
    problem: str = ""


REQUEST: Final = Document("a cut that is asked for", msgspec.json.Decoder(CutOrder))
REPLY: Final = Document("the answer to a cut", msgspec.json.Decoder(Reply))


class CutRefused(TocsinError):
    """A process did not cut what it was asked to."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}; see that the process runs, with a valve (chaos.enabled)")


def socket_path(state: Path, name: str) -> Path:
    return state / DIRECTORY / f"{name.replace('/', '-')}.sock"


@asynccontextmanager
async def serving(state: Path, name: str) -> AsyncIterator[None]:
    """Take requests while the context lasts; nothing on a loop that cannot cut."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, CuttableLoop):
        yield
        return
    path = socket_path(state, name)
    try:
        server = await _listen(loop, path)
    except OSError as error:
        problem = error.strerror or str(error)
        structlog.get_logger().info("no partitions here", path=str(path), problem=problem)
        yield
        return
    try:
        yield
    finally:
        loop.cuts.heal()
        server.close()
        with contextlib.suppress(OSError):
            path.unlink()


async def _listen(loop: CuttableLoop, path: Path) -> asyncio.Server:
    _make_room(path)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                reply = _obey(loop, await reader.readline())
                writer.write(REPLY.write(reply) + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, OSError):
            pass  # too slow, too long, or gone: the peer's own problem
        finally:
            writer.close()

    return await asyncio.start_unix_server(answer, path, limit=LINE_MAX_BYTES)


def _make_room(path: Path) -> None:
    if len(os.fsencode(path)) > PATH_MAX_BYTES:
        raise OSError(f"a socket's path has at most {PATH_MAX_BYTES} bytes; use a shorter state directory")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)  # of a run that was killed


def _obey(loop: CuttableLoop, line: bytes) -> Reply:
    try:
        request = REQUEST.read(line)
    except UNREADABLE as error:
        return Reply(problem=str(error))
    if not request.cut:
        loop.cuts.heal()
        return Reply()
    seconds = request.until_s - time.monotonic()
    if not 0 < seconds <= SECONDS_MAX:
        return Reply(problem=f"a cut lasts more than 0 and at most {SECONDS_MAX:g} s, not {seconds:g}")
    weather = request.weather
    if weather is not None:
        if weather.problem:
            return Reply(problem=weather.problem)
        connections = loop.cuts.trouble(request.cut, weather, seconds)
        facts = {each: value for each, value in msgspec.structs.asdict(weather).items() if value}
        structlog.get_logger().warning(
            "bad weather, as asked", seconds=round(seconds, 3), addresses=len(request.cut), **facts
        )
        return Reply(connections)
    connections = loop.cuts.cut(request.cut, seconds)
    structlog.get_logger().warning(
        "cut off, as asked", seconds=round(seconds, 3), addresses=len(request.cut), connections=connections
    )
    return Reply(connections)


async def ask(
    path: Path, addresses: Sequence[Address], until_s: float, weather: Weather | None = None
) -> int:
    """Have a process cut addresses off until then, or have weather there; heal all if there are none. Raises
    ``CutRefused``."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_unix_connection(path, limit=LINE_MAX_BYTES)
            try:
                writer.write(REQUEST.write(CutOrder(tuple(addresses), until_s, weather)) + b"\n")
                reply = REPLY.read(await reader.readline())
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError, *UNREADABLE) as error:
        words = getattr(error, "strerror", None) or str(error) or "no answer in time"
        raise CutRefused(path, words) from None
    if reply.problem:
        raise CutRefused(path, reply.problem)
    return reply.connections
