"""The clients of a broker that publish, as the coordinator hears of them: their streams, and their coming and going.

Every change has a ticket (``core.coordination.participant.signals``): messages behind it wait until it is clear
(``core.streams.machine``), and the client is answered when it is settled and clear: it is kept, and in force
everywhere.

A topic is **registered** while a client here publishes on it of which the coordinator knows that, in this incarnation,
and all routes that follow are here. Messages on other topics go to every tier (``core.forwarding.origins``).

The metadata of streams that are published here are known (``metadata``), so that messages can carry them;
``core.streams.metadata`` decides which of several statements counts.

A client's connections have **epochs**, the times at which it came (``core.survival.announcements``), so that the
coordinator knows which of two brokers has it. They grow by two at least: the number between two connections is for the
end of what came before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

import structlog
from mqtt5 import Will

from tocsin.broker.client import Client
from tocsin.core.coordination.participant.signals import ClientsChanged
from tocsin.core.session.will import will_message
from tocsin.core.streams.machine import ChangeNumbers, ClientStreams
from tocsin.core.streams.metadata import Learned, StreamMetadata, merged
from tocsin.core.streams.signals import DeclareStream
from tocsin.core.survival.announcements import ArrivalClock
from tocsin.model.publication import Publication
from tocsin.model.stream import Metadata
from tocsin.runtime.machines.clock import monotonic_s, wall_us
from tocsin.wire.internal.commands import ClientAway, ClientBack, ClientGone, Streams
from tocsin.wire.internal.replication import Bequest

WILL: Final = ".will"  # the end of the record id of a will, and of no other
SAY_S: Final = 10.0  # at most so often the log says what was refused: clients may go on for ever
TOLD_S: Final = 2.0  # for what the coordinator says of a stream to come, and to be applied

# With a topic, what is said of its stream, and who publishes on it here.
LearnedOf = Callable[[str, Metadata, Collection[Client]], None]
Done = Callable[[str | None], None]  # told None, or what the problem is
Command = Streams | ClientAway | ClientBack | ClientGone


class WaitingMessages(Protocol):
    """A client whose messages may have to wait."""

    def __len__(self) -> int:
        """How many do."""
        ...

    def clear(self, ticket: int) -> None:
        """Everybody concerned knows what was declared up to this ticket."""
        ...


class Log(Protocol):
    """The message log, as it is seen from here."""

    @property
    def newest(self) -> int:
        """The last position that was committed here."""
        ...


class StreamRegistry:
    """Tells the coordinator of the clients that publish here, and hands back what it says.

    ``post`` hands an event to the participant; ``learned`` is told what is said of streams that are published here.
    """

    def __init__(
        self,
        post: Callable[[ClientsChanged], None],
        log: Log,
        *,
        broker: str,
        cluster: str,
        clock: ArrivalClock,
        streams_max: int,
        metadata_max_bytes: int,
        learned: LearnedOf,
    ) -> None:
        self._learned = learned
        self.broker = broker
        self.cluster = cluster
        self._streams_max = streams_max  # of one client
        self._metadata_max_bytes = metadata_max_bytes  # of one stream
        self.unregistered = 0  # messages whose topic was one stream too many
        self.refused = 0  # descriptions that could not be taken
        self._said_s = -SAY_S  # when the log said so last
        self._post = post
        self._message_log = log
        self.metadata = StreamMetadata()
        self._tickets = ChangeNumbers()
        # Topic → who publishes on it here, and under which ticket that was declared; 0: it was not yet.
        self._publishers: dict[str, dict[Client, int]] = {}
        self._routed = 0  # changes up to this ticket have their routes
        self._coming: deque[tuple[int, str]] = deque()  # tickets that have not, and the topics
        self._refused: set[str] = set()  # topics that the coordinator has refused since this broker joined
        self.reregistered: Callable[[Iterable[str] | None], None] = (
            _nothing  # told of topics that were; None: any
        )
        self._cleared = 0
        self._waiting: dict[int, Done] = {}  # by ticket, the lowest first
        self._held: deque[tuple[int, WaitingMessages]] = deque()  # the waiters for each ticket
        self._clock = clock
        self._epoch = 0  # of the newest connection here
        self._epochs: dict[str, int] = {}  # client → the epoch of its connection here
        self._log = structlog.get_logger()

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def client_streams(self) -> ClientStreams:
        """The machine of one client more that publishes here."""
        return ClientStreams(
            self.metadata,
            self._tickets,
            streams_max=self._streams_max,
            metadata_max_bytes=self._metadata_max_bytes,
        )

    @property
    def unsettled(self) -> int:
        """Changes that wait for the coordinator."""
        return self._tickets.last - self._tickets.settled

    def bequest(self, will: Will, client: str, prefix: str, session: str, epoch: int, owner: str) -> Bequest:
        """A will, with its stream's metadata; ``prefix``: of the client's record ids; its stored session; and the user
        who left it.
        """
        publication = Publication.of(
            will_message(will),
            will.topic,
            client,
            broker=self.broker,
            cluster=self.cluster,
            keys=self.metadata.of(will.topic),
        )
        return Bequest(publication, will.will_delay_interval, will_id(prefix), session, epoch, owner)

    def statistics(self) -> dict[str, int]:
        return {
            "streams": len(self._publishers),
            "unregistered": self.unregistered,
            "descriptions_refused": self.refused,
            "held": sum(len(held) for held in {held for _, held in self._held}),
        }

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def came(self, client: str) -> int:
        """A client has connected; the epoch of its connection."""
        self._epoch = self._epochs[client] = self._clock.next(wall_us())
        return self._epoch

    def back(self, client: Client) -> None:
        """Its session was resumed."""
        self._say(self._tickets.next(), ClientBack(client.client_id, client.expiry_s, client.epoch))

    def went(self, client: str, epoch: int) -> None:
        """A connection is over."""
        if self._epochs.get(client) == epoch:
            del self._epochs[client]

    def ended(self, client: Client, topics: Collection[str], expiry_s: int) -> None:
        """A connection of which the coordinator knows is over, and all that it published is in the log."""
        for topic in topics:
            self._publishers[topic].pop(client, None)
            if not self._publishers[topic]:
                del self._publishers[topic]
                self._refused.discard(topic)
                self.metadata.ceased(topic)
        self.reregistered(topic for topic in topics if not self.is_registered(topic))
        name, epoch, after = client.client_id, client.epoch, self._message_log.newest
        gone = ClientAway(name, expiry_s, after, epoch) if expiry_s else ClientGone(name, after, epoch)
        self._say(self._tickets.next(), gone)

    def session_over(self, client: str) -> None:
        """A stored session is forgotten, because its client started clean."""
        epoch = self._epochs.get(client, self._epoch + 2) - 1
        if self._tickets.room:
            self._say(self._tickets.next(), ClientGone(client, 0, epoch))

    # ── streams ─────────────────────────────────────────────────────────────────────────────────────────────

    def declare(
        self, client: Client, held: WaitingMessages, declared: DeclareStream, done: Done | None
    ) -> None:
        """Tell the coordinator of a stream; ``done`` is told what came of it."""
        topic, diff = declared.topic, self.metadata.owed(declared.topic, declared.diff)
        if done is not None:
            self._waiting[declared.ticket] = done
        self._tickets.declared(declared.ticket, topic, diff)
        self._tell([self.metadata.declared(topic, diff, declared.ticket)])
        if client not in self._publishers.get(topic, {}) and (before := client.delivery.streams.get(topic)):
            # Its session remembers the stream from an earlier connection, and would say so when it publishes again.
            client.delivery.said(topic, merged(before, diff), kept=not client.delivery.is_unkept(topic))
        self._held.append((declared.ticket, held))
        if declared.publishes and not self._publishers[topic][client]:
            self._publishers[topic][client] = declared.ticket
            self._coming.append((declared.ticket, topic))
        name = client.client_id if declared.publishes else ""
        changes = ((topic, None if diff is None else dict(diff)),)
        self._say(
            declared.ticket,
            Streams(
                name,
                client.expiry_s,
                changes,
                self._message_log.newest,
                client.epoch if name else 0,
                client.user,
            ),
        )

    def _tell(self, learned: Iterable[Learned]) -> None:
        """Tell the clients that publish on these topics their current metadata: their sessions remember them."""
        for topic, keys in learned:
            publishers = self._publishers.get(topic, {})
            for client in publishers:
                client.delivery.said(topic, keys, kept=self.metadata.is_kept(topic))
            self._learned(topic, keys, tuple(publishers))

    def publishes(self, topic: str, client: Client) -> None:
        """One client more publishes on a topic. Its session's metadata count until more is known."""
        self._publishers.setdefault(topic, {})[client] = 0
        delivery = client.delivery
        self.metadata.published(topic, delivery.streams.get(topic), unkept=delivery.is_unkept(topic))
        keys = self.metadata.of(topic) or {}
        if keys:
            delivery.said(topic, keys, kept=self.metadata.is_kept(topic))
        self._learned(topic, keys, (client,))

    def publishing(self, topic: str) -> Iterable[Client]:
        """Who publishes on a topic here."""
        return self._publishers.get(topic, ())

    def _say(self, ticket: int, command: Command) -> None:
        cause = f"{self.broker}:s{ticket}"
        self._post(ClientsChanged(ticket=ticket, command=command, cause=cause))

    # ── what the participant tells ──────────────────────────────────────────────────────────────────────────

    def described(self, streams: Mapping[str, Metadata], *, whole: bool) -> None:
        self._tell(self.metadata.described(streams, whole=whole))

    def settle(self, ticket: int) -> None:
        """Everything up to this ticket is in the coordinator's log."""
        self._tickets.settle(ticket)
        self._tell(self.metadata.kept(ticket))
        doubtful = self.metadata.settled(ticket)
        if doubtful:
            asyncio.get_running_loop().call_later(TOLD_S, self._doubt, doubtful)
        self._answer()

    def _doubt(self, topics: list[str]) -> None:
        self._tell(self.metadata.doubted(topics))

    def _answer(self) -> None:
        done = min(self._tickets.settled, self._cleared)
        while self._waiting and (first := next(iter(self._waiting))) <= done:
            self._waiting.pop(first)(None)

    def is_registered(self, topic: str) -> bool:
        """Whether the routes for messages of a topic are all here."""
        publishers = self._publishers.get(topic)
        if publishers is None or topic in self._refused:
            return False
        return any(0 < ticket <= self._routed for ticket in publishers.values())

    def routed(self, ticket: int, *, anew: bool) -> None:
        """The routes for changes up to this ticket are here; ``anew``: this broker joins once more, with no others."""
        if anew or not self._routed:
            self._routed = ticket
            if anew:
                self._refused.clear()
            self._coming = deque(each for each in self._coming if each[0] > ticket)
            self.reregistered(None)
            return
        self._routed = max(ticket, self._routed)
        came = []
        while self._coming and self._coming[0][0] <= ticket:
            came.append(self._coming.popleft()[1])
        self.reregistered(came)

    def unregister(self, topic: str) -> None:
        """The coordinator does not take a topic as a stream of this broker."""
        if topic in self._publishers:
            self._refused.add(topic)
            self.reregistered((topic,))

    def refuse(self, ticket: int, topic: str, problem: str) -> None:
        """The coordinator refused metadata of a stream."""
        self.unregister(topic)
        waiting = self._waiting.pop(ticket, None)
        if waiting is not None:
            waiting(problem)
            return
        self.note_refused("the coordinator refused metadata of a stream", stream=topic, problem=problem)

    def note_refused(self, event: str, **facts: str) -> None:
        """What a client said to the broker was not taken. The log says so now and then."""
        self.refused += 1
        now_s, level = monotonic_s(), "debug"
        if now_s - self._said_s >= SAY_S:
            self._said_s, level = now_s, "info"
        getattr(self._log, level)(event, so_far=self.refused, **facts)

    def clear(self, ticket: int) -> None:
        """Messages that wait for changes up to this ticket may go."""
        self._cleared = max(self._cleared, ticket)
        self._tell(self.metadata.cleared(ticket))
        while self._held and self._held[0][0] <= ticket:
            self._held.popleft()[1].clear(ticket)
        self._answer()

    def release(self) -> None:
        """The broker stops: nothing waits any more."""
        while self._held:
            self.clear(self._tickets.last)


def _nothing(topics: Iterable[str] | None) -> None:
    pass


def will_id(prefix: str) -> str:
    """The record id of the will of a client whose other record ids begin so."""
    return f"{prefix}{WILL}"
