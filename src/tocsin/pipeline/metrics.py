"""The pipeline's figures for Prometheus: its status as text (exposition format 0.0.4), at ``/metrics`` over HTTP.

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
from tocsin.pipeline.status import Status

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
PATH: Final = b"/metrics"
HEAD_MAX_BYTES: Final = 16 << 10
REQUEST_S: Final = 10.0
ANSWER_S: Final = 30.0
CONNECTIONS_MAX: Final = 16
MS: Final = 1_000


class Metric(msgspec.Struct, frozen=True):
    """A family of figures: what it is, and where a row has it."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    of: Callable[[Any], float]


CHANNEL: Final = (
    Metric(
        "executions_total", "counter", "Executions since the channel was made.", lambda row: row.executions
    ),
    Metric(
        "last_duration_seconds", "gauge", "How long the last execution took.", lambda row: row.last_ms / MS
    ),
    Metric("last_time_seconds", "gauge", "When it was executed last.", lambda row: row.last_at_us / MS / MS),
    Metric("subscriptions", "gauge", "Backend subscriptions.", lambda row: row.subscriptions),
    Metric("matched", "gauge", "Subscriptions with results, the last time.", lambda row: row.matched),
    Metric("results_total", "counter", "Results since the pipeline started.", lambda row: row.results_total),
    Metric(
        "overruns_total", "counter", "Slots skipped since the pipeline started.", lambda row: row.overruns
    ),
    Metric("failures", "gauge", "Failed executions in a row.", lambda row: row.failures),
    Metric("paused", "gauge", "1 if it is paused.", lambda row: int(row.paused)),
)
DATASET: Final = (
    Metric("rows", "gauge", "Rows.", lambda row: row.rows),
    Metric("files", "gauge", "Files.", lambda row: row.files),
    Metric("bytes", "gauge", "Bytes of its files.", lambda row: row.bytes),
    Metric("quarantined", "gauge", "Records in its quarantine.", lambda row: row.quarantined),
)
FEED: Final = (
    Metric("records_total", "counter", "Records since the pipeline started.", lambda row: row.records),
    Metric(
        "quarantined_total",
        "counter",
        "Records that did not fit, since the pipeline started.",
        lambda row: row.quarantined,
    ),
    Metric("lag", "gauge", "Entries of the log of feeds that wait.", lambda row: row.lag),
)
PIPELINE: Final = (
    Metric("tick", "gauge", "The newest tick.", lambda status: status.tick),
    Metric("subscriptions", "gauge", "Backend subscriptions of all channels.", lambda row: row.subscriptions),
)


def render(status: Status) -> str:
    """The figures as text."""
    lines: list[str] = []
    lines += _families("tocsin_pipeline", "", PIPELINE, (status,))
    lines += _families("tocsin_channel", "channel", CHANNEL, status.channels)
    lines += _families("tocsin_dataset", "dataset", DATASET, status.datasets)
    lines += _families("tocsin_feed", "feed", FEED, status.feeds)
    return "".join(f"{line}\n" for line in lines)


def _families(prefix: str, label: str, metrics: Iterable[Metric], rows: tuple[Any, ...]) -> Iterator[str]:
    for metric in metrics:
        name = f"{prefix}_{metric.name}"
        yield f"# HELP {name} {metric.help}"
        yield f"# TYPE {name} {metric.kind}"
        for row in rows:
            # Names are letters, digits and underscores (model.catalogue): nothing is to be escaped.
            labels = f'{{{label}="{row.name}"}}' if label else ""
            yield f"{name}{labels} {metric.of(row)!r}"


@contextlib.asynccontextmanager
async def served(host: str, port: int, status: Callable[[], Awaitable[Status]]) -> AsyncIterator[str]:
    """Answer while the context lasts; the address, empty if the port is -1. ``PortTaken`` if it is another's."""
    if port < 0:
        yield ""
        return
    door = _Door(status)
    try:
        server = await asyncio.start_server(door.answer, host, port, limit=HEAD_MAX_BYTES)
    except OSError:
        raise PortTaken(host, port, "the pipeline's metrics", "pipeline.metrics_port") from None
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.sockets[0].getsockname()[1]}{PATH.decode()}"
    finally:
        server.close()
        await server.wait_closed()


class _Door:
    def __init__(self, status: Callable[[], Awaitable[Status]]) -> None:
        self._status = status
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
            return 200, render(await self._status()).encode()
        except Exception:  # the collector comes again; the pipeline goes on
            structlog.get_logger().error("the figures cannot be told", exc_info=True)
            return 503, b"the figures cannot be told just now; see the pipeline's log\n"
