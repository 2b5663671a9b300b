"""Programs that use the client that ships: publishers, residents, members of a group, one with a query, mortals.

They report what happens to them (``Say``), so that promises can be held against it. The client also reports what came
over its connection, before repeats are filtered.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from mqtt5 import ConnAckPacket, Packet, PublishPacket, SubAckPacket, UnsubAckPacket

from tocsin.client import AsyncClient, Message
from tocsin.client.subscription import Subscription
from tocsin.core.links.dialler import TAKEN_OVER
from tocsin.core.links.signals import Down
from tocsin.core.machine import Say
from tocsin.core.survival.homes import PROPERTY_BROKER
from tocsin.errors import BrokerUnreachable, TocsinError
from tocsin.model.priority import CRITICAL_WORD
from tocsin.runtime.machines.clock import random_bits
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import node_of, server
from tocsin.wire.mqtt.reasons import is_degraded

DEADLINE_S: Final = 3_000.0  # longer than any run: nothing is given up
WILLS: Final = "wills/"
LIVE: Final = "live/"  # topics at QoS 0
QUERY: Final = "query: "  # what a subscriber asks begins so if it is a query
KIND: Final = "fire"
WILL_DELAY_S: Final = 2  # of residents
LEAST_AWAY_S: Final = 0.1  # same
CRITICAL_ONE_IN: Final = 5  # of a publisher's messages


class Pace:
    """How long programs take for things; the pauses are drawn up to these."""

    expiry_s = 86_400
    keep_alive_s = 2
    think_ms = 1_500  # before a publisher publishes again
    restless_ms = 2_500  # before a resident does something else
    read_ms = 250  # before a resident reads the next message
    notice_s = 15  # in which both ends of a connection that is of no use have noticed

    def resident_expiry_s(self) -> int:
        """How long the session of a resident lasts."""
        return self.expiry_s

    def away_s(self) -> float:
        """How long a resident that has left is away."""
        return random_bits(32) % 4_000 / 1_000


class Killed(TocsinError):
    """A program ends without a word."""


class WatchedClient(AsyncClient):
    """The client that ships. It says when it is connected, where, and what comes, before it filters repeats."""

    def __init__(
        self, program: Program, process: SimulatedProcess, servers: list[str], **options: Any
    ) -> None:
        super().__init__(servers, client_id=program.name, **options)
        self._program = program
        self._process = process
        self.ousted = False

    def line_up(self, answer: ConnAckPacket) -> None:
        program = self._program
        program.connections += 1
        program.at = node_of(self.server)
        if program.at.startswith("coordinator-"):  # a door, which has passed it on
            program.at = dict(answer.user_properties).get(PROPERTY_BROKER, program.at)
        lost = program.known and not answer.session_present
        program.known = True
        if lost:
            self._say("session lost", expiry_s=program.expiry_s)
        self._say("connected", node=program.at, connection=program.connections)
        super().line_up(answer)

    def line_heard(self, packet: Packet) -> None:
        if isinstance(packet, PublishPacket) and packet.packet_id:
            self._say(
                "took",
                key=key_of(packet.payload),
                qos=int(packet.qos),
                topic=packet.topic,
                connection=self._program.connections,
            )
        if isinstance(packet, SubAckPacket | UnsubAckPacket):
            asked = self._session._requests.get(packet.packet_id)
            if asked is not None and isinstance(asked.what, str):
                self._note_answer(asked.what, packet)
        super().line_heard(packet)

    def _note_answer(self, name: str, packet: SubAckPacket | UnsubAckPacket) -> None:
        """Note whether the store has what the client was told; it asks again if not."""
        before, self._program.degraded[name] = self._program.degraded.get(name), is_degraded(packet)
        wanted = isinstance(packet, SubAckPacket)
        if before and not is_degraded(packet) and wanted == (name in self._session.arrivals.wanted):
            self._say("heard that it is stored", topic_filter=name, wanted=wanted)

    def line_down(self, down: Down) -> None:
        if self._program.at:
            self._program.at = ""
            self._say("disconnected", reason=down.reason)
        if down.reason_code == TAKEN_OVER and not down.own:
            self.ousted = True
            self._say("ousted")
        super().line_down(down)

    async def close(self, *, settle: bool = True, end_session: bool = False) -> None:
        self._program.at = ""
        await super().close(settle=settle, end_session=end_session)

    def break_off(self) -> None:
        """Lose the connection, if there is one, as when what is between breaks; the client dials again."""
        if self.connected:
            self._line.fail("the way to the broker broke")

    def _say(self, text: str, **facts: object) -> None:
        self._process.do(Say(text=text, facts=facts, cause=self._program.name))


def key_of(payload: bytes) -> tuple[str, int]:
    """The publisher of a message, and its number."""
    name, _, number = bytes(payload).decode().partition(" ")
    return name, int(number)


class Program:
    """The base of all programs: a name, which is their client's id, and servers, the home first."""

    def __init__(self, name: str, servers: tuple[str, ...], pace: Pace) -> None:
        self.name = name
        self.servers = servers
        self.home = servers[0]
        self.pace = pace
        self.expiry_s = pace.expiry_s
        self.connections = 0  # that it had
        self.known = False  # it knows that it has a session
        self.at = ""  # the node that it is connected to; empty if to none
        self.instance = 0  # how often it was begun
        self.degraded: dict[str, bool] = {}  # filter → whether its last answer said that it is stored later
        self._watched: WatchedClient | None = None  # of the program as it was begun last

    @property
    def unreleased(self) -> list[int]:
        """The packet ids of what came and was not settled: at QoS 2 those whose PUBREL is still to come."""
        return [] if self._watched is None else list(self._watched._session.arrivals._taken)

    def _client(self, process: SimulatedProcess, **options: Any) -> WatchedClient:
        self.instance += 1
        self.home = self.servers[0]
        options.setdefault("deadline_s", DEADLINE_S)
        self._watched = WatchedClient(
            self,
            process,
            [server(name) for name in self.servers],
            session_expiry_s=self.expiry_s,
            keep_alive_s=self.pace.keep_alive_s,
            **options,
        )
        return self._watched

    def _will(self, number: int) -> Message:
        return Message(WILLS + self.name, f"{self.name} {number}".encode(), qos=1)

    def _say(self, process: SimulatedProcess, text: str, **facts: object) -> None:
        process.do(Say(text=text, facts=facts, cause=self.name))

    async def _pause(self, most_ms: int) -> None:
        await asyncio.sleep(random_bits(32) % most_ms / 1_000)

    async def run(self, process: SimulatedProcess) -> None:
        raise AssertionError("a program says what it does")


