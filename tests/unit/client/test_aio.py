"""The asynchronous client against a broker's entrance, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.unit.broker.guarded import GuardedDoor
from tests.unit.broker.harness import Door, until
from tests.unit.broker.web import WebDoor
from tocsin.client import AsyncClient, Message, aio
from tocsin.client.arrivals import Arrivals
from tocsin.config import Access, Limits, Settings, Tls
from tocsin.errors import (
    AddressInvalid,
    AlreadySubscribed,
    BrokerUnreachable,
    ClientClosed,
    DeadlineExceeded,
    PacketTooLarge,
    SubscriptionRefused,
    WireError,
)
from tocsin.model.network import Scheme
from tocsin.runtime.security.tls import client_context, server_context
from tocsin.runtime.security.users import set_password

DEADLINE_S = 10.0


def client_of(door: Door, **options: Any) -> AsyncClient:
    return AsyncClient(f"mqtt://127.0.0.1:{door.port}", **options)


@pytest.fixture
def authority(debian_program: Callable[[str, str], str], tmp_path: Path) -> Authority:
    return Authority(debian_program("openssl", "openssl"), tmp_path)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_client_hears_what_another_publishes(qos: int) -> None:
    async with Door(Limits()) as door, client_of(door) as one, client_of(door) as two:
        heard = await one.subscribe("a/#", qos=2)
        await two.publish("a/b", {"water": 3.2}, qos=qos, user_properties=[("k", "v")])
        message = await heard.get(DEADLINE_S)
        assert message == Message("a/b", b'{"water":3.2}', qos, user_properties=(("k", "v"),))
        assert message.json() == {"water": 3.2}


async def test_messages_come_whole_and_in_order_at_every_quality() -> None:
    async with Door(Limits()) as door, client_of(door, receive_max=7) as one, client_of(door) as two:
        heard = await one.subscribe("a", qos=2)
        numbers = range(200)
        for qos in (0, 1, 2):
            sending = [two.publish("a", str(number), qos=qos) for number in numbers]
            await asyncio.gather(*sending)
            assert [int((await heard.get(DEADLINE_S)).payload) for _ in numbers] == list(numbers)
        assert (one.duplicates, one.dropped) == (0, 0)


async def test_a_subscription_is_awaited_iterated_or_entered() -> None:
    async with Door(Limits()) as door, client_of(door) as client:
        awaited = await client.subscribe("a", "b")
        async with client.subscribe("c") as entered:
            for topic in ("a", "b", "c"):
                await client.publish(topic, topic)
            assert [(await awaited.get(DEADLINE_S)).text for _ in range(2)] == ["a", "b"]
            async for message in entered:
                assert message.text == "c"
                break
        assert [removed for _, removed in door.interests if removed] == [("c",)]
        with pytest.raises(ClientClosed, match="this subscription is closed"):
            await entered.get(DEADLINE_S)
        assert [message async for message in entered] == []


async def test_iterating_subscribes() -> None:
    async with Door(Limits()) as door, client_of(door) as client:
        await client.publish("a", "kept", retain=True, qos=1)
        async for message in client.subscribe("a"):
            assert (message.text, message.retain) == ("kept", True)
            break


async def test_flush_returns_when_the_broker_has_read_everything() -> None:
    async with Door(Limits()) as door, client_of(door) as client:
        for number in range(1_000):
            await client.publish("a", number)
        await client.flush()
        assert door.exchange.counts.published == 1_000


async def test_nobody_there_is_said_in_words() -> None:
    async with Door(Limits()) as door:
        port = door.port
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}.*is it running there"):
        await AsyncClient(f"127.0.0.1:{port}", redial=False).connect()
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}.*is it running there"):
        await AsyncClient(f"127.0.0.1:{port}", deadline_s=0.2).connect()


async def test_the_servers_are_tried_in_order() -> None:
    async with Door(Limits()) as gone:
        port = gone.port
    async with Door(Limits()) as second, Door(Limits()) as third:
        urls = [f"mqtt://127.0.0.1:{each}" for each in (port, second.port, third.port)]
        async with AsyncClient(urls, redial=False) as client:
            assert client.connected
            assert (second.listener.clients, third.listener.clients) == (1, 0)


async def test_a_refused_subscription_is_an_error_and_stays_one() -> None:
    async with Door(Limits(subscriptions_per_client=1)) as door, client_of(door) as client:
        await client.subscribe("a")
        refused = client.subscribe("b")
        for _ in range(2):
            with pytest.raises(SubscriptionRefused, match="'b'"):
                await refused
        with pytest.raises(AlreadySubscribed):
            await client.subscribe("a")


async def test_of_several_filters_all_are_granted_or_none_is_kept() -> None:
    async with Door(Limits(subscriptions_per_client=1)) as door, client_of(door) as client:
        with pytest.raises(SubscriptionRefused, match="'b'"):
            await client.subscribe("a", "b")
        await client.flush()
        assert [removed for _, removed in door.interests if removed] == [("a",)]
        await client.subscribe("a")


@pytest.mark.parametrize("bad", ["", "a/#/b", "a+"])
async def test_what_no_broker_takes_is_refused_before_it_is_sent(bad: str) -> None:
    async with Door(Limits()) as door, client_of(door) as client:
        with pytest.raises(WireError):
            client.subscribe(bad)
        with pytest.raises(WireError):
            await client.publish("a/#")
        with pytest.raises(ValueError, match="0, 1 or 2"):
            await client.publish("a", qos=3)
        await client.flush()


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_message_larger_than_the_broker_takes_is_refused_here(qos: int) -> None:
    async with Door(Limits(packet_max_bytes=2_000)) as door, client_of(door) as client:
        with pytest.raises(PacketTooLarge, match="over the limit of 2000"):
            await client.publish("a", bytes(2_000), qos=qos)
        await client.publish("a", bytes(1_900), qos=qos)
        assert client.connected


async def test_without_redialling_the_brokers_end_ends_the_client() -> None:
    async with Door(Limits()) as door, client_of(door, redial=False) as client:
        heard = await client.subscribe("a")
        await door.listener.close()
        with pytest.raises(BrokerUnreachable, match="shutting down"):
            await heard.get(DEADLINE_S)
        for qos in (0, 1):
            with pytest.raises(BrokerUnreachable):
                await client.publish("a", qos=qos)


async def test_a_closed_client_says_so_and_its_iterators_end() -> None:
    async with Door(Limits()) as door:
        async with client_of(door) as client:
            heard = await client.subscribe("a")
            reading = asyncio.create_task(_all(heard))
        assert await reading == []
        with pytest.raises(ClientClosed, match="this client is closed"):
            await client.publish("a")
        with pytest.raises(ClientClosed):
            await client.subscribe("b")


async def _all(heard: Any) -> list[Message]:
    return [message async for message in heard]


async def test_waiting_has_a_deadline() -> None:
    async with Door(Limits()) as door, client_of(door) as client:
        with pytest.raises(DeadlineExceeded, match=r"no answer on a within 0\.01 s"):
            await client.subscribe("a").get(0.01)


async def test_an_inbox_that_is_full_drops_the_oldest_and_counts() -> None:
    async with Door(Limits()) as door, client_of(door, inbox_max=5) as client:
        heard = await client.subscribe("a")
        for number in range(8):
            await client.publish("a", str(number))
        await client.flush()
        assert (heard.dropped, client.dropped) == (3, 3)
        assert [(await heard.get(DEADLINE_S)).text for _ in range(5)] == ["3", "4", "5", "6", "7"]


async def test_unread_messages_above_qos_0_are_held_back_not_dropped() -> None:
    async with (
        Door(Limits()) as door,
        client_of(door, receive_max=3, inbox_max=2) as slow,
        client_of(door) as publisher,
    ):
        heard = await slow.subscribe("a", qos=1)
        for number in range(50):
            await publisher.publish("a", str(number), qos=1)
        assert [int((await heard.get(DEADLINE_S)).text) for _ in range(50)] == list(range(50))
        assert heard.dropped == 0


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_reader_that_stopped_does_not_hold_the_others_back(qos: int) -> None:
    async with Door(Limits()) as door, client_of(door, receive_max=3) as client:
        stopped, other = await client.subscribe("a", qos=qos), await client.subscribe("b", qos=qos)
        await client.publish("a", qos=qos)
        await stopped.get(DEADLINE_S)
        for number in range(20):
            await client.publish("b", number, qos=qos)
            assert (await other.get(DEADLINE_S)).json() == number


async def test_a_message_the_reader_has_not_passed_goes_to_the_next_process() -> None:
    async with Door(Limits()) as door, client_of(door) as publisher:
        options: dict[str, Any] = {"client_id": "durable", "session_expiry_s": 60}
        first = client_of(door, **options)
        await first.connect()
        heard = await first.subscribe("a", qos=1)
        for word in ("one", "two", "three"):
            await publisher.publish("a", word, qos=1)
        assert (await heard.get(DEADLINE_S)).text == "one"
        assert (await heard.get(DEADLINE_S)).text == "two"
        await first.close(settle=False)
        await publisher.publish("a", "four", qos=1)
        async with client_of(door, **options) as second:
            again = await second.subscribe("a", qos=1)
            assert [(await again.get(DEADLINE_S)).text for _ in range(3)] == ["two", "three", "four"]
        async with client_of(door, **options) as third:
            last = await third.subscribe("a", qos=1)
            await publisher.publish("a", "five", qos=1)
            assert (await last.get(DEADLINE_S)).text == "five"


async def test_a_redialling_client_keeps_subscriptions_and_resends_unacknowledged_messages() -> None:
    door = Door(Limits())
    await door.__aenter__()
    client = client_of(door)
    await client.connect()
    heard = await client.subscribe("a", qos=1)
    await door.__aexit__(None, None, None)
    await until(lambda: not client.connected)
    with pytest.raises(BrokerUnreachable):
        await client.publish("a", "at once or not at all")
    sending = asyncio.create_task(client.publish("a", "later", qos=1))
    async with Door(Limits(), port=door.port):
        async with asyncio.timeout(DEADLINE_S):
            await sending
        assert (await heard.get(DEADLINE_S)).text == "later"
        await client.close()


async def test_a_client_follows_the_redirect_of_a_stopping_broker() -> None:
    async with (
        Door(Limits()) as first_door,
        Door(Limits()) as other,
        client_of(first_door, redial=False) as client,
        client_of(other) as publisher,
    ):
        heard = await client.subscribe("a")
        first_door.refuges[Scheme.MQTT] = f"127.0.0.1:{other.port}"
        await first_door.listener.close()
        await until(lambda: bool(other.interests))
        await publisher.publish("a", "over here")
        assert (await heard.get(DEADLINE_S)).text == "over here"


async def test_a_client_follows_the_redirect_of_a_full_broker() -> None:
    async with Door(Limits(connections_max=1)) as full, Door(Limits()) as other, client_of(full):
        full.refuges[Scheme.MQTT] = f"127.0.0.1:{other.port}"
        async with client_of(full) as second:
            assert second.connected
            assert other.listener.clients == 1


async def test_two_clients_with_one_id_stop_evicting_each_other() -> None:
    async with (
        Door(Limits()) as door,
        client_of(door, client_id="same") as first,
        client_of(door, client_id="same") as second,
    ):
        await until(lambda: not first.connected)
        with pytest.raises(BrokerUnreachable):
            await first.publish("a", qos=1)
        await second.flush()


async def test_a_client_forgets_old_messages_while_it_is_connected_and_not_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aio, "AGING_S", 0.01)
    aged: list[None] = []
    monkeypatch.setattr(Arrivals, "age", lambda arrivals: aged.append(None))
    async with Door(Limits()) as door, client_of(door):
        await until(lambda: len(aged) > 2)
    before = len(aged)
    await asyncio.sleep(0.05)
    assert len(aged) == before


async def test_a_client_comes_over_websocket() -> None:
    async with WebDoor(Limits()) as door, AsyncClient(f"ws://127.0.0.1:{door.web_port}/mqtt") as client:
        heard = await client.subscribe("a")
        for payload in (b"", b"x" * 200, b"y" * 100_000):
            await client.publish("a", payload)
            assert (await heard.get(DEADLINE_S)).payload == payload


async def test_a_server_without_websocket_is_named_in_words() -> None:
    async with Door(Limits()) as door:
        with pytest.raises(BrokerUnreachable, match="no connection to the broker"):
            await AsyncClient(f"ws://127.0.0.1:{door.port}", redial=False).connect()


async def test_a_client_comes_over_tls_to_a_broker_whose_authority_it_believes(authority: Authority) -> None:
    made = authority.sign("localhost")
    tls = Tls(certificate=str(made.certificate), key=str(made.key))
    believing, insecure = (
        client_context(authorities=str(authority.certificate)),
        client_context(insecure=True),
    )
    async with (
        GuardedDoor(Settings(tls=tls)) as door,
        WebDoor(Limits(), context=server_context(tls)) as web_door,
    ):
        for url in (f"mqtts://127.0.0.1:{door.tls_port}", f"wss://127.0.0.1:{web_door.web_port}/mqtt"):
            async with AsyncClient(url, tls=believing) as client:
                heard = await client.subscribe("a")
                await client.publish("a", b"secret")
                assert (await heard.get(DEADLINE_S)).payload == b"secret"
            with pytest.raises(BrokerUnreachable, match="its certificate is not believed"):
                await AsyncClient(url, redial=False).connect()
            async with AsyncClient(url, tls=insecure) as trusting:
                assert trusting.connected


async def test_a_client_says_who_it_is_and_a_wrong_password_is_final(tmp_path: Path) -> None:
    set_password(tmp_path / "users", "anna", b"r:ght")
    settings = Settings(access=Access(users=str(tmp_path / "users"), anonymous="never"))
    async with GuardedDoor(settings) as door:
        async with AsyncClient(f"mqtt://anna:r%3Aght@127.0.0.1:{door.port}") as client:
            assert client.connected
        async with client_of(door, username="anna", password=b"r:ght") as client:
            assert client.connected
        with pytest.raises(BrokerUnreachable, match="the password is wrong"):
            await client_of(door, username="anna", password="wrong").connect()


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ([], "there is no server"),
        (["mqtt://anna@a", "mqtt://bob@b"], "different users"),
        ("nowhere", "'nowhere' is not an address"),
    ],
)
def test_servers_that_make_no_sense_are_refused_with_the_reason(servers: Any, problem: str) -> None:
    with pytest.raises(AddressInvalid, match=problem):
        AsyncClient(servers)
