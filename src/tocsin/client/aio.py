"""The asynchronous client.

    async with AsyncClient("mqtt://127.0.0.1:1883") as client:
        await client.publish("alerts/north", "water is rising", qos=1)
        async for message in client.query('Location/Room = "410"'):
            print(message.topic, message.text)

**Servers** are tried in the order in which they are given; a broker that sends its clients elsewhere is followed. A
client that redials keeps its subscriptions and what it said of its streams, and sends again what was not acknowledged.
With ``session_expiry_s`` (and a ``client_id`` of its own) the broker keeps the session that long, so that messages
above QoS 0 are not missed in between; without, a new session is begun each time.

Whatever is asked of the broker is answered within ``deadline_s``, or ``DeadlineExceeded``; a message may still arrive
afterwards. A broker that cannot be reached is ``BrokerUnreachable``: at QoS 0 at once while there is no connection, for
everything else when the client does not redial, or the broker does not want it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from mqtt5 import ConnAckPacket, ConnectPacket, Packet, PublishPacket

from tocsin.client.address import Server, read_servers, read_user
from tocsin.client.arrivals import Arrived
from tocsin.client.message import checked, checked_qos, frame_of, payload_of
from tocsin.client.session import Answered, Effect, Ended, Session
from tocsin.client.stream import Stream
from tocsin.client.subscription import Inbox, Streams, Subscription
from tocsin.core.dialler import Down
from tocsin.errors import (
    BrokerUnreachable,
    ClientClosed,
    DeadlineExceeded,
    PacketTooLarge,
    TocsinError,
    WireError,
)
from tocsin.model.publication import Publication
from tocsin.query import encode_filter, parse
from tocsin.runtime.line import Endpoint, Line
from tocsin.runtime.tls import client_context
from tocsin.wire.codec import V5, encode
from tocsin.wire.topics import QUERY_PREFIX, STREAMS_PREFIX, check_filter, check_topic

DEFAULT_SERVER: Final = "mqtt://127.0.0.1:1883"
PACKET_MAX_BYTES: Final = 2 << 20  # twice what a broker takes from a client by default
OUTBOUND_MAX_BYTES: Final = 1 << 20  # written and not sent, before a publish waits for the broker
KEEP_ALIVE_S: Final = 30
LEAVING_S: Final = 5.0  # to send what was written before the end
# What the next connection would meet as well: our protocol, client id, password or rights, a topic or packet that the
# broker does not take. And another client with our id: two that redial would throw each other out for ever.
FINAL_CODES: Final = frozenset(
    {0x81, 0x82, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95}
)


class AsyncClient:
    """See the module's text."""

    def __init__(
        self,
        servers: str | Sequence[str | Server] = DEFAULT_SERVER,
        *,
        client_id: str = "",
        username: str | None = None,
        password: str | bytes | None = None,
        tls: ssl.SSLContext | None = None,
        redial: bool = True,
        session_expiry_s: int = 0,
        receive_max: int = 1_000,
        inbox_max: int = 10_000,
        deadline_s: float = 30.0,
    ) -> None:
        """``tls`` is for servers of the schemes ``mqtts`` and ``wss``; without, this machine's authorities count.

        ``receive_max`` bounds the unacknowledged messages of all subscriptions together, ``inbox_max`` what waits in
        one at QoS 0. Raises ``AddressInvalid``.
        """
        places = read_servers(servers)
        name, secret = read_user(places, username, password)
        self.client_id = client_id or f"tocsin-py-{secrets.token_hex(6)}"
        self.deadline_s = deadline_s
        self.dropped = 0  # messages that no reader gets: an inbox was full, or nobody made their subscription
        self._send_max_bytes: int | None = None  # the largest packet that the broker takes
        self._inbox_max = inbox_max
        greeting = ConnectPacket(
            self.client_id,
            clean_start=session_expiry_s == 0,
            session_expiry_interval=session_expiry_s,
            keep_alive=KEEP_ALIVE_S,
            username=name,
            password=secret,
            receive_max=receive_max,
            max_packet_size=PACKET_MAX_BYTES,
        )
        context = tls or (client_context() if any(place.secure for place in places) else None)
        self._line = Line(
            [Endpoint(each.host, each.port, context if each.secure else None, each.web) for each in places],
            greeting,
            self,
            redial=redial,
            follow=True,
            packet_max_bytes=PACKET_MAX_BYTES,
        )
        self._session = Session(receive_max)
        self._inboxes: dict[str, Inbox[Any]] = {}  # by filter
        self._streams: dict[str, Stream] = {}  # by topic
        self._waiting: dict[int, asyncio.Future[None]] = {}  # who waits for which request
        self._news = asyncio.Event()  # the connection changed
        self._broken: BrokerUnreachable | None = None  # why there is no connection just now
        self._end: TocsinError | None = None  # why there will be none
        self._grace: asyncio.TimerHandle | None = None  # of messages for subscriptions that are not made yet

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(settle=kind is None)

    async def connect(self) -> None:
        """Return once a broker has accepted us; ``BrokerUnreachable`` if none does within the deadline."""
        self._line.open()
        try:
            async with asyncio.timeout(self.deadline_s):
                while not self._line.up:
                    if self._end is not None:
                        raise self._end
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            await self.close()
            raise self._broken or self._unreachable(f"no answer within {self.deadline_s:g} s") from None

    async def close(self, *, settle: bool = True) -> None:
        """Take leave. What the subscriptions' readers were given last is acknowledged if ``settle``."""
        if settle:
            for inbox in set(self._inboxes.values()):
                inbox.settle()
        if self._grace is not None:
            self._grace.cancel()
        self._line.close()
        self._finish(ClientClosed("this client"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_S):
                await self._line.wait_closed()

    @property
    def connected(self) -> bool:
        return self._line.up

    @property
    def duplicates(self) -> int:
        """How many messages came again, and were not given to a reader twice."""
        return self._session.arrivals.repeated

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self,
        topic: str,
        value: object = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        expiry_s: int | None = None,
        user_properties: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Send a message: at QoS 0 at once and best effort; above, return once it is durable.

        Bytes are sent as they are, text in UTF-8, other values as JSON. ``PublishRefused`` if the broker does not take
        it.
        """
        payload, properties = payload_of(value), tuple(user_properties)
        await self.send(
            Publication(topic, payload, checked_qos(qos), "", retain, expiry_s, user_properties=properties)
        )

    async def send(self, *messages: Publication) -> None:
        """Send messages, one right behind the other, and wait for what is to be waited for."""
        requests: dict[int, str] = {}
        try:
            for each in messages:
                self._send(each, requests)
            await self._answers(requests)
        finally:
            self._let_go(requests)
        if self._line.waiting_bytes > OUTBOUND_MAX_BYTES:
            await self.flush()

    def _send(self, message: Publication, requests: dict[int, str]) -> None:
        check_topic(message.topic)
        if self._end is not None:
            raise self._end
        frame = frame_of(message)
        if self._send_max_bytes is not None and len(frame) > self._send_max_bytes:
            raise PacketTooLarge(len(frame), self._send_max_bytes)
        if message.qos:
            requests[self._ask(*self._session.publish(message))] = f"PUBLISH {message.topic}"
        elif self._line.up:
            self._line.write(frame)
        else:
            raise self._broken or self._unreachable("there is none yet")

    def stream(
        self,
        topic: str,
        metadata: Mapping[str, Any] | None = None,
        /,
        *,
        qos: int = 0,
        permanent: bool = False,
        **more: Any,
    ) -> Stream:
        """The stream of a topic, to publish on; its metadata goes with the first message, or ``describe``.

        A stream leaves when this client's session ends, unless it is ``permanent``.
        """
        changes = checked(topic, {**(metadata or {}), **more})
        stream = self._streams.get(topic) or Stream(self, topic, qos)
        stream.qos = checked_qos(qos)
        stream.add(changes, permanent=permanent)
        self._streams[topic] = stream
        return stream

    async def flush(self) -> None:
        """Wait until the broker has read everything that was published."""
        if not self._line.up:
            raise self._end or self._broken or self._unreachable("there is none yet")
        await self._answers({self._ask(*self._session.flush()): "a flush"})

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, *filters: str, qos: int = 0) -> Subscription:
        """The messages of topic filters; await, iterate or enter it: see ``tocsin.client.subscription``."""
        for topic_filter in filters:
            check_filter(topic_filter)
        return Subscription(self, dict.fromkeys(filters, checked_qos(qos)), self._inbox_max)

    def query(self, predicate: str, *, qos: int = 0, with_streams: bool = False) -> Subscription:
        """The messages of every stream whose metadata satisfies the predicate, now and later.

        ``with_streams``: each message has the metadata of its stream, as it was known when the message arrived.
        Raises ``QueryInvalid``.
        """
        parse(predicate)
        text = encode_filter(predicate)
        streams = STREAMS_PREFIX + text if with_streams else None
        return Subscription(self, {QUERY_PREFIX + text: checked_qos(qos)}, self._inbox_max, streams=streams)

    def streams(self, predicate: str) -> Streams:
        """The set of streams whose metadata satisfies the predicate, then its changes. Raises ``QueryInvalid``."""
        parse(predicate)
        return Streams(self, STREAMS_PREFIX + encode_filter(predicate), self._inbox_max)

    async def open_inbox(self, inbox: Inbox[Any]) -> None:
        if self._end is not None:
            raise self._end
        requests: dict[int, str] = {}
        try:
            for name, qos in inbox.filters.items():
                request, effects = self._session.subscribe(name, qos)
                self._inboxes[name] = inbox
                requests[self._ask(request, effects)] = f"SUBSCRIBE {name}"
            await self._answers(requests)
        except BaseException:
            self._let_go(requests)
            self._let_go(self._unsubscribe(inbox))
            raise

    async def close_inbox(self, inbox: Inbox[Any]) -> None:
        await self._answers(self._unsubscribe(inbox))

    def _unsubscribe(self, inbox: Inbox[Any]) -> dict[int, str]:
        requests: dict[int, str] = {}
        for name in [each for each in inbox.filters if self._inboxes.get(each) is inbox]:
            del self._inboxes[name]
            if self._end is None:
                requests[self._ask(*self._session.unsubscribe(name))] = f"UNSUBSCRIBE {name}"
        return requests

    def settle(self, packets: Iterable[PublishPacket]) -> None:
        self._perform(self._session.arrivals.settle(packets))

    # ── the session ─────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, request: int, effects: Iterable[Effect]) -> int:
        """Carry out what a request begins with; whoever made it may wait for its answer."""
        self._waiting[request] = asyncio.get_running_loop().create_future()
        self._perform(effects)
        return request

    async def _answers(self, requests: Mapping[int, str]) -> None:
        """Return when all are answered; the first error otherwise."""
        try:
            async with asyncio.timeout(self.deadline_s):
                for request in requests:
                    await self._waiting[request]
        except TimeoutError:
            raise DeadlineExceeded(requests[request], self.deadline_s) from None
        finally:
            self._let_go(requests)

    def _let_go(self, requests: Iterable[int]) -> None:
        """Nobody waits for these any more."""
        for request in requests:
            answer = self._waiting.pop(request, None)
            if answer is not None and not answer.cancel() and not answer.cancelled():
                answer.exception()  # seen, so that nobody is told that it was not

    def _perform(self, effects: Iterable[Effect]) -> None:
        frames: list[bytes] = []
        for effect in effects:
            match effect:
                case Arrived(packet=packet, takers=takers):
                    for topic_filter in takers:
                        self._inboxes[topic_filter].take(topic_filter, packet)
                case Answered(request=request, error=error):
                    self._resolve(self._waiting.get(request), error)
                case Ended(topic_filter=topic_filter, error=error):
                    self._inboxes.pop(topic_filter).end(error)
                case _:
                    frames.append(encode(effect, V5))
        if frames:
            self._line.write(b"".join(frames))

    def _resolve(self, answer: asyncio.Future[None] | None, error: TocsinError | None) -> None:
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    def _finish(self, end: TocsinError) -> None:
        self._end = self._end or end
        for answer in self._waiting.values():
            self._resolve(answer, self._end)
        for inbox in set(self._inboxes.values()):
            inbox.end(self._end)
        self._news.set()

    def _unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(self._line.at.host, self._line.at.port, reason)

    # ── what the line tells ─────────────────────────────────────────────────────────────────────────────────

    def line_up(self, answer: ConnAckPacket) -> None:
        self._send_max_bytes = answer.max_packet_size
        for inbox in set(self._inboxes.values()):
            inbox.begin()
        self._perform(self._session.connected(answer))
        if answer.session_present:
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(self.deadline_s, self._abandon)
        else:
            for message in [each.again() for each in self._streams.values()]:
                if message is not None:
                    self._perform(self._session.publish(message)[1])
        self._news.set()

    def _abandon(self) -> None:
        nobodys, answers = self._session.arrivals.abandon()
        self.dropped += nobodys
        self._perform(answers)

    def line_down(self, down: Down) -> None:
        self._broken = self._unreachable(down.reason)
        if self._grace is not None:
            self._grace.cancel()
        self._perform(self._session.interrupted(self._broken))
        if down.reason_code in FINAL_CODES:
            self._line.close()
        if down.retry_us is None or down.reason_code in FINAL_CODES:
            self._finish(self._broken)
        self._news.set()

    def line_heard(self, packet: Packet) -> None:
        try:
            self._perform(self._session.heard(packet))
        except WireError as error:
            self._line.fail(f"the peer broke the protocol: {error}")