class Publisher(Program):
    """Publishes three streams, each message until it is answered for good, at QoS 1 and 2 in turn; some are critical,
    and the first stream says that it is of a kind. Later, when all is calm, it publishes at QoS 0."""

    def __init__(self, name: str, servers: tuple[str, ...], pace: Pace, messages: int, calm: range) -> None:
        super().__init__(name, servers, pace)
        self._messages = messages
        self._calm = calm  # in these seconds of a run, if it is done by then
        self.published = 0

    @property
    def done(self) -> bool:
        return self.published == self._messages

    async def run(self, process: SimulatedProcess) -> None:
        async with self._client(process) as client:
            streams = [client.stream(f"{self.name}/{each}") for each in "abc"]
            streams[0].add({"Kind": KIND}, permanent=False)
            for number in range(1, self._messages + 1):
                await self._pause(self.pace.think_ms)
                stream, qos = streams[number % len(streams)], 1 + number // len(streams) % 2
                stream.qos = qos
                stream.priority = CRITICAL_WORD if random_bits(20) % CRITICAL_ONE_IN == 0 else None
                await stream.publish(f"{self.name} {number}")
                self.published = number
                self._say(process, "acknowledged", key=(self.name, number), qos=qos)
            for second in self._calm:
                await asyncio.sleep(max(0.0, second - asyncio.get_running_loop().time()))
                if asyncio.get_running_loop().time() - second < 1 and client.connected:
                    await client.publish(LIVE + self.name, f"{self.name} {second}")
                    self._say(process, "spoke", key=(self.name, second))
            await asyncio.get_running_loop().create_future()  # it stays


