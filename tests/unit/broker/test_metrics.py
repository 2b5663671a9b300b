"""A broker's figures, as a collector sees them."""

from __future__ import annotations

import re

import pytest

from tests.unit.broker.harness import Door
from tests.unit.runtime.collector import said, samples
from tocsin.broker.metrics import COUNTERS, render, served
from tocsin.broker.sys_topics import SysTopics
from tocsin.config import Broker
from tocsin.core.budgets.budget import Kind
from tocsin.errors import PortTaken

INFO = re.compile(r"tocsin_broker_info\{id=\"north-1\",cluster=\"\w+\",version=\"[^\"]+\"\} 1\n")


def plain(text: str) -> dict[tuple[str, str], float]:
    """The samples, but for the one that has several labels."""
    assert INFO.search(text)
    return samples(INFO.sub("", text))


async def test_what_sys_says_is_told_to_collectors(door: Door) -> None:
    await door.peer("c")
    figures = SysTopics(door.parts).figures()
    found = plain(render(figures))
    assert found["tocsin_broker_clients_connected", ""] == 1
    assert found["tocsin_broker_messages_received_total", ""] == 0
    numbers = {topic for topic, value in figures.items() if value.isdecimal() and "budget/" not in topic}
    told = {name.removeprefix("tocsin_broker_") for name, label in found if not label}
    names = {re.sub("[/-]", "_", topic) + "_total" * (topic in COUNTERS) for topic in numbers}
    assert names - told == {"retained messages_count"}  # mosquitto's spelling of retained/count
    assert figures.keys() >= COUNTERS


async def test_every_budget_is_told_in_bytes(door: Door) -> None:
    found = plain(render(SysTopics(door.parts).figures()))
    for kind, figure in door.parts.exchange.budget.figures().items():
        name = kind.name.lower()
        assert found["tocsin_broker_budget_limit_bytes", name] == figure.limit > 0
        assert found["tocsin_broker_budget_used_bytes", name] == figure.used
        assert found["tocsin_broker_budget_refused_total", name] == figure.refused
    assert {label for name, label in found if name == "tocsin_broker_budget_most_bytes"} == {
        kind.name.lower() for kind in Kind
    }


async def test_a_collector_may_come_before_the_broker_has_begun(door: Door) -> None:
    figures: dict[str, str] = {}
    configured = Broker(id="north-1", cluster="north", metrics_port=0)
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    async with served(configured, lambda: figures) as address:
        assert (await said(address, request)).endswith(b"\r\n\r\n")
        figures |= SysTopics(door.parts).figures()
        assert b"tocsin_broker_clients_connected 0\n" in await said(address, request)
        port = int(address.removesuffix("/metrics").rpartition(":")[2])
        with pytest.raises(PortTaken, match="metrics_port"):
            async with served(Broker(id="b", cluster="c", metrics_port=port), dict):
                pass
    async with served(Broker(id="b", cluster="c"), dict) as nothing:
        assert nothing == ""
