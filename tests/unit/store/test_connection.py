"""The protocol's bytes, reply addresses, and what nats-py lets us do beneath its surface."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from tocsin.errors import Refused, StoreUnavailable
from tocsin.store.connection import Connection, Incoming, Mailbox, NotSent, Unanswered, frame
from tocsin.store.jetstream import JetStreamStore
from tocsin.store.login import Login

words = st.text("abcXYZ019._-", min_size=1, max_size=20)
lines = st.lists(st.tuples(words, words), max_size=3).map(
    lambda pairs: b"".join(f"{name}: {value}\r\n".encode() for name, value in pairs)
)


@given(words, st.just("") | words, lines, st.binary(max_size=200))
def test_a_frame_says_its_own_lengths(subject: str, reply: str, headers: bytes, payload: bytes) -> None:
    written = frame(subject, reply, headers, payload)
    control, _, rest = written.partition(b"\r\n")
    verb, *arguments = control.decode().split(" ")
    assert arguments[: 2 if reply else 1] == ([subject, reply] if reply else [subject])
    assert rest.endswith(b"\r\n")
    body = rest[:-2]
    if headers:
        assert verb == "HPUB"
        size, total = int(arguments[-2]), int(arguments[-1])
        assert body[:size] == b"NATS/1.0\r\n" + headers + b"\r\n"
        assert body[size:] == payload
        assert len(body) == total
    else:
        assert verb == "PUB"
        assert body == payload
        assert int(arguments[-1]) == len(payload)


def test_nats_py_still_takes_bytes_the_way_we_hand_them_over() -> None:
    """``Connection.send`` uses two methods that nats-py does not promise; a version without them fails here."""
    assert hasattr(Client(), "_public_nkey")
    assert list(inspect.signature(Client._send_command).parameters)[:2] == ["self", "cmd"]
    assert inspect.iscoroutinefunction(Client._send_command)
    assert inspect.iscoroutinefunction(Client._flush_pending)
    # Nothing is sent before the command that ``_Client`` withholds where there is no TLS.
    source = inspect.getsource(Client._process_connect_init)
    assert source.index("self._connect_command()") < source.index(".write(")
    assert isinstance(Client.pending_data_size, property)


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


async def test_a_store_that_cannot_be_is_refused() -> None:
    with pytest.raises(Refused):
        await JetStreamStore.connect([])
    with pytest.raises(Refused):
        await JetStreamStore.connect(["nats://127.0.0.1:1"], replicas=2)
