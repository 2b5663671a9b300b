"""One kind of spending each, as a coroutine that goes on until it is cancelled; an attacker that is thrown out comes
again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count

from mqtt5 import (
    ConnectPacket,
    PublishPacket,
    QoS,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
)

from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5, V311, Version

MIB = 1 << 20
LARGEST = MIB - (20 << 10)  # of a payload: leaves room for topic and properties
VALUE = b"v" * 900  # of metadata: three of them are nearly all that is taken of a stream
PAUSE_S = 0.2  # before a client that was thrown out comes again
SETTLE_S = 0.5

Attack = Callable[["Target"], Coroutine[None, None, None]]


class Target:
    """A broker to attack, and a name that no other attack has."""

    def __init__(self, host: str, port: int, name: str) -> None:
        self.host, self.port, self.name = host, port, name
        self._numbers = count()

    def fresh(self) -> str:
        """A client id that was never used."""
        return f"{self.name}-{next(self._numbers)}"


class Spender:
    """A socket that sends and does not read, with a receive buffer as small as there is."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.setblocking(False)

    async def __aenter__(self) -> Spender:
        await asyncio.get_running_loop().sock_connect(self._socket, (self._target.host, self._target.port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def hear(self, most: int = 65_536) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self._socket, most)

    async def connect(
        self,
        client: str,
        *,
        expiry_s: int = 0,
        clean: bool = True,
        will: Will | None = None,
        version: Version = V5,
        receive_max: int = 65_535,
    ) -> None:
        """CONNECT, and wait for the answer: the last thing that is read."""
        packet = ConnectPacket(
            client,
            clean_start=clean,
            session_expiry_interval=expiry_s,
            will=will,
            keep_alive=0,
            receive_max=receive_max,
        )
        await self.send(encode(packet, version))
        async with asyncio.timeout(30):
            await self.hear()


async def _again(target: Target, spend: Callable[[Spender], Awaitable[None]]) -> None:
    """Spend over a connection; over a new one when that is ended."""
    while True:
        with contextlib.suppress(OSError, TimeoutError):
            async with Spender(target) as spender:
                await spend(spender)
        await asyncio.sleep(PAUSE_S)


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────


async def answers(target: Target) -> None:
    """SUBSCRIBE to filters that are refused with a reason string, and read no answer."""
    wrong = encode(SubscribePacket(1, [TopicFilter("/".join("a" * 40))]), V5) * 500

    async def spend(spender: Spender) -> None:
        await spender.connect(target.fresh())
        while True:
            await spender.send(wrong)

    await _again(target, spend)


async def pings(target: Target) -> None:
    """PINGREQ as fast as they go."""
    many = b"\xc0\x00" * 50_000

    async def spend(spender: Spender) -> None:
        await spender.connect(target.fresh())
        while True:
            await spender.send(many)

    await _again(target, spend)


async def unread(target: Target) -> None:
    """Subscribe to what oneself publishes at QoS 0, and read nothing."""
    topic = f"spend/{target.name}/unread"
    message = encode(PublishPacket(topic, b"x" * 60_000), V5)

    async def spend(spender: Spender) -> None:
        await spender.connect(target.fresh())
        await spender.send(encode(SubscribePacket(1, [TopicFilter(topic)]), V5))
        while True:
            await spender.send(message)

    await _again(target, spend)


# ── messages ────────────────────────────────────────────────────────────────────────────────────────────────


def _commits(qos: QoS, version: Version = V5) -> Attack:
    async def attack(target: Target) -> None:
        topic, payload = f"spend/{target.name}", b"x" * LARGEST

        async def spend(spender: Spender) -> None:
            await spender.connect(target.fresh(), version=version)
            for number in count(1):
                packet = PublishPacket(topic, payload, qos=qos, packet_id=number % 60_000 + 1)
                await spender.send(encode(packet, version))

        await _again(target, spend)

    return attack


commits = _commits(QoS.AT_LEAST_ONCE)
commits_old = _commits(QoS.AT_LEAST_ONCE, V311)
exactly_once = _commits(QoS.EXACTLY_ONCE)


async def parts(target: Target) -> None:
    """Packets that are never finished, on many connections."""
    beginning = encode(PublishPacket(f"spend/{target.name}/part", b"x" * LARGEST), V5)[:-1]

    async def spend(spender: Spender) -> None:
        await spender.connect(target.fresh())
        await spender.send(beginning)
        await spender.hear()

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(_again(target, spend))


async def first_parts(target: Target) -> None:
    """CONNECT packets that are never finished."""
    beginning = b"\x10\xff\xff\x3d\x00\x04MQTT\x05" + b"x" * LARGEST  # of the 1 015 807 bytes that it says

    async def spend(spender: Spender) -> None:
        await spender.send(beginning)
        await spender.hear()

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(_again(target, spend))


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────


async def backlog(target: Target) -> None:
    """Sessions that come back to large messages, and read none."""
    topic = f"spend/{target.name}/backlog"
    names = [f"{target.name}-session-{number}" for number in range(60)]
    with contextlib.suppress(OSError, TimeoutError):
        for name in names:
            async with Spender(target) as spender:
                await spender.connect(name, expiry_s=3_600)
                await spender.send(
                    encode(SubscribePacket(1, [TopicFilter(topic, max_qos=QoS.AT_LEAST_ONCE)]), V5)
                )
                await spender.hear()
    with contextlib.suppress(OSError, TimeoutError):
        async with Spender(target) as spender:
            await spender.connect(target.fresh())
            for number in range(1, 31):
                packet = PublishPacket(topic, b"x" * LARGEST, qos=QoS.AT_LEAST_ONCE, packet_id=number)
                await spender.send(encode(packet, V5))
                await spender.hear()

    def come_back(name: str) -> Callable[[Spender], Awaitable[None]]:
        async def spend(spender: Spender) -> None:
            await spender.connect(name, expiry_s=3_600, clean=False)
            await asyncio.sleep(20)

        return spend

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_again(target, come_back(name)))


