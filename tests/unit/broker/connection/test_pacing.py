"""When a client is read, and when it waits."""

from __future__ import annotations

import asyncio
from typing import cast

from mqtt5 import PingReqPacket, PublishPacket

from tocsin.broker.connection.pacing import HELD_BACK, UNDER_WAY, Pace
from tocsin.core.rates import Bucket
from tocsin.runtime.machines.clock import now_us


class Transport:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


def pace_with(transport: Transport, bucket: Bucket | None = None) -> Pace:
    pace = Pace(bucket)
    pace.begin(cast(asyncio.Transport, transport))
    return pace


def test_a_client_is_read_again_when_the_last_reason_is_gone() -> None:
    transport = Transport()
    pace = pace_with(transport)
    pace.wait(UNDER_WAY, True)
    pace.wait(HELD_BACK, True)
    pace.wait(UNDER_WAY, False)
    assert transport.calls == ["pause"]
    pace.wait(HELD_BACK, False)
    pace.wait(HELD_BACK, False)
    assert transport.calls == ["pause", "resume"]


def test_a_connection_that_is_over_is_not_touched() -> None:
    transport = Transport()
    pace = pace_with(transport)
    pace.end()
    pace.wait(UNDER_WAY, True)
    assert transport.calls == []


async def test_who_publishes_too_fast_waits_until_the_debt_is_paid() -> None:
    transport = Transport()
    pace = pace_with(transport, Bucket(1_000, 5, now_us()))
    pace.published([PublishPacket("a", b"")] * 4 + [PingReqPacket(), PublishPacket("a", b"")])
    assert transport.calls == []
    pace.published([PublishPacket("a", b"")] * 3)
    assert transport.calls == ["pause"]
    async with asyncio.timeout(10):
        while transport.calls != ["pause", "resume"]:
            await asyncio.sleep(0.001)
