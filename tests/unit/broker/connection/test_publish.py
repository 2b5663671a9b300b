"""What a client publishes, on real sockets: what waits goes on in order, and an error of ours costs one client."""

from __future__ import annotations

import pytest
from mqtt5 import PubAckPacket, PublishPacket, TopicFilter

from tests.unit.broker.harness import Door, until
from tests.unit.broker.talk import ONE, publish, receive
from tocsin.core.coordination.participant.signals import ClientsChanged


@pytest.fixture
def told(door: Door, monkeypatch: pytest.MonkeyPatch) -> list[ClientsChanged]:
    """What the coordinator is told; it does not answer."""
    changes: list[ClientsChanged] = []
    monkeypatch.setattr(door.exchange.registry, "_post", changes.append)
    return changes


async def test_messages_of_a_new_stream_wait_in_order_for_the_coordinator(
    door: Door, told: list[ClientsChanged]
) -> None:
    subscriber, publisher = await door.peer("s"), await door.peer("p")
    await subscriber.subscribe(TopicFilter("#"))
    publisher.send(PublishPacket("a", b"1"), PublishPacket("a", b"2", qos=ONE, packet_id=1))
    publisher.send(PublishPacket("b", b"3"))
    await until(lambda: len(told) == 2 and door.exchange.statistics()["held"] == 3)
    door.exchange.registry.clear(told[0].ticket)
    assert [(await receive(subscriber)).payload for _ in range(2)] == [b"1", b"2"]
    assert (await publisher.receive(PubAckPacket)).packet_id == 1
    door.exchange.registry.clear(told[1].ticket)
    assert (await receive(subscriber)).payload == b"3"


async def test_an_error_of_ours_in_what_waited_costs_only_its_client(
    door: Door, told: list[ClientsChanged], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken on purpose")

    publisher, other = await door.peer("p"), await door.peer("o")
    publisher.send(PublishPacket("a", b"1"))
    await until(lambda: bool(told))
    with monkeypatch.context() as patch:
        patch.setattr(door.exchange, "publish_run", broken)
        patch.setattr(door.exchange, "publish", broken)
        door.exchange.registry.clear(told[0].ticket)
    assert await publisher.closed()
    await other.subscribe(TopicFilter("a"))


async def test_nobody_makes_anothers_messages_expire(door: Door) -> None:
    subscriber, publisher = await door.peer("s"), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    await publish(publisher, "a", b"0")
    await receive(subscriber)
    door.exchange.registry.described({"a": {"$offer": "lifespan=1s"}}, whole=False)  # as another client said
    await publish(publisher, "a", b"1", packet_id=2)
    assert (await receive(subscriber)).message_expiry_interval is None


async def test_a_message_expires_after_the_lifespan_that_it_states(door: Door) -> None:
    subscriber, publisher = await door.peer("s"), await door.peer("p")
    await subscriber.subscribe(TopicFilter("a", max_qos=ONE))
    properties = [("offer.lifespan", "90s")]
    publisher.send(PublishPacket("a", b"1", qos=ONE, packet_id=1, user_properties=properties))
    assert (await receive(subscriber)).message_expiry_interval in (89, 90)