async def wills(target: Target) -> None:
    """Large wills with a long delay, of clients that never come back."""

    async def spend(spender: Spender) -> None:
        will = Will(topic=f"spend/{target.name}/will", payload=b"x" * 65_000, will_delay_interval=3_600)
        await spender.connect(target.fresh(), expiry_s=3_600, will=will)

    await _again(target, spend)


async def filters(target: Target) -> None:
    """A thousand filters of the longest kind for each of many clients."""

    async def spend(spender: Spender) -> None:
        client = target.fresh()
        await spender.connect(client)
        for number in range(0, 1_000, 20):
            each = [TopicFilter(f"{client}/{number + n}/{'f' * 900}") for n in range(20)]
            await spender.send(encode(SubscribePacket(number + 1, each), V5))
        await asyncio.sleep(60)

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(_again(target, spend))
            await asyncio.sleep(PAUSE_S)


async def groups(target: Target) -> None:
    """Many groups, each with a member that takes one message and never acknowledges it."""
    topic = f"spend/{target.name}/shared"
    message = PublishPacket(topic, b"x" * (LARGEST // 4), qos=QoS.AT_LEAST_ONCE, packet_id=1)

    async def belong(spender: Spender) -> None:
        client = target.fresh()
        await spender.connect(client, receive_max=1)
        name = f"$share/{client}/{topic}"
        await spender.send(encode(SubscribePacket(1, [TopicFilter(name, max_qos=QoS.AT_LEAST_ONCE)]), V5))
        await asyncio.sleep(120)

    async def publish(spender: Spender) -> None:
        await spender.connect(target.fresh())
        while True:
            await spender.send(encode(message, V5))
            await spender.hear()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_again(target, publish))
        for _ in range(60):
            tasks.create_task(_again(target, belong))


# ── what is kept of messages ────────────────────────────────────────────────────────────────────────────────


async def retained(target: Target) -> None:
    """Large retained messages, each on a topic of its own."""
    numbers = count()

    async def spend(spender: Spender) -> None:
        await spender.connect(target.fresh())
        while True:
            topic = f"spend/{target.name}/retained/{next(numbers)}"
            await spender.send(encode(PublishPacket(topic, b"x" * LARGEST, retain=True), V5))
            await asyncio.sleep(0.05)

    await _again(target, spend)


async def replay(target: Target) -> None:
    """SUBSCRIBE to everything that is retained, again and again."""

    async def spend(spender: Spender) -> None:
        await spender.connect(target.fresh())
        for number in count(1):
            await spender.send(encode(SubscribePacket(number % 60_000 + 1, [TopicFilter("spend/#")]), V5))

    await _again(target, spend)


async def descriptions(target: Target) -> None:
    """Metadata of topics that one does not publish on, to be kept for good."""
    numbers = count()

    async def spend(spender: Spender) -> None:
        await spender.connect(target.fresh())
        while True:
            topic = f"$meta/spend/{target.name}/{next(numbers)}"
            said = b'{"$permanent": true, "k": "%b", "l": "%b", "m": "%b"}' % (VALUE, VALUE, VALUE)
            await spender.send(encode(PublishPacket(topic, said), V5))

    await _again(target, spend)


async def queries(target: Target) -> None:
    """A query that finds much, asked and withdrawn again and again."""
    asked = encode(SubscribePacket(1, [TopicFilter("$query/k IS NOT NULL")]), V5)
    withdrawn = encode(UnsubscribePacket(2, ["$query/k IS NOT NULL"]), V5)

    async def spend(spender: Spender) -> None:
        await spender.connect(target.fresh())
        while True:
            await spender.send(asked + withdrawn)

    await _again(target, spend)


async def mixed(target: Target) -> None:
    """Forty clients that do any of the above for some seconds each, in an order that is always the same."""
    chance, numbers = random.Random(0), count()

    async def spend() -> None:
        while True:
            attack = ATTACKS[chance.choice([name for name in ATTACKS if name != mixed.__name__])]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0.5, 5)):
                    await attack(Target(target.host, target.port, f"{target.name}-{next(numbers)}"))

    async with asyncio.TaskGroup() as group:
        for _ in range(40):
            group.create_task(spend())


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        answers, pings, unread, parts, first_parts, backlog, wills, filters, groups, retained, replay, descriptions,
        queries, mixed,
    )
} | {"commits": commits, "commits_old": commits_old, "exactly_once": exactly_once}  # fmt: skip
