"""The proxy of a coordinator's door: who does not read stops who writes, from the first byte on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.broker.harness import NETWORK, coordinator_tls
from tocsin.coordinator.door import proxy as door_proxy
from tocsin.coordinator.door.proxy import Proxy, Upstream
from tocsin.core.door.choice import Candidate
from tocsin.model.network import BrokerInfo, Role
from tocsin.wire.proxy_header import PassedOn


class Socket:
    """A transport to a broker."""

    def __init__(self) -> None:
        self.is_read = True
        self.closing = self.aborted = False

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = True


class Client:
    """A client's side that takes nothing: whatever is sent waits."""

    def __init__(self) -> None:
        self.upstream: Upstream | None = None
        self.sent = b""

    def begin(self, upstream: Upstream) -> None:
        self.upstream = upstream

    def send(self, data: bytes) -> None:
        self.sent += data
        assert self.upstream is not None
        self.upstream.pause()

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def end(self) -> None: ...


def connected(proxy: Proxy | None = None) -> tuple[Proxy, Client, Upstream, Socket]:
    proxy = proxy or Proxy(NETWORK, coordinator_tls(), lambda broker: None)
    client, socket = Client(), Socket()
    upstream = Upstream(proxy, client)
    transport: Any = socket
    upstream.connection_made(transport)
    return proxy, client, upstream, socket


async def test_broker_is_not_read_for_a_client_that_takes_nothing() -> None:
    _, client, upstream, socket = connected()
    upstream.data_received(b"CONNACK, and much more")
    client.begin(upstream)
    upstream.begin()
    assert (client.sent, socket.is_read) == (b"CONNACK, and much more", False)
    upstream.resume()
    assert socket.is_read


async def test_connection_is_slow_until_both_sides_read_again() -> None:
    proxy, client, upstream, _ = connected()
    client.begin(upstream)
    upstream.begin()
    upstream.pause()
    upstream.pause_writing()
    upstream.resume()
    assert list(proxy._congested) == [upstream]
    upstream.resume_writing()
    assert not proxy._congested


async def test_connection_to_a_broker_that_does_not_read_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door_proxy, "LINGER_S", 0.0)
    _, _, upstream, socket = connected()
    upstream.end()
    assert socket.closing
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert socket.aborted


async def test_clients_of_a_broker_that_hangs_are_let_go() -> None:
    """Its sockets stay open: only the network says that it is lost."""
    proxy, _, lost, socket = connected()
    _, _, living, other = connected(proxy)
    proxy.open = {lost: info("lost"), living: info("living")}
    proxy.leave(lambda broker: broker.id == "living")
    assert (socket.aborted, other.aborted) == (True, False)


def info(name: str) -> BrokerInfo:
    return BrokerInfo(name, "north", Role.EDGE, name, 1)


@pytest.mark.parametrize(("error", "silent"), [(None, []), (ConnectionResetError(), ["a", "b"])], ids=str)
async def test_a_client_that_a_broker_only_closes_makes_no_broker_look_gone(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, silent: list[str]
) -> None:
    """Else one that takes no packet as large as a CONNACK would turn others away from the broker that it names."""
    told: list[str] = []
    proxy, asked = Proxy(NETWORK, coordinator_tls(), told.append), list[str]()

    async def dial(self: Proxy, served: Any, broker: BrokerInfo) -> Upstream:
        asked.append(broker.id)
        *_, upstream, _ = connected(proxy)
        asyncio.get_running_loop().call_soon(upstream.connection_lost, error)
        return upstream

    monkeypatch.setattr(Proxy, "_dial", dial)
    candidates = [Candidate(BrokerInfo(each, "north", Role.EDGE, "x", 1), "by turns") for each in "ab"]
    found = await proxy.pass_on(Client(), PassedOn("", 0), b"CONNECT", candidates)
    assert (found, asked, told) == (None, ["a", "b"], silent)
    assert not proxy.open
