"""What a program may choose, and what a broker is told of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.unit.broker.harness import Door, until
from tocsin.client import AsyncClient, Connection, Message
from tocsin.client.message import publication_of
from tocsin.client.options import BOUNDS, Chosen, Options, Publishing
from tocsin.config import Limits
from tocsin.errors import DeadlineExceeded, WireError

DEADLINE_S = 10.0
SILENCE_S = 0.2


def client_of(door: Door, **options: Any) -> AsyncClient:
    return AsyncClient(f"mqtt://127.0.0.1:{door.port}", **options)


def vanish(client: AsyncClient) -> None:
    """Break the connection, without a word to the broker."""
    call = client._line._call
    assert call is not None and call.transport is not None
    call.transport.abort()


def test_every_option_has_a_default_and_a_type() -> None:
    assert set(Chosen.__struct_fields__) == set(Options.__annotations__)
    parameters = set(inspect.signature(publication_of).parameters)
    assert parameters - {"topic", "value"} == set(Publishing.__annotations__)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_out_of_bounds_is_refused_in_words(name: str) -> None:
    least, most = BOUNDS[name]
    options: dict[str, Any] = {"will": Message("t", b"")}
    for bad in (least - 1, most + 1):
        with pytest.raises(ValueError, match=rf"{name} = .*: it must be from {least} to"):
            AsyncClient(**{**options, name: bad})
    for good in (least, most):
        AsyncClient(**{**options, name: good})


def test_a_will_that_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="will_delay_s is given, and no will; give will="):
        AsyncClient(will_delay_s=3)
    with pytest.raises(WireError, match="topic"):
        AsyncClient(will=Message("a/#", b""))
    with pytest.raises(ValueError, match="0, 1 or 2"):
        AsyncClient(will=Message("a", b"", qos=3))


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(TypeError, match="'lives'"):
        AsyncClient(lives=9)  # type: ignore[call-arg]


def test_an_empty_client_id_is_made_up_and_another_one_each_time() -> None:
    one, two = AsyncClient(client_id=""), AsyncClient()
    assert one.client_id and two.client_id and one.client_id != two.client_id


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_the_will_of_a_client_that_vanishes_is_published(qos: int) -> None:
    will = Message(
        "state/c", b"gone", qos=qos, user_properties=(("k", "v"),), expiry_s=60, content_type="text/plain"
    )
    async with Door(Limits()) as door, client_of(door) as watcher:
        heard = await watcher.subscribe("state/#", qos=2)
        doomed = client_of(door, will=will, redial=False)
        await doomed.connect()
        vanish(doomed)
        message = await heard.get(DEADLINE_S)
        assert message.expiry_s is not None and 0 < message.expiry_s <= 60
        assert (message.topic, message.text, message.qos) == ("state/c", "gone", qos)
        assert (message.user_properties, message.content_type) == ((("k", "v"),), "text/plain")
        await doomed.close()


async def test_a_will_is_retained_if_it_says_so() -> None:
    async with Door(Limits()) as door, client_of(door) as later:
        doomed = client_of(door, will=Message("state/c", b"gone", retain=True), redial=False)
        await doomed.connect()
        vanish(doomed)
        await doomed.close()

        async def retained() -> str | None:
            async with later.subscribe("state/c") as heard:
                try:
                    return (await heard.get(SILENCE_S)).text
                except DeadlineExceeded:
                    return None

        found = None
        while found is None:
            found = await retained()
        assert found == "gone"


async def test_a_clean_disconnect_or_a_timely_return_voids_the_will() -> None:
    async with Door(Limits()) as door, client_of(door) as watcher:
        heard = await watcher.subscribe("state/#")
        async with client_of(door, will=Message("state/leaves", b"gone")):
            pass
        options: dict[str, Any] = {"client_id": "comes back", "session_expiry_s": 60}
        doomed = client_of(door, will=Message("state/back", b"gone"), will_delay_s=60, **options)
        await doomed.connect()
        vanish(doomed)
        await until(lambda: not doomed.connected)
        await until(lambda: doomed.connected)
        await doomed.close()
        with pytest.raises(DeadlineExceeded):
            await heard.get(SILENCE_S)


async def test_a_program_is_told_how_it_is_with_the_broker() -> None:
    told: list[Connection] = []
    door = Door(Limits())
    await door.__aenter__()
    client = client_of(door, on_connection=told.append)
    server = f"127.0.0.1:{door.port}"
    await client.connect()
    await until(lambda: told == [Connection(True, server)])
    assert client.server == server
    await door.__aexit__(None, None, None)
    await until(lambda: len(told) > 1)
    down = told[1]
    assert (down.up, down.server) == (False, server) and "shutting down" in down.reason
    assert down.retry_s is not None and 0 < down.retry_s < 1
    async with Door(Limits(), port=door.port):
        await until(lambda: told[-1].up)
        await client.close()


async def test_an_end_that_is_final_is_told_so() -> None:
    told: list[Connection] = []
    async with (
        Door(Limits()) as door,
        client_of(door, client_id="same", on_connection=told.append) as first,
        client_of(door, client_id="same"),
    ):
        await until(lambda: len(told) == 2)
        assert not first.connected and told[1].retry_s is None


async def test_a_session_that_was_to_last_can_be_ended() -> None:
    options: dict[str, Any] = {"client_id": "durable", "session_expiry_s": 60}
    async with Door(Limits()) as door, client_of(door) as publisher:
        for end_session, missed in ((False, 1), (True, 0)):
            first = client_of(door, **options)
            await first.connect()
            await first.subscribe("a", qos=1)
            await first.close(end_session=end_session)
            await publisher.publish("a", "meanwhile", qos=1)
            async with client_of(door, **options) as second:
                again = await second.subscribe("a", qos=1)
                await publisher.publish("a", "now", qos=1)
                texts = [(await again.get(DEADLINE_S)).text for _ in range(missed + 1)]
                assert texts == ["meanwhile", "now"][1 - missed :]
                await second.close(end_session=True)


async def test_a_request_says_where_its_answer_goes() -> None:
    async with Door(Limits()) as door, client_of(door) as asking, client_of(door) as answering:
        answers = await asking.subscribe("answers/1")
        questions = await answering.subscribe("questions")
        await asking.publish("questions", "how deep?", response_topic="answers/1", correlation=b"7")
        question = await questions.get(DEADLINE_S)
        assert (question.response_topic, question.correlation) == ("answers/1", b"7")
        await answering.publish(
            question.response_topic or "",
            {"metres": 3},
            correlation=question.correlation,
            content_type="json",
        )
        answer = await answers.get(DEADLINE_S)
        assert (answer.json(), answer.correlation, answer.content_type) == ({"metres": 3}, b"7", "json")


async def test_a_subscription_without_ones_own_or_without_retained_messages() -> None:
    async with Door(Limits()) as door, client_of(door) as client, client_of(door) as other:
        await client.publish("a", "kept", retain=True, qos=1)
        async with client.subscribe("a", no_local=True, retained=False) as heard:
            await client.publish("a", "own")
            await client.flush()
            await other.publish("a", "of another")
            assert (await heard.get(DEADLINE_S)).text == "of another"
        with pytest.raises(ValueError, match="a shared subscription cannot be no_local"):
            client.subscribe("$share/g/a", no_local=True)
