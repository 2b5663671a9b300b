"""QoS 0 messages, when there is nobody to hear them from."""

from __future__ import annotations

import socket

import pytest

from tests.unit.feeds.desk import NETWORK, Desk, running, until
from tocsin.client.address import Server
from tocsin.feeds.agents import live
from tocsin.feeds.agents.live import LiveSubscriber
from tocsin.feeds.agents.messages import MessageAgent
from tocsin.model.catalogue import TopicSource


async def test_without_a_broker_a_feed_reports_it_and_reads_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    desk = await Desk.open()
    work = desk.work(TopicSource("a"))
    subscriber = LiveSubscriber(work.feed, [Server("127.0.0.1", port)], work.counts)
    async with running(MessageAgent(work, desk.messages, NETWORK, live_max=4, live=subscriber)):
        await until(lambda: str(port) in work.counts.live_error, "the error")
        await desk.publish("a", {"n": 1})
        assert await desk.until_records(1) == [{"n": 1}]
    assert work.counts.error == ""
