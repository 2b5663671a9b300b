"""A process's figures for Prometheus: text (exposition format 0.0.4) at ``/metrics`` over HTTP.

One request a connection, and few connections at once: this is for one or two collectors. Each of them has a bound of
bytes and of time. When there are too many, the oldest goes for the newcomer: a collector needs milliseconds, and
connections that are only held open keep none out. Figures are put together once for all who ask at the same time, so
that many requests cost what one does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, Literal

import h11
import msgspec
import structlog

from tocsin.errors import PortTaken

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
PATH: Final = b"/metrics"
HEAD_MAX_BYTES: Final = 16 << 10
REQUEST_S: Final = 10.0
ANSWER_S: Final = 30.0
CONNECTIONS_MAX: Final = 16

Tell = Callable[[], Awaitable[str]]


class Metric(msgspec.Struct, frozen=True):
    """A family of figures: what it is, and where a row has it."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    of: Callable[[Any], float]


def families(prefix: str, label: str, metrics: Iterable[Metric], rows: Iterable[Any]) -> Iterator[str]:
    """The lines of several families, each with a sample of every row, which has a ``name`` for the label."""
    each = tuple(rows)
    for metric in metrics:
        name = f"{prefix}_{metric.name}"
        yield f"# HELP {name} {metric.help}\n"
        yield f"# TYPE {name} {metric.kind}\n"
        for row in each:
            # Names are letters, digits and underscores (model.catalogue): nothing is to be escaped.
            labels = f'{{{label}="{row.name}"}}' if label else ""
            yield f"{name}{labels} {metric.of(row)!r}\n"


@contextlib.asynccontextmanager
async def served(host: str, port: int, tell: Tell, *, whose: str, setting: str) -> AsyncIterator[str]:
    """Answer while the context lasts; the address, empty if the port is -1. ``PortTaken`` if it is another's."""
    if port < 0:
        yield ""
        return
    try:
        serving = _MetricsServer(tell)
        server = await asyncio.start_server(serving.answer, host, port, limit=HEAD_MAX_BYTES)
    except OSError:
        raise PortTaken(host, port, f"{whose}'s metrics", setting) from None
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.sockets[0].getsockname()[1]}{PATH.decode()}"
    finally:
        server.close()
        serving.close()
        await server.wait_closed()


class _MetricsServer:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._telling: asyncio.Task[str] | None = None  # the figures for all who wait for them now
        self._open: dict[asyncio.Task[None], None] = {}  # the connections, the oldest first

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open[serving] = None
        if len(self._open) > CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        try:
            await asyncio.wait((serving,))
        finally:
            serving.cancel()  # if the server is closed
            self._open.pop(serving, None)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            else:
                writer.close()
        if not serving.cancelled():
            serving.result()

    def close(self) -> None:
        """End the connections that are open."""
        for serving in tuple(self._open):
            serving.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, h11.ProtocolError):
            async with asyncio.timeout(REQUEST_S + ANSWER_S):
                await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX_BYTES)
        async with asyncio.timeout(REQUEST_S):
            while (event := connection.next_event()) is h11.NEED_DATA:
                connection.receive_data(await reader.read(HEAD_MAX_BYTES))
        if not isinstance(event, h11.Request):
            return
        code, body = await self._reply(event)
        headers = [
            (b"content-type", CONTENT_TYPE),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for part in (
            h11.Response(status_code=code, headers=headers),
            h11.Data(data=body if event.method != b"HEAD" else b""),
            h11.EndOfMessage(),
        ):
            writer.write(connection.send(part) or b"")
        writer.transport.set_write_buffer_limits(0)  # it counts as read when the kernel has all of it
        await writer.drain()

    async def _reply(self, request: h11.Request) -> tuple[int, bytes]:
        if request.target.partition(b"?")[0] != PATH:
            return 404, b"the figures are at /metrics\n"
        if request.method not in (b"GET", b"HEAD"):
            return 405, b"use GET\n"
        try:
            return 200, (await self._told()).encode()
        except Exception:  # the collector comes again; the process goes on
            structlog.get_logger().error("the figures cannot be told", exc_info=True)
            return 503, b"the figures cannot be told just now; see the log\n"

    async def _told(self) -> str:
        """The figures, put together now, or being put together for another who asked a moment before."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._collect())
            self._telling.add_done_callback(self._over)
        return await asyncio.shield(self._telling)

    async def _collect(self) -> str:
        return await self._tell()

    def _over(self, telling: asyncio.Task[str]) -> None:
        self._telling = None
        if not telling.cancelled():
            telling.exception()  # whoever waits has it; if nobody does, it is nobody's
