"""``tocsin bridge amqp`` between a real network and a real AMQP 1.0 broker, with kills."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ports import free_ports
from tests.integration.rabbit import PASSWORD, USER, Rabbit, Station, rabbit, send_all
from tests.integration.running import Heard, up
from tocsin.client import AsyncClient, Message
from tocsin.wire.amqp.message import AmqpMessage, Body

__all__ = ["rabbit"]  # a fixture

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def ready() -> Iterator[dict[str, Any]]:
    with up() as network:
        yield network


@pytest.fixture
def servers(ready: dict[str, Any]) -> list[str]:
    return [f"mqtt://{each['host']}:{each['port']}" for each in ready["brokers"]]


class BridgeProcess:
    """``tocsin bridge amqp`` with these rules: started, killed, started again."""

    def __init__(self, server: str, url: str, log: Path, *options: str) -> None:
        self._command = [sys.executable, "-m", "tocsin", "bridge", "amqp", "--at", server, *options]
        self._command += ["--amqp", url]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stderr=log, env={**os.environ, "TOCSIN_AMQP_PASSWORD": PASSWORD}
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(20)

    def end(self) -> None:
        """Kill it, if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def stop_by_itself(self) -> int:
        assert self._process is not None
        return self._process.wait(20)

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")


@pytest.fixture
async def bridge(
    servers: list[str], rabbit: Rabbit, tmp_path: Path
) -> AsyncIterator[Callable[..., BridgeProcess]]:
    made: list[BridgeProcess] = []

    def start(*options: str, secure: bool = False) -> BridgeProcess:
        url, login = f"amqp://127.0.0.1:{rabbit.port}", ["--amqp-user", USER]
        if secure:
            url, login = f"amqps://127.0.0.1:{rabbit.tls_port}", []
        process = BridgeProcess(servers[0], url, tmp_path / "bridge.log", *login, *options)
        process.start()
        made.append(process)
        return process

    yield start
    for each in made:
        each.end()


class Subscriber:
    """A client of the network that keeps what it gets."""

    def __init__(self, server: str, name: str, topic_filter: str) -> None:
        self.client = AsyncClient(server, client_id=name, session_expiry_s=600)
        self.got: list[Message] = []
        self._filter = topic_filter

    async def __aenter__(self) -> Subscriber:
        await self.client.connect()
        inbox = await self.client.subscribe(self._filter, qos=1)

        async def read() -> None:
            async for message in inbox:
                self.got.append(message)

        self._task = asyncio.create_task(read())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await self.client.close(end_session=True)


async def wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.05)


async def publish_all(server: str, topic: str, count: int, pause_s: float) -> None:
    async with AsyncClient(server) as client:
        for number in range(count):
            await client.publish(
                f"{topic}/{number % 7}", f"out {number}", qos=1, user_properties=[("number", str(number))]
            )
            await asyncio.sleep(pause_s)


def properties(message: Message) -> dict[str, str]:
    return dict(message.user_properties)


async def test_properties_pass_in_both_directions(
    servers: list[str], rabbit: Rabbit, bridge: Callable[..., BridgeProcess]
) -> None:
    order = AmqpMessage(
        body=b'{"pumps": 3}',
        durable=True,
        priority=8,
        ttl_ms=90_000,
        message_id="order-1",
        correlation_id="c-1",
        subject="pumps",
        reply_to="plant/answers",
        content_type="application/json",
        application={"shop": "north", "count": 3, "express": True},
    )
    text = AmqpMessage(kind=Body.VALUE, body="a text", message_id="order-2", subject="pumps")
    nobodys = AmqpMessage(kind=Body.VALUE, body=7, message_id="order-3", subject="pumps")
    async with (
        Subscriber(servers[-1], "probe", "plant/orders/#") as orders,
        Subscriber(servers[-1], "undertaker", "bridge/probe/dead") as dead,
    ):
        process = bridge(
            "--name",
            "probe",
            "--in",
            "/queue/p-orders=plant/orders/{subject}",
            "--out",
            "plant/#=/queue/p-alarms",
        )
        await asyncio.to_thread(send_all, rabbit.port, "/queue/p-orders", [order, text, nobodys])
        await wait_for(lambda: len(orders.got) == 2 and len(dead.got) == 1, lambda: process.said)
        first, second = orders.got
        assert (first.topic, first.payload) == ("plant/orders/pumps", b'{"pumps": 3}')
        assert (first.qos, first.priority, first.content_type) == (1, 8, "application/json")
        assert (first.response_topic, first.correlation) == ("plant/answers", b"c-1")
        assert first.expiry_s is not None and 80 <= first.expiry_s <= 90
        assert {"message-id": "order-1", "shop": "north", "count": "3", "express": "true"}.items() <= (
            properties(first).items()
        )
        assert (second.payload, properties(second)["message-id"]) == (b"a text", "order-2")
        assert "a value of type int" in properties(dead.got[0])["dead-reason"]

        async with AsyncClient(servers[0]) as client:
            await client.publish(
                "plant/alarms/7", "hot", qos=1, priority=9, expiry_s=60, user_properties=[("room", "410")]
            )

        def receive() -> list[AmqpMessage]:
            with Station(rabbit.port) as station:
                return list(station.receive("/queue/p-alarms", 3))

        # What came in by the bridge matches plant/#, and is not sent out again.
        (alarm,) = await asyncio.to_thread(receive)
        assert (alarm.body, alarm.durable, alarm.priority, alarm.subject) == (
            b"hot",
            True,
            9,
            "plant/alarms/7",
        )
        assert alarm.ttl_ms is not None and 50_000 <= alarm.ttl_ms <= 60_000
        assert alarm.application["room"] == "410" and alarm.message_id
        assert process.stop() == 0
        assert re.search(r"1 dead", process.said)
        assert re.search(r"2 looped", process.said) or re.search(r"3 looped", process.said)


