"""The feeder's figures, as a collector sees them."""

from __future__ import annotations

import pytest

from tests.unit.runtime.collector import said, samples
from tocsin.errors import PortTaken
from tocsin.feeds.metrics import render, served
from tocsin.feeds.status import FeedStatus, Status

STATUS = Status(
    (
        FeedStatus("Wire", "http", "running", 1_500, 90_000, 3, 4, 5, 6, 7, 17, 8, 0, ""),
        FeedStatus("Drop", "folder /x", "waiting", 0, 0, 0, 0, 0, 0, 0, 0, -1, 2, "there is no /x"),
    ),
    "http://127.0.0.1:1",
)


async def status() -> Status:
    return STATUS


def test_every_figure_of_every_feed_is_told() -> None:
    found = samples(render(STATUS))
    assert (found["tocsin_feeder_feeds", ""], found["tocsin_feeder_failing", ""]) == (2, 1)
    names = ("records_total", "bytes_total", "live_total", "dropped_total", "missed_total", "files_total")
    values = [
        found[f"tocsin_feeder_{name}", "Wire"] for name in (*names, "failed_files_total", "lag", "running")
    ]
    assert values == [1_500, 90_000, 3, 4, 5, 6, 7, 8, 1]
    assert [found[f"tocsin_feeder_{name}", "Drop"] for name in ("lag", "failures", "running")] == [-1, 2, 0]


async def test_a_collector_fetches_them_over_http_and_a_taken_port_is_said() -> None:
    async with served("127.0.0.1", 0, status) as address:
        answer = await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.partition(b"\r\n\r\n")[2].decode() == render(STATUS)
        port = int(address.removesuffix("/metrics").rpartition(":")[2])
        with pytest.raises(PortTaken, match=r"feeds\.metrics_port"):
            async with served("127.0.0.1", port, status):
                pass
