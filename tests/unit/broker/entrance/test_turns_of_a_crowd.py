"""Clients that are connected are served in between while a crowd comes in; without turns they wait for all of it."""

from __future__ import annotations

import contextlib
import itertools
import socket

import pytest
from mqtt5 import ConnectPacket, PingReqPacket, PingRespPacket

from tests.unit.broker.harness import Door, until
from tocsin.config import Limits
from tocsin.core.access.admission import SLICE, Crowd
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5

CLIENTS = 600
TURNS = 6  # of the loop, that a ping and its answer take at most; both ends are in this one loop


async def most_at_once() -> int:
    """A crowd comes while a client pings: the most that were let in between two answers."""
    with contextlib.ExitStack() as stack:
        async with Door(Limits(half_open_max=2 * CLIENTS)) as door:
            there = await door.peer("there")
            crowd = [
                stack.enter_context(socket.create_connection(("127.0.0.1", door.port)))
                for _ in range(CLIENTS)
            ]
            await until(lambda: door.listener.half_open == CLIENTS)
            for number, each in enumerate(crowd):
                each.sendall(encode(ConnectPacket(f"c{number}"), V5))
            counts = [door.listener.clients]
            while counts[-1] <= CLIENTS:
                there.send(PingReqPacket())
                await there.receive(PingRespPacket)
                counts.append(door.listener.clients)
            return max(after - before for before, after in itertools.pairwise(counts))


async def test_who_is_connected_is_served_between_turns_of_a_crowd() -> None:
    assert await most_at_once() <= TURNS * SLICE


async def test_without_turns_who_is_connected_waits_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Crowd, "comes", lambda self, token, names, now_us: True)
    assert await most_at_once() > 2 * TURNS * SLICE