async def carry(
    servers: list[str],
    rabbit: Rabbit,
    start: Callable[..., BridgeProcess],
    name: str,
    count: int,
    pause_s: float,
    *,
    also: Sequence[Callable[[], None]] = (),
) -> tuple[int, int]:
    """Send both ways while parts are killed; how many messages were repeated. Fails if one is lost."""
    orders = [
        AmqpMessage(body=f"in {number}".encode(), durable=True, message_id=f"{name}-{number}")
        for number in range(count)
    ]
    alarms: list[AmqpMessage] = []
    ended = threading.Event()

    def collect() -> None:
        while not ended.is_set():
            try:
                with Station(rabbit.port) as station:
                    for message in station.receive(f"/queue/{name}-alarms", 1):
                        alarms.append(message)
                        if ended.is_set():
                            break
            except OSError:
                time.sleep(0.2)

    collecting = threading.Thread(target=collect, daemon=True)
    async with Subscriber(servers[-1], f"{name}-reader", f"{name}/orders") as reader:
        inward, outward = f"/queue/{name}-orders={name}/orders", f"{name}/alarms/#=/queue/{name}-alarms"
        process = start("--name", name, "--in", inward, "--out", outward)
        await wait_for(lambda: process.said.count("connected to the network") >= 2, lambda: process.said)
        await asyncio.sleep(1)  # a new session hears of what is published after it
        collecting.start()
        sending = asyncio.gather(
            asyncio.to_thread(send_all, rabbit.port, f"/queue/{name}-orders", orders, pause_s),
            publish_all(servers[1], f"{name}/alarms", count, pause_s),
        )
        await wait_for(lambda: len(reader.got) > count // 10, lambda: process.said)
        process.kill()
        process.start()
        for number, kill in enumerate(also, 2):
            await wait_for(lambda: len(reader.got) > count * number // 10, lambda: process.said)  # noqa: B023
            await asyncio.to_thread(kill)
            process.kill()
            process.start()
        await sending
        try:
            await wait_for(
                lambda: (
                    len({each.payload for each in reader.got}) == count
                    and len({each.body for each in alarms}) == count
                ),
                lambda: (
                    f"{len(reader.got)} came in, {len(alarms)} went out of {count}\n{process.said[-3_000:]}"
                ),
            )
        finally:
            ended.set()
            await asyncio.to_thread(collecting.join, 20)
        assert process.stop() == 0
    assert {each.payload for each in reader.got} == {each.body for each in orders}
    assert {each.body for each in alarms} == {f"out {number}".encode() for number in range(count)}
    # A repeat has the id of the first.
    assert len({properties(each)["message-id"] for each in reader.got}) == count
    assert len({each.message_id for each in alarms}) == count
    return len(reader.got) - count, len(alarms) - count


async def test_nothing_is_lost_when_the_bridge_is_killed(
    servers: list[str], rabbit: Rabbit, bridge: Callable[..., BridgeProcess]
) -> None:
    await carry(servers, rabbit, bridge, "brief", 300, 0.005)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_nothing_is_lost_when_bridge_and_brokers_are_killed(
    ready: dict[str, Any], servers: list[str], rabbit: Rabbit, bridge: Callable[..., BridgeProcess]
) -> None:
    def kill_amqp_broker() -> None:
        rabbit.kill()
        time.sleep(2)
        rabbit.start()

    def kill_network_broker() -> None:
        """The one that the bridge is at; ``tocsin up`` starts it again."""
        os.kill(ready["pids"][f"broker/{ready['brokers'][0]['id']}"], signal.SIGKILL)
        time.sleep(2)

    await carry(servers, rabbit, bridge, "long", 3_000, 0.005, also=(kill_amqp_broker, kill_network_broker))


@pytest.mark.parametrize("sasl", ["plain", "external"])
async def test_messages_pass_over_tls(
    sasl: str, servers: list[str], rabbit: Rabbit, bridge: Callable[..., BridgeProcess]
) -> None:
    options = ["--amqp-cafile", str(rabbit.authority.certificate), "--sasl", sasl]
    if sasl == "plain":
        options += ["--amqp-user", USER]
    else:
        own = rabbit.authority.sign(USER)
        options += ["--amqp-cert", str(own.certificate), "--amqp-key", str(own.key)]
    async with Subscriber(servers[-1], f"tls-{sasl}", f"tls/{sasl}") as reader:
        process = bridge(
            "--name", f"tls-{sasl}", "--in", f"/queue/tls-{sasl}=tls/{sasl}", *options, secure=True
        )
        await asyncio.to_thread(send_all, rabbit.port, f"/queue/tls-{sasl}", [AmqpMessage(body=b"sealed")])
        await wait_for(lambda: len(reader.got) == 1, lambda: process.said)
        assert process.stop() == 0


async def test_a_peer_with_an_unknown_certificate_ends_the_bridge(
    rabbit: Rabbit, bridge: Callable[..., BridgeProcess]
) -> None:
    process = bridge("--in", "a=b", "--sasl", "anonymous", secure=True)
    assert process.stop_by_itself() == 2
    assert "CERTIFICATE_VERIFY_FAILED" in process.said and "--amqp-cafile" in process.said


@pytest.fixture
def proton(debian_python: Callable[[str, str], str]) -> Iterator[tuple[int, Heard]]:
    """A peer on another implementation of AMQP, and what it took."""
    python = debian_python("proton", "python3-qpid-proton")
    (port,) = free_ports(1)
    heard = Heard([python, str(Path(__file__).parent / "proton_peer.py"), str(port)])
    yield port, heard
    heard.stop()


async def test_what_a_peer_gives_back_is_sent_again_or_dead(
    servers: list[str], proton: tuple[int, Heard], tmp_path: Path
) -> None:
    port, heard = proton
    rules = ["--out", "gift/no/#=rejects", "--out", "gift/later/#=releases", "--out", "gift/many/#=many"]
    options = [*rules, "--out", 'query:Gift = "yes"=query', "--tries", "3", "--name", "gift"]
    process = BridgeProcess(servers[0], f"amqp://127.0.0.1:{port}", tmp_path / "bridge.log", *options)
    async with Subscriber(servers[-1], "gift-undertaker", "bridge/gift/dead") as dead:
        process.start()
        try:
            await wait_for(lambda: process.said.count("connected to the network") >= 5, lambda: process.said)
            await asyncio.sleep(1)  # a new session hears of what is published after it
            async with AsyncClient(servers[0]) as client:
                await client.publish("gift/no/1", "no", qos=1)
                await client.publish("gift/later/1", "later", qos=1)
                await client.stream("gift/stream", Gift="yes", qos=1).publish("asked for")
                many = (client.publish(f"gift/many/{number}", str(number), qos=1) for number in range(500))
                await asyncio.gather(*many)
            await wait_for(
                lambda: len(dead.got) == 1 and len(heard.lines) >= 503,
                lambda: f"{len(dead.got)} dead, {len(heard.lines)} lines\n{process.said[-3_000:]}",
            )
            assert process.stop() == 0
        finally:
            process.end()
    assert properties(dead.got[0])["dead-reason"] == "the AMQP peer rejected it, 3 times"
    taken = [line.split(" ", 2) for line in heard.lines[1:]]
    assert [body for address, _, body in taken if address == "releases"] == ["later"]
    assert [body for address, _, body in taken if address == "query"] == ["asked for"]
    bodies = [int(body) for address, _, body in taken if address == "many"]
    assert sorted(bodies) == list(range(500))
    assert len({message_id for _, message_id, _ in taken}) == len(taken)


async def test_a_wrong_password_ends_the_bridge_with_a_sentence(
    servers: list[str], rabbit: Rabbit, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tocsin", "bridge", "amqp", "--at", servers[0], "--in", "a=b"]
    command += ["--amqp", f"amqp://127.0.0.1:{rabbit.port}", "--amqp-user", USER]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        env={**os.environ, "TOCSIN_AMQP_PASSWORD": "wrong"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert "refused the log-in 'guest' by PLAIN" in done.stderr
    assert "TOCSIN_AMQP_PASSWORD" in done.stderr
