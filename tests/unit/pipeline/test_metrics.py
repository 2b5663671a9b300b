"""The pipeline's figures, as a collector sees them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from tests.unit.runtime.collector import said, samples
from tocsin.errors import PortTaken
from tocsin.pipeline.metrics import render, served
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


async def test_a_collector_fetches_them_over_http() -> None:
    async with served("127.0.0.1", 0, status) as address:
        answer = await said(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and b"text/plain; version=0.0.4" in head
    assert body.decode() == render(STATUS)


async def test_without_a_port_nothing_listens_and_a_taken_one_is_said() -> None:
    async with served("127.0.0.1", -1, status) as address:
        assert address == ""
    async with served("127.0.0.1", 0, status) as address:
        port = int(address.removesuffix("/metrics").rpartition(":")[2])
        with pytest.raises(PortTaken, match=r"pipeline\.metrics_port"):
            async with served("127.0.0.1", port, status):
                pass
