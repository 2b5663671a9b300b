"""A process's figures for Prometheus: text (exposition format 0.0.4) at ``/metrics`` over HTTP.

One request a connection, and few connections at once: this is for one or two collectors. Each of them has a bound of
bytes and of time.
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
        server = await asyncio.start_server(_MetricsServer(tell).answer, host, port, limit=HEAD_MAX_BYTES)
    except OSError:
        raise PortTaken(host, port, f"{whose}'s metrics", setting) from None
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.sockets[0].getsockname()[1]}{PATH.decode()}"
    finally:
        server.close()
        await server.wait_closed()


class _MetricsServer:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                with contextlib.suppress(OSError, TimeoutError, h11.ProtocolError):
                    async with asyncio.timeout(REQUEST_S + ANSWER_S):
                        await self._answer(reader, writer)
        finally:
            self._open -= 1
            writer.close()

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
        await writer.drain()

    async def _reply(self, request: h11.Request) -> tuple[int, bytes]:
        if request.target.partition(b"?")[0] != PATH:
            return 404, b"the figures are at /metrics\n"
        if request.method not in (b"GET", b"HEAD"):
            return 405, b"use GET\n"
        try:
            return 200, (await self._tell()).encode()
        except Exception:  # the collector comes again; the process goes on
            structlog.get_logger().error("the figures cannot be told", exc_info=True)
            return 503, b"the figures cannot be told just now; see the log\n"