class Listener(Program):
    """The base of all subscribers: reports each message of a subscription, behind the client's filter."""

    def __init__(self, name: str, servers: tuple[str, ...], pace: Pace, qos: int) -> None:
        super().__init__(name, servers, pace)
        self.qos = qos

    async def _read(self, process: SimulatedProcess, name: str, subscription: Subscription) -> None:
        try:
            async for message in subscription:
                facts = {"key": key_of(message.payload), "qos": message.qos, "topic": message.topic}
                self._say(process, "told", asks=name, instance=self.instance, **facts)
                await self._pause(self.pace.read_ms)
        except BrokerUnreachable:
            return  # it was thrown out, which it has said

    async def _listen(self, process: SimulatedProcess, client: AsyncClient) -> None:
        with contextlib.suppress(BrokerUnreachable):
            async for message in client.subscribe(LIVE + "#"):
                self._say(process, "heard", key=key_of(message.payload))


class Subscriber(Listener):
    """Asks for one thing and stays: as a member of a group, or with a query."""

    def __init__(
        self, name: str, servers: tuple[str, ...], pace: Pace, asks: str, qos: int, due: str, group: str = ""
    ) -> None:
        super().__init__(name, servers, pace, qos)
        self._asks = asks
        self.due = due  # the topic filter that says what it is to be told
        self.group = group

    async def run(self, process: SimulatedProcess) -> None:
        async with self._client(process) as client:
            live = asyncio.create_task(self._listen(process, client))
            if self._asks.startswith(QUERY):
                subscription = await client.query(self._asks.removeprefix(QUERY), qos=self.qos)
            else:
                subscription = await client.subscribe(self._asks, qos=self.qos)
            self._say(process, "joined", asks=self._asks)
            await self._read(process, self._asks, subscription)
            live.cancel()


