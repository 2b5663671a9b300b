"""Reply addresses, and what is said where there is no server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tocsin.errors import Refused, StoreUnavailable
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.nats.connection import REFUSALS_BELIEVED, Connection, Mailbox, NotSent, Unanswered
from tocsin.store.nats.login import Login
from tocsin.store.nats.nkeys import make_seed
from tocsin.store.nats.protocol import Incoming


@pytest.fixture
async def connection() -> Connection:
    """One that was never opened: enough for reply addresses."""
    return Connection(["nats://127.0.0.1:1"], Login(), "test")


async def test_a_mailbox_hands_out_answers_in_order(connection: Connection) -> None:
    with Mailbox(connection) as mailbox:
        for i in range(3):
            mailbox.put(Incoming(mailbox.address, "", str(i).encode(), {}))
        assert [(await mailbox.get(1)).payload for _ in range(3)] == [b"0", b"1", b"2"]
        with pytest.raises(Unanswered):
            await mailbox.get(0)
    assert not connection._mailboxes


async def test_a_mailbox_says_when_nobody_is_there(connection: Connection) -> None:
    with Mailbox(connection) as mailbox:
        mailbox.put(Incoming(mailbox.address, "", b"", {"Status": "503"}))
        with pytest.raises(NotSent):
            await mailbox.get(1)


async def test_a_lost_connection_wakes_who_waits(connection: Connection) -> None:
    with Mailbox(connection) as mailbox:
        waiting = asyncio.ensure_future(mailbox.get(60))
        await asyncio.sleep(0)
        mailbox.lose()
        with pytest.raises(Unanswered, match="lost"):
            await waiting
        with pytest.raises(Unanswered, match="lost"):
            await mailbox.get(60)


async def test_an_answer_that_came_before_the_loss_counts(connection: Connection) -> None:
    with Mailbox(connection) as mailbox:
        mailbox.put(Incoming(mailbox.address, "", b"1", {}))
        mailbox.lose()
        assert (await mailbox.get(1)).payload == b"1"


async def test_nothing_is_sent_without_a_connection(connection: Connection) -> None:
    with pytest.raises(NotSent):
        await connection.send(b"PUB a 0\r\n\r\n")
    with pytest.raises(NotSent):
        await connection.listen("a", "", lambda message: None)
    with pytest.raises(NotSent):
        await connection.wait_connected(0)


async def test_no_server_is_said_in_words() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        await JetStreamStore.connect(["nats://127.0.0.1:1"], deadline_s=0.3)


class Door:
    """A server that refuses so many log-ins, then lets everybody in."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.dialled = 0
        self.served = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled += 1
        answer = b"-ERR 'Authorization Violation'\r\n" if self.dialled <= self.refusals else b"PONG\r\n"
        writer.write(b'INFO {"nonce":"abc"}\r\n')
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if line == b"PING\r\n":
                    writer.write(answer)
        writer.close()
        self.served += 1


@pytest.mark.parametrize("refusals", [1, REFUSALS_BELIEVED - 1, REFUSALS_BELIEVED])
async def test_a_refusal_is_believed_when_it_is_repeated(refusals: int) -> None:
    door = Door(refusals)
    async with await asyncio.start_server(door.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        connection = Connection([f"nats://127.0.0.1:{port}"], Login(seed=make_seed()), "test")
        if refusals < REFUSALS_BELIEVED:
            await connection.open(10)
            assert connection.connected
        else:
            with pytest.raises(Refused, match="does not know the key"):
                await connection.open(10)
        assert door.dialled == min(refusals + 1, REFUSALS_BELIEVED)
        await connection.close()
        while door.served < door.dialled:
            await asyncio.sleep(0.01)


async def test_a_store_that_cannot_be_is_refused() -> None:
    with pytest.raises(Refused):
        await JetStreamStore.connect([])
    with pytest.raises(Refused):
        await JetStreamStore.connect(["nats://127.0.0.1:1"], replicas=2)
