"""The asynchronous client.

    async with AsyncClient("mqtt://127.0.0.1:1883") as client:
        await client.publish("alerts/north", "water is rising", qos=1)
        async for message in client.query('Location/Room = "410"'):
            print(message.topic, message.text)

**Servers** are tried in the order in which they are given; a broker that sends its clients elsewhere is followed. A
client that redials keeps its subscriptions and what it said of its streams, and sends again what was not acknowledged.
With ``session_expiry_s`` (and a ``client_id`` of its own) the broker keeps the session that long, so that messages
above QoS 0 are not missed in between; without, a new session is begun each time.

The broker answers every request within ``deadline_s``, or the call raises ``DeadlineExceeded``; a message may still
arrive afterwards. A broker that cannot be reached is ``BrokerUnreachable``: at QoS 0 at once while there is no
connection, for everything else when the client does not redial, or the broker does not want it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, Unpack

from mqtt5 import ConnAckPacket, DisconnectPacket, Packet, PublishPacket

from tocsin.client.address import DEFAULT_SERVERS, Server, read_servers, read_user
from tocsin.client.answers import Answer, Answers
from tocsin.client.channel import Notifications, topic_of
from tocsin.client.message import checked, checked_qos, filter_of, frame_of, publication_of, requested
from tocsin.client.options import PACKET_MAX_BYTES, Chosen, Connection, Options, Publishing
from tocsin.client.pull import Pulled, Pulls
from tocsin.client.session import FLUSH, Session
from tocsin.client.stream import Stream
from tocsin.client.subscription import Inbox, Streams, Subscription, Wanted
from tocsin.client.values import Answered, Arrived, Effect
from tocsin.client.watching import Watched, watches
from tocsin.core.links.signals import Down
from tocsin.core.survival.homes import SERVERS_TOPIC
from tocsin.errors import (
    AlreadySubscribed,
    BrokerUnreachable,
    ClientClosed,
    DeadlineExceeded,
    PacketTooLarge,
    SubscriptionRefused,
    TocsinError,
    WireError,
)
from tocsin.model.publication import Publication
from tocsin.model.quality import Request
from tocsin.query import encode_filter, parse
from tocsin.runtime.machines.clock import token_hex
from tocsin.runtime.machines.line import Endpoint, Line
from tocsin.runtime.security.tls import client_context
from tocsin.wire.mqtt.codec import encode
from tocsin.wire.mqtt.connect import V5
from tocsin.wire.mqtt.topics import QUERY_PREFIX, STREAMS_PREFIX, WANTED_PREFIX, check_topic

OUTBOUND_MAX_BYTES: Final = 1 << 20  # written and not sent, before a publish waits for the broker
LEAVING_S: Final = 5.0  # to send what was written before the end
AGING_S: Final = 60.0  # far more than the second after which a broker has stored what was acknowledged
# Refusals that the next connection would meet as well: our protocol, client id, password or rights, a topic or packet
# that the broker does not take. And another client with our id, unless it may have been we ourselves (``Down.own``):
# two that redial would throw each other out for ever.
FINAL_CODES: Final = frozenset(
    {0x81, 0x82, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95}
)


class AsyncClient:
    """A client for asyncio: publishes, subscribes, and reconnects by itself."""

    def __init__(
        self, servers: str | Sequence[str | Server] = DEFAULT_SERVERS, **options: Unpack[Options]
    ) -> None:
        """Raises ``AddressInvalid``, and ``ValueError`` for an option that cannot be."""
        options["client_id"] = options.get("client_id") or f"tocsin-py-{token_hex(6)}"
        self._options = chosen = Chosen(**options)
        places = read_servers(servers)
        self.client_id = chosen.client_id
        self.deadline_s = chosen.deadline_s
        self.dropped = 0  # messages that no reader gets: an inbox was full, or nobody made their subscription
        self.results_repeated = 0  # results of channels that came again as new messages, known by their ids
        self._send_max_bytes: int | None = None  # the largest packet that the broker takes
        context = chosen.tls or (client_context() if any(place.secure for place in places) else None)
        self._user = read_user(places, chosen.username, chosen.password)
        self._line = Line(
            [Endpoint(each.host, each.port, context if each.secure else None, each.web) for each in places],
            chosen.greeting(*self._user),
            self,
            redial=chosen.redial,
            follow=True,
            packet_max_bytes=PACKET_MAX_BYTES,
        )
        self._session = Session(chosen.receive_max)
        self._answers = Answers(chosen.deadline_s)
        self._pulls = Pulls(token_hex(8))
        self._inboxes: dict[str, Inbox[Any]] = {}  # by filter
        self._streams: dict[str, Stream] = {}  # by topic
        self._news = asyncio.Event()  # the connection changed
        self._broken: BrokerUnreachable | None = None  # why there is no connection just now
        self._end: TocsinError | None = None  # why there will be none
        # Of this connection: until messages for subscriptions that are not made yet are given up; and a clock.
        self._timers: dict[str, asyncio.TimerHandle] = {}

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

    async def close(self, *, settle: bool = True, end_session: bool = False) -> None:
        """Take leave; the broker does not publish the will.

        ``settle`` acknowledges the last message that each subscription's reader was given. ``end_session``: the broker
        forgets the session at once, whatever ``session_expiry_s`` is.
        """
        if settle:
            for inbox in set(self._inboxes.values()):
                inbox.settle()
        self._cancel_timers()
        self._line.close(DisconnectPacket(session_expiry_interval=0) if end_session else None)
        self._finish(ClientClosed("this client"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_S):
                await self._line.wait_closed()

    @property
    def connected(self) -> bool:
        return self._line.up

    @property
    def server(self) -> str:
        """The server that the client is connected to, or tried last: host:port."""
        return f"{self._line.at.host}:{self._line.at.port}"

    @property
    def others(self) -> tuple[str, ...]:
        """Where the client goes on if its own servers are gone, as its broker has said: host:port."""
        return tuple(f"{host}:{port}" for host, port in self._line.others)

    @property
    def watched(self) -> bool:
        """Whether a second connection would tell the client at once that its broker is lost (``watch``)."""
        return self._line.up and watches().watches(self)

    @property
    def duplicates(self) -> int:
        """How many messages came again, and were not given to a reader twice."""
        return self._session.arrivals.repeated + self.results_repeated

    @property
    def unasked(self) -> int:
        """How many messages came to which this client has no subscription, or none any more."""
        return self._session.arrivals.unasked

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, topic: str, value: object = b"", **options: Unpack[Publishing]) -> None:
        """Send a message: at QoS 0 at once and best effort; above, return once it is durable.

        Bytes are sent as they are, text in UTF-8, other values as JSON. ``PublishRefused`` if the broker does not take
        it.
        """
        await self.send(publication_of(topic, value, **options))

    async def send(self, *messages: Publication) -> None:
        """Send messages, one right behind the other, and wait for what is to be waited for."""
        asked: dict[Answer, str] = {}
        try:
            for each in messages:
                self._send(each, asked)
            await self._answers.wait(asked)
        finally:
            self._answers.let_go(asked)
        if self._line.waiting_bytes > OUTBOUND_MAX_BYTES:
            await self.flush()

    def _send(self, message: Publication, asked: dict[Answer, str]) -> None:
        check_topic(message.topic)
        if self._end is not None:
            raise self._end
        frame = frame_of(message)
        if self._send_max_bytes is not None and len(frame) > self._send_max_bytes:
            raise PacketTooLarge(len(frame), self._send_max_bytes)
        if message.qos:
            asked[self._ask(*self._session.ask(message))] = f"PUBLISH {message.topic}"
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
        await self._answers.wait({self._ask(*self._session.ask(FLUSH)): "a flush"})

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        *filters: str,
        qos: int = 0,
        no_local: bool = False,
        retained: bool = True,
        request: Request | str | None = None,
    ) -> Subscription:
        """The messages of topic filters; await, iterate or enter it: see ``tocsin.client.subscription``.

        ``no_local``: not those that this client publishes. ``retained``: with the retained ones that are there.
        ``request``: only those that meet a request of quality. Raises ``QualityInvalid``.
        """
        names = [requested(each, request) for each in filters]
        wanted = [filter_of(each, qos, no_local=no_local, retained=retained) for each in names]
        return Subscription(self, wanted, self._options.inbox_max)

    def query(self, predicate: str, *, qos: int = 0, with_streams: bool = False) -> Subscription:
        """The messages of every stream whose metadata satisfies the predicate, now and later.

        ``with_streams``: each message has the metadata of its stream, as it was known when the message arrived.
        Raises ``QueryInvalid``.
        """
        parse(predicate)
        text = encode_filter(predicate)
        streams = filter_of(STREAMS_PREFIX + text, 0) if with_streams else None
        wanted = [filter_of(QUERY_PREFIX + text, qos)]
        return Subscription(self, wanted, self._options.inbox_max, streams=streams)

    def streams(self, predicate: str) -> Streams:
        """The set of streams whose metadata satisfies the predicate, then its changes. Raises ``QueryInvalid``."""
        parse(predicate)
        return Streams(self, filter_of(STREAMS_PREFIX + encode_filter(predicate), 0), self._options.inbox_max)

    def wanted(self, topic_filter: str) -> Wanted:
        """Whether anybody else subscribes to topics of a filter, then each change of that.

        For sources that save power while nobody listens. The client must be allowed to publish on all of the filter.
        """
        return Wanted(self, filter_of(WANTED_PREFIX + topic_filter, 0), self._options.inbox_max)

    def channel(self, name: str, /, *values: object, qos: int = 1, **parameters: object) -> Notifications:
        """The notifications of a channel with these parameters, from here on: see ``tocsin.client.channel``."""
        topic = topic_of(name, values, parameters)
        return Notifications(self, topic, qos, self._options.inbox_max)

    async def results(
        self,
        name: str,
        /,
        *values: object,
        newest: int | None = None,
        since: int | None = None,
        limit: int | None = None,
        **parameters: object,
    ) -> Pulled:
        """Results of a channel that are there already: the newest, or those behind a position, oldest first.

        An answer has at most 1 000 results and about a mebibyte; ``Pulled.next`` is where to go on. ``PublishRefused``
        if there is no such channel, or the client may not subscribe to it.
        """
        if self._end is not None:
            raise self._end
        topic = topic_of(name, values, parameters)
        question, answer = self._pulls.ask(topic, {"newest": newest, "since": since, "limit": limit})
        try:
            async with asyncio.timeout(self.deadline_s):
                await self.send(question)
                return await answer
        except TimeoutError:
            raise DeadlineExceeded(f"results of {topic}", self.deadline_s) from None
        finally:
            answer.cancel()

    async def open_inbox(self, inbox: Inbox[Any]) -> None:
        if self._end is not None:
            raise self._end
        asked: dict[Answer, str] = {}
        try:
            for name, how in inbox.filters.items():
                if name in self._inboxes:
                    raise AlreadySubscribed(name)
                self._inboxes[name] = inbox
                asked[self._ask(*self._session.subscribe(how))] = f"SUBSCRIBE {name}"
            await self._answers.wait(asked)
        except BaseException:
            self._answers.let_go(asked)
            self._answers.let_go(self._unsubscribe(inbox))
            raise

    async def close_inbox(self, inbox: Inbox[Any]) -> None:
        await self._answers.wait(self._unsubscribe(inbox))

    def _unsubscribe(self, inbox: Inbox[Any]) -> dict[Answer, str]:
        asked: dict[Answer, str] = {}
        for name in [each for each in inbox.filters if self._inboxes.get(each) is inbox]:
            del self._inboxes[name]
            if self._end is None:
                asked[self._ask(*self._session.unsubscribe(name))] = f"UNSUBSCRIBE {name}"
        return asked

    def settle(self, packets: Iterable[PublishPacket]) -> None:
        arrivals = self._session.arrivals
        self._perform([answer for packet in packets for answer in arrivals.settle(packet)])

    # ── the session ─────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, request: int, effects: Iterable[Effect]) -> Answer:
        """Carry out a request's first effects; the caller may wait for its answer."""
        answer = self._answers.expect(request)
        self._perform(effects)
        return answer

    def _perform(self, effects: Iterable[Effect]) -> None:
        frames: list[bytes] = []
        for effect in effects:
            match effect:
                case Arrived(packet=packet, takers=takers):
                    for topic_filter in takers:
                        self._inboxes[topic_filter].take(topic_filter, packet)
                case Answered(request=request, error=error):
                    if isinstance(error, SubscriptionRefused) and error.topic_filter in self._inboxes:
                        self._inboxes.pop(error.topic_filter).end(error)
                    self._answers.resolve(request, error)
                case _:
                    frames.append(encode(effect, V5))
        if frames:
            self._line.write(b"".join(frames))

    def _watch(self) -> None:
        """Be told of the loss of the broker that the client is at, if it has named others to go to."""
        line = self._line
        if not self._options.watch:
            return
        if line.broker and line.others:
            watched = Watched(
                line.broker, *self._user, self._options.tls, line.at.tls is not None, line.at.web
            )
            watches().join(self, watched, line.at, line.others)
        else:
            watches().leave(self)

    def alarm(self, broker: str) -> None:
        """The network counts a broker as lost: leave it, if it does not answer."""
        self._line.alarm(broker)

    def _finish(self, end: TocsinError) -> None:
        watches().leave(self)
        self._end = self._end or end
        self._answers.fail(self._end)
        self._pulls.fail(self._end)
        for inbox in set(self._inboxes.values()):
            inbox.end(self._end)
        self._news.set()

    def _tell(self, connection: Connection) -> None:
        """Not from within: what the program's function raises is not ours to catch."""
        if self._options.on_connection is not None:
            asyncio.get_running_loop().call_soon(self._options.on_connection, connection)

    def _unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(self._line.at.host, self._line.at.port, reason)

    # ── what the line tells ─────────────────────────────────────────────────────────────────────────────────

    def line_up(self, answer: ConnAckPacket) -> None:
        self._send_max_bytes = answer.max_packet_size
        for inbox in set(self._inboxes.values()):
            inbox.begin()
        self._perform(self._session.connected(answer))
        if answer.session_present:
            self._later("abandon", self.deadline_s, self._abandon)
        else:
            for message in [each.again() for each in self._streams.values()]:
                if message is not None:
                    self._perform(self._session.ask(message)[1])
        self._later("age", AGING_S, self._grow_older)
        self._watch()
        self._tell(Connection(True, self.server))
        self._news.set()

    def _later(self, name: str, delay_s: float, then: Callable[[], None]) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(delay_s, then)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _grow_older(self) -> None:
        self._session.arrivals.age()
        self._later("age", AGING_S, self._grow_older)

    def _abandon(self) -> None:
        nobodys, answers = self._session.arrivals.abandon()
        self.dropped += nobodys
        self._perform(answers)

    def line_down(self, down: Down) -> None:
        self._broken = self._unreachable(down.reason)
        self._cancel_timers()
        self._perform(self._session.interrupted(self._broken))
        retry_us = None if down.reason_code in FINAL_CODES and not down.own else down.retry_us
        retry_s = None if retry_us is None else retry_us / 1_000_000
        self._tell(Connection(False, self.server, down.reason, retry_s))
        if retry_us is None:
            self._line.close()
            self._finish(self._broken)
        self._news.set()

    def line_heard(self, packet: Packet) -> None:
        if self._pulls.heard(packet):
            return
        if isinstance(packet, PublishPacket) and packet.topic == SERVERS_TOPIC:
            self._watch()
        try:
            self._perform(self._session.heard(packet))
        except WireError as error:
            self._line.fail(f"the peer broke the protocol: {error}")
