"""The client of the paper's own broker, against a broker of a page that speaks its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import OperatorError
from tocsin_labs.cqbs.original import DIFFERENCE, PUBLISH, QUERY, OriginalClient, end_of, messages

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=30,
)


@given(VALUES, st.binary())
def test_a_values_end_is_found_whatever_follows(value: Any, rest: bytes) -> None:
    encoded = msgspec.msgpack.encode(value)
    assert end_of(encoded + rest, 0) == len(encoded)
    assert all(end_of(encoded[:cut], 0) is None for cut in range(len(encoded)))


def test_the_end_of_long_values_is_found() -> None:
    for value in ("a" * 70_000, b"a" * 70_000, ["a"] * 70_000, {str(each): each for each in range(70_000)}):
        encoded = msgspec.msgpack.encode(value)
        assert end_of(encoded, 0) == len(encoded)


class Broker:
    """Gives every subscriber whatever a stream with the metadata ``wanted`` publishes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told: list[dict[str, str]] = []
        self._subscribers: list[asyncio.StreamWriter] = []
        self.served: list[asyncio.Task[None]] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for kind, body in messages(reader):
            said = msgspec.msgpack.decode(body)
            if kind == QUERY:
                self.asked.append(said["Query"])
                self._subscribers.append(writer)
                writer.write(bytes((DIFFERENCE,)) + msgspec.msgpack.encode({"New": []}))
            else:
                self.told.append(said["Metadata"])
                for each in self._subscribers:
                    each.write(bytes((PUBLISH,)) + body)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def serving(broker: Broker) -> AsyncIterator[int]:
    server = await asyncio.start_server(broker.accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*broker.served)


async def test_a_subscriber_hears_a_publisher_that_says_its_metadata_once() -> None:
    broker = Broker()
    async with (
        serving(broker) as port,
        OriginalClient("127.0.0.1", port) as subscriber,
        OriginalClient("127.0.0.1", port) as publisher,
    ):
        asked = subscriber.query('Room = "410"')
        await asked.open()
        stream = publisher.stream("lamp", {"Room": "410"})
        await stream.publish(b"first")
        await stream.publish(b"second")
        await stream.publish(b"third", {"Room": "411"})
        heard = aiter(asked)
        assert [(await anext(heard)).payload for _ in range(3)] == [b"first", b"second", b"third"]
    assert broker.asked == ['Room = "410"']
    assert broker.told == [{"Room": "410"}, {}, {"Room": "411"}]


async def test_a_peer_that_does_not_listen_is_named_with_a_remedy() -> None:
    async with serving(Broker()) as port:
        pass
    with pytest.raises(OperatorError, match="--peer"):
        async with OriginalClient("127.0.0.1", port):
            pass


@pytest.mark.parametrize("said", [b"\x00\xc1", b"\x01\xc1HTTP/1.1"])
async def test_a_peer_of_another_protocol_is_refused(said: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(said)
    reader.feed_eof()
    with pytest.raises(OperatorError, match="protocol"):
        await anext(messages(reader))


async def test_a_message_without_an_end_is_refused() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"\x00\xdb\xff\xff\xff\xff" + bytes(1 << 21))
    reader.feed_eof()
    with pytest.raises(OperatorError, match="more than"):
        await anext(messages(reader))
