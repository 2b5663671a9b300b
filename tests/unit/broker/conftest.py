"""What the tests of the broker share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from tests.unit.broker.harness import Door
from tocsin.broker.entrance import websocket
from tocsin.config import Limits


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with Door(Limits()) as opened:
        yield opened


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> list[websocket.WebSocketTransport]:
    """The broker's ends of all WebSockets, in the order in which they came."""
    all_of_them: list[websocket.WebSocketTransport] = []
    made = websocket.WebSocketTransport.connection_made

    def spy(channel: websocket.WebSocketTransport, tcp: asyncio.BaseTransport) -> None:
        all_of_them.append(channel)
        made(channel, tcp)

    monkeypatch.setattr(websocket.WebSocketTransport, "connection_made", spy)
    return all_of_them


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """WebSockets write past the loop to the socket, and TLS is the loop's own: both are tested on that of the processes
    too. How sockets are accepted is its own affair altogether."""
    if item.path.name == "test_listener_closing.py":
        return {"uvloop": uvloop.new_event_loop}
    if item.path.name.startswith(("test_websocket", "test_listener_access")):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
