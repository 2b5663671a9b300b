"""What the client does when a broker does not do what it should, or goes away: against a scripted one."""

from __future__ import annotations

import asyncio

import pytest
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    DisconnectPacket,
    Packet,
    PubAckPacket,
    PublishPacket,
    QoS,
    SubAckPacket,
    SubAckReasonCode,
    SubscribePacket,
    UnsubscribePacket,
)

from tests.unit.client.scripted import DEADLINE_S, Caller, Scripted
from tocsin.client import AsyncClient
from tocsin.errors import BrokerUnreachable, SubscriptionRefused

SILENCE_S = 0.4  # in which a client that redials would have called again


async def met(server: Scripted, client: AsyncClient, answer: ConnAckPacket | None = None) -> Caller:
    """The broker's end of a client's first connection."""
    connecting = asyncio.create_task(client.connect())
    caller = await server.accepted(answer)
    await connecting
    return caller


def durable(number: int) -> PublishPacket:
    return PublishPacket("a", b"%d" % number, qos=QoS.AT_LEAST_ONCE, packet_id=number)


async def test_the_client_disconnects_a_broker_that_exceeds_the_receive_maximum() -> None:
    async with Scripted() as server:
        client = AsyncClient(server.url, receive_max=2, redial=False)
        caller = await met(server, client)
        asking = asyncio.create_task(client.subscribe("a", qos=1).open())
        await caller.grant()
        found = await asking
        caller.send(*(durable(number) for number in (1, 2, 3)))
        assert [await found.get(DEADLINE_S), await found.get(DEADLINE_S)]
        with pytest.raises(BrokerUnreachable, match="more than 2 unacknowledged messages"):
            await found.get(DEADLINE_S)
        await client.close()


async def test_stored_messages_without_a_subscriber_are_dropped_in_the_end() -> None:
    async with Scripted() as server:
        client = AsyncClient(server.url, client_id="c", session_expiry_s=60, deadline_s=0.3)
        connecting = asyncio.create_task(client.connect())
        caller = await server.call()
        connect = await caller.accept(ConnAckPacket(session_present=True))
        assert (connect.clean_start, connect.session_expiry_interval) == (False, 60)
        await connecting
        caller.send(durable(9))
        assert (await caller.receive(PubAckPacket)).packet_id == 9
        assert client.dropped == 1
        await client.close()


async def test_a_subscription_that_a_later_broker_refuses_ends_with_its_words() -> None:
    async with Scripted() as server:
        client = AsyncClient(server.url)
        caller = await met(server, client)
        asking = asyncio.create_task(client.subscribe("a").open())
        await caller.grant()
        found = await asking
        caller.hang_up()
        again = await server.accepted()
        asked = await again.receive(SubscribePacket)
        refused = SubAckReasonCode.NOT_AUTHORIZED
        again.send(SubAckPacket(asked.packet_id, [refused], reason_str="no longer for you"))
        with pytest.raises(SubscriptionRefused, match="no longer for you"):
            await found.get(DEADLINE_S)
        await client.close()


@pytest.mark.parametrize(
    ("code", "calls_again"),
    [(ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD, False), (ConnAckReasonCode.SERVER_BUSY, True)],
)
async def test_a_refusal_that_would_come_again_ends_the_redialling(
    code: ConnAckReasonCode, calls_again: bool
) -> None:
    async with Scripted() as server:
        client = AsyncClient(server.url, deadline_s=DEADLINE_S)
        connecting = asyncio.create_task(client.connect())
        await server.accepted(ConnAckPacket(reason_code=code))
        if calls_again:
            await server.accepted()
            await connecting
            await client.close()
            return
        with pytest.raises(BrokerUnreachable, match="bad user name or password"):
            await connecting
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.call(), SILENCE_S)


@pytest.mark.parametrize("fails", [False, True])
async def test_leaving_a_subscription_acknowledges_what_was_dealt_with(fails: bool) -> None:
    async with Scripted() as server:
        client = AsyncClient(server.url)
        caller = await met(server, client)

        async def read() -> None:
            async with client.subscribe("a", qos=1) as heard:
                await heard.get(DEADLINE_S)
                if fails:
                    raise LookupError

        reading = asyncio.create_task(read())
        await caller.grant(durable(1))
        wanted: type[Packet] = UnsubscribePacket if fails else PubAckPacket
        await caller.receive(wanted)
        caller.hang_up()
        again = await server.accepted()
        asked = await again.receive(UnsubscribePacket)
        again.answer(asked)
        if fails:
            with pytest.raises(LookupError):
                await reading
        else:
            await reading
        await client.close()


async def test_closing_waits_until_everything_is_sent() -> None:
    async with Scripted() as server:
        client = AsyncClient(server.url)
        caller = await met(server, client)
        sent = 0
        while not client._line.waiting_bytes:
            await client.publish("a", bytes(100_000))
            sent += 1
        closing = asyncio.create_task(client.close())
        await asyncio.wait({closing}, timeout=SILENCE_S)
        assert not closing.done()
        for _ in range(sent):
            await caller.receive(PublishPacket)
        await caller.receive(DisconnectPacket)
        caller.hang_up()
        await closing
