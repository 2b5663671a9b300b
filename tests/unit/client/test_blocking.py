"""The client that blocks, against a broker's entrance on another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest

from tests.unit.broker.harness import Door
from tocsin.client import Client, Connection, Message
from tocsin.config import Limits
from tocsin.errors import BrokerUnreachable, ClientClosed, DeadlineExceeded, QueryInvalid

DEADLINE_S = 10.0


@pytest.fixture
def url() -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def open_door() -> Door:
        return await Door(Limits()).__aenter__()

    door = asyncio.run_coroutine_threadsafe(open_door(), loop).result(DEADLINE_S)
    yield f"mqtt://127.0.0.1:{door.port}"
    asyncio.run_coroutine_threadsafe(door.__aexit__(None, None, None), loop).result(DEADLINE_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(DEADLINE_S)
    loop.close()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_hears_what_another_publishes(url: str, qos: int) -> None:
    with Client(url) as one, Client(url) as two, one.subscribe("a/#", qos=2) as heard:
        for number in range(20):
            two.publish("a/b", number, qos=qos)
        assert [heard.get(DEADLINE_S).json() for _ in range(20)] == list(range(20))


def test_a_subscription_is_an_iterator_that_ends_with_the_client(url: str) -> None:
    with Client(url) as client:
        heard = client.subscribe("a")
        client.publish("a", "x")
        for message in heard:
            assert message == Message("a", b"x")
            break
        with ThreadPoolExecutor(1) as elsewhere:
            rest = elsewhere.submit(list[Message], heard)
            client.close()
            assert rest.result(DEADLINE_S) == []
    with pytest.raises(ClientClosed, match="this client is closed"):
        client.publish("a")


def test_streams_are_published_on(url: str) -> None:
    with Client(url) as client, client.subscribe("a") as heard:
        stream = client.stream("a", Room="410")
        stream.publish(21.5)
        message = heard.get(DEADLINE_S)
        assert message.json() == 21.5
        assert stream.metadata == {"Room": "410"}
        assert stream.priority is None
        stream.priority = 7
        stream.publish(22)
        assert stream.priority == 7


def test_threads_share_a_client(url: str) -> None:
    with Client(url) as client, client.subscribe("a", qos=1) as heard:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: client.publish("a", number, qos=1), range(100)))
        assert sorted(heard.get(DEADLINE_S).json() for _ in range(100)) == list(range(100))


def test_waiting_has_a_deadline(url: str) -> None:
    with Client(url) as client, client.subscribe("a") as heard, pytest.raises(DeadlineExceeded):
        heard.get(0.01)


def test_nobody_there_is_said_in_words_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(BrokerUnreachable, match="is it running there"):
        Client("127.0.0.1:1", redial=False).connect()
    assert threading.active_count() == before


def test_a_query_that_cannot_be_read_is_refused(url: str) -> None:
    with Client(url) as client:
        for ask in (client.query, client.streams):
            with pytest.raises(QueryInvalid):
                ask("Room = ")


def test_a_client_that_was_never_connected_can_be_closed() -> None:
    client = Client()
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.connect()


def test_what_is_told_of_the_connection_may_not_wait_for_the_client(url: str) -> None:
    told: Queue[object] = Queue()

    def on_connection(connection: Connection) -> None:
        try:
            client.publish("a", connection.server, qos=1)
        except RuntimeError as error:
            told.put(error)

    client = Client(url, on_connection=on_connection)
    with client:
        assert "call it from another thread" in str(told.get(timeout=DEADLINE_S))


def test_the_will_of_a_client_that_vanishes_is_published(url: str) -> None:
    with Client(url) as watcher, watcher.subscribe("state/#") as heard:
        doomed = Client(url, client_id="doomed", will=Message("state/doomed", b"gone"))
        doomed.connect()
        with Client(url, client_id="doomed"):  # takes its place
            assert heard.get(DEADLINE_S).text == "gone"
        doomed.close()