class Resident(Listener):
    """Has a home, a will, filters that it keeps, and others that it subscribes to and unsubscribes from.

    Its connection breaks now and then. One that ``leaves`` also disconnects in order, and a new process of it comes
    for the session, sometimes to another of its servers. Unless its session ``lasts``, nothing of it outlives a
    connection: it subscribes anew each time.
    """

    def __init__(
        self,
        name: str,
        servers: tuple[str, ...],
        pace: Pace,
        filters: tuple[str, ...],
        qos: int,
        restless_us: int,
        leaves: bool,
        lasts: bool = True,
    ) -> None:
        super().__init__(name, servers, pace, qos)
        self.lasts = lasts
        self.filters = filters  # the first is kept
        self._restless_s = restless_us / 1_000_000
        self._leaves = leaves
        self._wanted = {filters[0]: None}

    @property
    def given_up(self) -> tuple[str, ...]:
        """The filters that it unsubscribed from last at a broker that was cut off from the store."""
        return tuple(each for each in self.filters if each not in self._wanted and self.degraded.get(each))

    async def run(self, process: SimulatedProcess) -> None:
        servers = self.servers
        self.expiry_s = self.pace.resident_expiry_s() if self.lasts else 0
        while True:
            self.servers = servers if self._is_over() or random_bits(8) % 4 else servers[::-1]
            will = self._will(self.instance + 1)
            client = self._client(process, will=will, will_delay_s=WILL_DELAY_S)
            with contextlib.suppress(BrokerUnreachable):
                await client.connect()
                self.servers = servers
                reading = [asyncio.create_task(self._listen(process, client))]
                held: dict[str, Subscription] = {}
                for name in tuple(self._wanted):
                    await self._subscribe(process, client, name, held, reading)
                await self._live(process, client, held, reading)
                self._say(process, "leaves", connected=client.connected)
                await client.close()
                self.at = ""
                self._say(process, "left", connection=self.connections)
                for task in reading:
                    task.cancel()
            if client.ousted:
                return
            # A program that is away when the trouble ends comes back then.
            await asyncio.sleep(min(self.pace.away_s(), max(LEAST_AWAY_S, self._left_s())))

    def _is_over(self) -> bool:
        return self._left_s() <= 0

    def _left_s(self) -> float:
        """How much longer it is restless."""
        return self._restless_s - asyncio.get_running_loop().time()

    async def _live(
        self,
        process: SimulatedProcess,
        client: WatchedClient,
        held: dict[str, Subscription],
        reading: list[asyncio.Task[None]],
    ) -> None:
        """Until it leaves; for good, once it is no longer restless."""
        while True:
            await self._pause(self.pace.restless_ms)
            if client.ousted or self._is_over():
                await asyncio.get_running_loop().create_future()
            chosen = random_bits(16) % 8
            if chosen < 4 and len(self.filters) > 1:
                name = self.filters[1 + random_bits(16) % (len(self.filters) - 1)]
                if name in held:
                    await self._unsubscribe(process, name, held)
                else:
                    await self._subscribe(process, client, name, held, reading)
            elif chosen < 6:
                client.break_off()
            elif self._leaves:
                return

    async def _subscribe(
        self,
        process: SimulatedProcess,
        client: AsyncClient,
        name: str,
        held: dict[str, Subscription],
        reading: list[asyncio.Task[None]],
    ) -> None:
        self._wanted[name] = None
        self._say(process, "subscribing", topic_filter=name)
        held[name] = await client.subscribe(name, qos=self.qos)
        self._say(process, "subscribed", topic_filter=name, stored=not self.degraded[name])
        reading.append(asyncio.create_task(self._read(process, name, held[name])))

    async def _unsubscribe(self, process: SimulatedProcess, name: str, held: dict[str, Subscription]) -> None:
        self._wanted.pop(name, None)
        self._say(process, "unsubscribing", topic_filter=name)
        await held.pop(name).close()
        self._say(process, "unsubscribed", topic_filter=name, stored=not self.degraded[name])


class Mortal(Program):
    """Has a will, lives for a while, and dies without a word: when its time has come, or its connection breaks.

    It tries until a broker lets it in. Each try has a will of its own, which says its number.
    """

    def __init__(
        self, name: str, servers: tuple[str, ...], pace: Pace, will_delay_s: int, latest_us: int
    ) -> None:
        super().__init__(name, servers, pace)
        self._delay_s = will_delay_s
        self._latest_ms = latest_us // 1_000
        self.tries = 0
        self.lived = 0  # the try that was let in; 0: none yet …
        self.lived_at = ""  # … and by whom
        self.died = False

    async def run(self, process: SimulatedProcess) -> None:
        servers = self.servers
        while not self.lived:
            broke = asyncio.Event()
            self.tries += 1
            self.servers = (servers[self.tries % len(servers)],)
            client = self._client(
                process,
                deadline_s=5.0,
                redial=False,
                will=self._will(self.tries),
                will_delay_s=self._delay_s,
                on_connection=lambda connection, broke=broke: None if connection.up else broke.set(),
            )
            try:
                await client.connect()
            except TocsinError:
                await self._pause(1_000)
            else:
                self.lived, self.lived_at = self.tries, node_of(client.server)
        self._say(process, "alive", tries=self.tries)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(random_bits(32) % self._latest_ms / 1_000):
                await broke.wait()
        self.died = True
        self._say(process, "dies")
        raise Killed("killed")
