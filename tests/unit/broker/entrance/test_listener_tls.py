"""TLS at a broker's entrance, and its bounds on connections, over real sockets."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mqtt5 import (
    ConnectPacket,
    PublishPacket,
    TopicFilter,
)

from tests.certificates import Authority
from tests.unit.broker.guarded import GuardedDoor
from tests.unit.broker.harness import DEADLINE_S, Door, until
from tocsin.broker.entrance import listener as module
from tocsin.config import Limits, Settings, Tls


@pytest.fixture
def authority(debian_program: Callable[[str, str], str], tmp_path: Path) -> Authority:
    return Authority(debian_program("openssl", "openssl"), tmp_path)


@asynccontextmanager
async def secured(
    authority: Authority, *, limits: Limits | None = None, **tls: str
) -> AsyncIterator[tuple[GuardedDoor, ssl.SSLContext]]:
    made = authority.sign("localhost")
    files = Tls(
        certificate=str(made.certificate),
        key=str(made.key),
        client_ca=str(authority.certificate),
        **tls,  # type: ignore[arg-type]
    )
    context = ssl.create_default_context(cafile=str(authority.certificate))
    async with GuardedDoor(Settings(tls=files, limits=limits or Limits())) as door:
        yield door, context


async def test_clients_over_tls_and_in_clear_hear_each_other(authority: Authority) -> None:
    async with secured(authority) as (door, context):
        hidden, code = await door.tls_peer(context, ConnectPacket("hidden"))
        assert code == 0
        plain = await door.peer("plain")
        await hidden.subscribe(TopicFilter("a"))
        await plain.subscribe(TopicFilter("b"))
        plain.send(PublishPacket("a", b"x" * 100_000))
        hidden.send(PublishPacket("b", b"y" * 100_000))
        assert len((await hidden.receive(PublishPacket)).payload) == 100_000
        assert len((await plain.receive(PublishPacket)).payload) == 100_000


async def test_the_name_in_the_certificate_is_the_user(authority: Authority) -> None:
    async with secured(authority, client_certificates="required") as (door, context):
        made = authority.sign("press-1")
        context.load_cert_chain(made.certificate, made.key)
        _, code = await door.tls_peer(context, ConnectPacket("c", username="somebody", password=b"x"))
        assert code == 0
        assert door.listener.register.who(door.listener._clients["c"]).user == "press-1"


async def test_a_name_in_a_certificate_that_means_something_else_is_refused(authority: Authority) -> None:
    async with secured(authority, client_certificates="required") as (door, context):
        made = authority.sign("$link", "link")
        context.load_cert_chain(made.certificate, made.key)
        _, code = await door.tls_peer(context, ConnectPacket("c"))
        assert code == 0x87


async def test_a_renewed_certificate_drops_nobody(authority: Authority) -> None:
    async with secured(authority) as (door, context):
        before, _ = await door.tls_peer(context, ConnectPacket("before"))
        made = authority.sign("renewed")
        for new, old in ((made.certificate, "localhost.pem"), (made.key, "localhost.key")):
            shutil.copy(new, authority.certificate.with_name(old))
        # Whoever looks first, the door's own watch or this test, the files were read by then.
        await asyncio.to_thread(door.guard.look)
        after, _ = await door.tls_peer(context, ConnectPacket("after"))
        assert "renewed" in str(after.writer.get_extra_info("peercert"))
        await before.subscribe(TopicFilter("a"))
        after.send(PublishPacket("a", b"x"))
        assert (await before.receive(PublishPacket)).payload == b"x"


async def test_whoever_speaks_no_tls_is_closed_and_nobody_else_notices(authority: Authority) -> None:
    async with secured(authority) as (door, context):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.tls_port)
        writer.write(b"\x10\x10hello, no TLS here")
        async with asyncio.timeout(DEADLINE_S):
            while await reader.read(100):
                pass
        writer.close()
        await until(lambda: door.listener.refused == 1 and door.listener.half_open == 0)
        assert (await door.tls_peer(context, ConnectPacket("c")))[1] == 0


async def test_a_handshake_that_does_not_end_is_ended(authority: Authority) -> None:
    async with secured(authority, limits=Limits(connect_deadline_s=0.1)) as (door, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.tls_port)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read(1) == b""
        writer.close()
        await until(lambda: door.listener.half_open == 0 and not door.listener._handshakes)


async def test_the_oldest_handshake_makes_room(authority: Authority) -> None:
    async with secured(authority, limits=Limits(half_open_max=2)) as (door, context):
        waiting = [await asyncio.open_connection("127.0.0.1", door.tls_port) for _ in range(3)]
        async with asyncio.timeout(DEADLINE_S):
            assert await waiting[0][0].read(1) == b""
        assert (await door.tls_peer(context, ConnectPacket("c")))[1] == 0
        for _, writer in waiting:
            writer.close()


async def test_a_crowd_that_comes_at_once_leaves_nothing_behind(authority: Authority) -> None:
    """More come in one tick than there is room for, so that some go before their handshake begins."""
    async with secured(authority, limits=Limits(half_open_max=2)) as (door, context):
        crowd = await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", door.tls_port) for _ in range(20))
        )
        await until(lambda: len(door.listener._handshakes) == 2 == door.listener.half_open)
        for _, writer in crowd:
            writer.transport.abort()
        await until(lambda: not door.listener._handshakes and not door.listener.half_open)
        assert (await door.tls_peer(context, ConnectPacket("c")))[1] == 0


async def test_stopping_ends_handshakes_too(authority: Authority) -> None:
    async with secured(authority) as (door, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.tls_port)
        await until(lambda: door.listener.half_open == 1)
        await door.listener.close()
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read(1) == b""
        writer.close()


# ── bounds ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_oldest_connection_without_connect_makes_room() -> None:
    async with Door(Limits(half_open_max=2)) as door:
        silent = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(3)]
        async with asyncio.timeout(DEADLINE_S):
            assert await silent[0][0].read(1) == b""
        await door.peer("c")
        await until(lambda: door.listener.half_open == 1)
        for _, writer in silent:
            writer.close()
        await until(lambda: door.listener.half_open == 0)


async def test_an_address_that_connects_too_often_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_loopback", lambda address: False)
    monkeypatch.setattr(module, "now_us", lambda: 0)
    async with Door(Limits(connection_rate=1)) as door:
        for number in range(10):  # ten seconds' worth
            await door.peer(str(number))
        with pytest.raises(ConnectionError):
            await door.peer("one more")
        assert door.listener.refused == 1
        monkeypatch.setattr(module, "now_us", lambda: 1_000_000)
        await door.peer("a second later")


async def test_connections_of_this_machine_are_not_counted() -> None:
    async with Door(Limits(connection_rate=1)) as door:
        for number in range(15):
            await door.peer(str(number))
        assert door.listener.refused == 0
