"""The pipeline's figures, as a collector sees them."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from tocsin.errors import PortTaken
from tocsin.pipeline.metrics import HEAD_MAX_BYTES, render, served
from tocsin.pipeline.status import ChannelStatus, DatasetStatus, FeedStatus, SparkStatus, Status

STATUS = Status(
    spark=SparkStatus(),
    channels=(
        ChannelStatus("Alarms", 1, 10.0, False, 12, 0, 7, 2_000_000, 41.5, 5, 6, 60, 2, 1, "no room", None),
    ),
    datasets=(DatasetStatus("Reports", 100, 3, 4_096, 9, (), 4, 0),),
    feeds=(FeedStatus("Wire", "Reports", "http", 17, 3, 1_500, 4, (), ""),),
    tick=41,
    subscriptions=12,
)
SAMPLE = re.compile(r'([a-z_]+)(?:\{(channel|dataset|feed)="(\w+)"\})? (-?[0-9.e+-]+)')


def samples(text: str) -> dict[tuple[str, str], float]:
    """Read as the format says: help and type before the samples of a family, and each sample once."""
    found: dict[tuple[str, str], float] = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                assert rest in ("counter", "gauge") and name not in typed
                assert (rest == "counter") == name.endswith("_total")
                typed.add(name)
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        key = (match[1], match[3] or "")
        assert match[1] in typed and key not in found
        found[key] = float(match[4])
    return found


def test_every_figure_of_channels_datasets_and_feeds_is_told() -> None:
    found = samples(render(STATUS))
    for name, of, value in (
        ("tocsin_pipeline_tick", "", 41),
        ("tocsin_channel_executions_total", "Alarms", 7),
        ("tocsin_channel_last_duration_seconds", "Alarms", 0.0415),
        ("tocsin_channel_last_time_seconds", "Alarms", 2),
        ("tocsin_channel_matched", "Alarms", 5),
        ("tocsin_channel_results_total", "Alarms", 60),
        ("tocsin_channel_overruns_total", "Alarms", 2),
        ("tocsin_channel_failures", "Alarms", 1),
        ("tocsin_dataset_rows", "Reports", 100),
        ("tocsin_dataset_files", "Reports", 3),
        ("tocsin_feed_records_total", "Wire", 1_500),
        ("tocsin_feed_lag", "Wire", 3),
        ("tocsin_feed_quarantined_total", "Wire", 4),
    ):
        assert found[name, of] == value, name


async def status() -> Status:
    return STATUS


async def said(address: str, request: bytes) -> bytes:
    host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_collector_fetches_them_over_http() -> None:
    async with served("127.0.0.1", 0, status) as address:
        answer = await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and b"text/plain; version=0.0.4" in head
    assert body.decode() == render(STATUS)


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"405"),
    ],
)
async def test_other_requests_are_refused(request_bytes: bytes, code: bytes) -> None:
    async with served("127.0.0.1", 0, status) as address:
        assert (await said(address, request_bytes)).startswith(b"HTTP/1.1 " + code)


@pytest.mark.parametrize("rubbish", [b"\x16\x03\x01\r\n\r\n", b"GET /" + b"x" * 4 * HEAD_MAX_BYTES])
async def test_rubbish_costs_its_connection_and_nothing_else(rubbish: bytes) -> None:
    async with served("127.0.0.1", 0, status) as address:
        with contextlib.suppress(ConnectionError):  # it may be cut off while it still sends
            assert not (await said(address, rubbish)).startswith(b"HTTP/1.1 200")
        assert b" 200 " in await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_figures_that_cannot_be_had_are_for_later() -> None:
    async def broken() -> Status:
        raise RuntimeError("no figures")

    async with served("127.0.0.1", 0, broken) as address:
        assert (await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 503")


async def test_without_a_port_nothing_listens_and_a_taken_one_is_said() -> None:
    async with served("127.0.0.1", -1, status) as address:
        assert address == ""
    async with served("127.0.0.1", 0, status) as address:
        port = int(address.removesuffix("/metrics").rpartition(":")[2])
        with pytest.raises(PortTaken, match=r"pipeline\.metrics_port"):
            async with served("127.0.0.1", port, status):
                pass
