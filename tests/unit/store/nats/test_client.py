"""One connection to a server that is played here: what is said in which order, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from tocsin.store.nats import client as nats_client
from tocsin.store.nats.client import NatsClient, NotConnected, NotLetIn
from tocsin.store.nats.login import Login
from tocsin.store.nats.nkeys import make_seed, public_key
from tocsin.store.nats.protocol import Incoming

DEADLINE_S = 10


class Server:
    """Says INFO and answers a ping; a test plays the rest."""

    def __init__(self, info: bytes, answer: bytes) -> None:
        self.info = info
        self.answer = answer  # to the first ping
        self.heard = bytearray()
        self.writer: asyncio.StreamWriter | None = None
        self.pings = asyncio.Queue[None]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        writer.write(self.info)
        while line := await reader.readline():
            self.heard += line
            if line == b"PING\r\n":
                self.pings.put_nowait(None)
                writer.write(self.answer)
        writer.close()


class Owner:
    """Whoever has the client."""

    def __init__(self) -> None:
        self.messages: list[Incoming] = []
        self.complaints: list[str] = []
        self.ends: asyncio.Queue[str] = asyncio.Queue()
        self.client = NatsClient(
            self.messages.append, self.complaints.append, lambda _, problem: self.ends.put_nowait(problem)
        )


@asynccontextmanager
async def reached(
    login: Login | None = None, *, info: bytes = b'INFO {"nonce":"abc"}\r\n', answer: bytes = b"PONG\r\n"
) -> AsyncIterator[tuple[Server, Owner, asyncio.Task[None]]]:
    server, owner = Server(info, answer), Owner()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    login = login or Login()
    dialling = asyncio.ensure_future(owner.client.dial(url, login, login.context(), "me", b"SUB a 1\r\n"))
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield server, owner, dialling
    finally:
        await owner.client.close()
        dialling.cancel()
        await asyncio.gather(dialling, return_exceptions=True)
        if server.writer is not None:
            server.writer.transport.abort()
        listening.close()
        await asyncio.sleep(0)


def connect_options(server: Server) -> dict[str, object]:
    line = bytes(server.heard).split(b"\r\n")[0]
    assert line.startswith(b"CONNECT ")
    options: dict[str, object] = msgspec.json.decode(line.removeprefix(b"CONNECT "))
    return options


async def test_a_client_logs_in_and_subscribes_before_it_is_open() -> None:
    seed = make_seed()
    async with reached(Login(seed=seed)) as (server, owner, dialling):
        await dialling
        assert owner.client.open
        assert bytes(server.heard).split(b"\r\n")[1:3] == [b"SUB a 1", b"PING"]
        options = connect_options(server)
        assert options["nkey"] == public_key(seed)
        assert options["name"] == "me" and options["headers"] is True


async def test_messages_and_complaints_go_to_the_owner() -> None:
    async with reached() as (server, owner, dialling):
        await dialling
        assert server.writer is not None
        violation = b"-ERR 'Permissions Violation for Publish to \"B.c\"'\r\n"
        server.writer.write(b"MSG a 1 2\r\nhi\r\n" + violation + b"PING\r\n")
        while b"PONG\r\n" not in server.heard:
            await asyncio.sleep(0.01)
        assert [message.payload for message in owner.messages] == [b"hi"]
        assert owner.complaints == ['Permissions Violation for Publish to "B.c"']
        assert owner.client.open


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"-ERR 'Authorization Violation'\r\n", NotLetIn),
        (b"-ERR 'User Authentication Revoked'\r\n", NotLetIn),
        (b"-ERR 'Authentication Timeout'\r\n", NotConnected),
        (b"-ERR 'maximum connections exceeded'\r\n", NotConnected),
        (b"HTTP/1.1 400 Bad Request\r\n", NotConnected),
    ],
)
async def test_a_server_that_says_no_is_told_from_one_that_cannot(
    answer: bytes, error: type[Exception]
) -> None:
    async with reached(answer=answer) as (_, owner, dialling):
        with pytest.raises(error) as raised:
            await dialling
        assert type(raised.value) is error
        assert not owner.client.open


async def test_a_client_that_requires_tls_says_nothing_to_a_plain_server() -> None:
    async with reached(Login(secure=True, token="secret")) as (server, _, dialling):
        with pytest.raises(NotConnected, match="does not speak TLS"):
            await dialling
        assert not server.heard


async def test_the_end_of_the_stream_is_told_once() -> None:
    async with reached() as (server, owner, dialling):
        await dialling
        assert server.writer is not None
        server.writer.write(b"-ERR 'Stale Connection'\r\n")
        await server.writer.drain()
        server.writer.close()
        assert await owner.ends.get() == "Stale Connection"
        assert not owner.client.open
        owner.client.fail("again")
        assert owner.ends.empty()


async def test_a_server_that_answers_no_pings_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_client, "PING_S", 0.02)
    async with reached() as (server, owner, dialling):
        await dialling
        server.answer = b""
        assert await owner.ends.get() == "the server does not answer"


async def test_a_server_that_answers_pings_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_client, "PING_S", 0.01)
    async with reached() as (server, owner, dialling):
        await dialling
        for _ in range(20):
            await server.pings.get()
        assert owner.client.open


async def test_nobody_at_the_address_is_said_in_words() -> None:
    with pytest.raises(NotConnected, match="refused"):
        await Owner().client.dial("nats://127.0.0.1:1", Login(), None, "me", b"")


async def test_a_closed_client_tells_nobody() -> None:
    async with reached() as (_, owner, dialling):
        await dialling
        await owner.client.close()
        await asyncio.sleep(0.05)
        assert owner.ends.empty()
