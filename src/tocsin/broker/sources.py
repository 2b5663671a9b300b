"""The clients of a broker that publish, as the coordinator hears of them: their streams, and their coming and going.

Every change has a ticket (``core.coordination.signals``): messages behind it wait until it is clear (``core.gate``),
and whoever asked for it is answered when it is settled and clear: it is kept, and in force everywhere.

What clients say of the streams that are published here is known (``keys``), so that messages can carry it; which of
those who say something is right is the affair of ``core.sayings``.

A client's connections have **epochs**, microseconds of the wall's clock, so that the coordinator knows which of two
brokers has it. They grow by two at least: the number between two connections is for the end of what came before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import structlog
from mqtt5 import Will

from tocsin.core.coordination.signals import ClientsChanged
from tocsin.core.gate import Declare
from tocsin.core.sayings import Learned, Sayings
from tocsin.core.will import will_message
from tocsin.model.publication import Publication
from tocsin.model.stream import Diff, Metadata, Value, size_of, size_problem
from tocsin.runtime.pump import wall_us
from tocsin.wire.commands import ClientAway, ClientBack, ClientGone, Streams
from tocsin.wire.replication import Bequest

TOLD_S: Final = 2.0  # for what the coordinator says of a stream to come, and to be applied
UNSETTLED_MAX: Final = 100_000  # changes that wait for a coordinator; beyond it no new stream is registered
UNSETTLED_MAX_BYTES: Final = 64 << 20  # of those
_CHANGE_BYTES: Final = 600  # of one, beside its texts, here and on its way

Done = Callable[[str | None], None]  # told None, or what the problem is
Command = Streams | ClientAway | ClientBack | ClientGone


class Held(Protocol):
    """A client whose messages may have to wait."""

    def __len__(self) -> int:
        """How many do."""
        ...

    def clear(self, ticket: int) -> None: ...

    def learned(self, topic: str, keys: Metadata) -> None:
        """This is said now of a stream that it publishes on."""
        ...


class Client(Protocol):
    """A connection, as it is seen from here."""

    @property
    def client_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def expiry_s(self) -> int: ...

    @property
    def user(self) -> str: ...


class Sources:
    """See the module's text. ``post`` hands an event to the participant, ``newest`` is the last position of the message
    log that was committed here."""

    def __init__(
        self,
        post: Callable[[ClientsChanged], None],
        newest: Callable[[], int],
        *,
        broker: str,
        cluster: str,
        streams_max: int,
        metadata_max_bytes: int,
    ) -> None:
        self.broker = broker
        self.cluster = cluster
        self.streams_max = streams_max  # of one client
        self._metadata_max_bytes = metadata_max_bytes  # of one stream
        self.unregistered = 0  # messages whose topic was one stream too many
        self.refused = 0  # descriptions that could not be taken
        self._post = post
        self._newest = newest
        self._sayings = Sayings()
        self._publishers: dict[str, dict[Held, None]] = {}  # topic → who publishes on it here
        self._tickets = 0
        self._settled = 0
        self._unsettled: deque[tuple[int, int]] = (
            deque()
        )  # tickets of declarations that are not, with their bytes
        self._unsettled_bytes = 0
        self._cleared = 0
        self._waiting: dict[int, Done] = {}  # by ticket, the lowest first
        self._held: deque[tuple[int, Held]] = deque()  # who waits for which ticket
        self._epoch = 0
        self._epochs: dict[str, int] = {}  # client → the epoch of its connection here
        self._log = structlog.get_logger()

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> bool:
        """Whether one change more may wait for a coordinator."""
        few = self._tickets - self._settled < UNSETTLED_MAX
        return few and self._unsettled_bytes < UNSETTLED_MAX_BYTES

    def keys(self, topic: str) -> dict[str, Value] | None:
        """What clients say of a stream that is published here."""
        return self._sayings.of(topic)

    def too_large(self, topic: str, diff: Diff | None) -> str | None:
        """Why a change of what is said of a stream is refused here: the coordinator would refuse it as well. Of a
        stream that is not published here only the change itself is known."""
        if not diff:
            return None
        size = self._sayings.size_with(topic, diff)
        return size_problem(size, self._metadata_max_bytes) if size > self._metadata_max_bytes else None

    def bequest(self, will: Will, client: str, prefix: str, session: str, epoch: int, owner: str) -> Bequest:
        """A will, with what is said of its stream; ``prefix``: of the client's record ids; its stored session; and the
        user who left it."""
        publication = Publication.of(
            will_message(will),
            will.topic,
            client,
            broker=self.broker,
            cluster=self.cluster,
            keys=self.keys(will.topic),
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
        self._epoch = self._epochs[client] = max(self._epoch + 2, wall_us())
        return self._epoch

    def back(self, client: Client) -> None:
        """Its session was resumed."""
        self._say(self.ticket(), ClientBack(client.client_id, client.expiry_s, client.epoch))

    def went(self, client: str, epoch: int) -> None:
        """A connection is over."""
        if self._epochs.get(client) == epoch:
            del self._epochs[client]

    def ended(self, client: Client, held: Held, topics: set[str], expiry_s: int) -> None:
        """A connection of which the coordinator knows is over, and all that it published is in the log."""
        for topic in topics:
            self._publishers[topic].pop(held, None)
            if not self._publishers[topic]:
                del self._publishers[topic]
                self._sayings.ceased(topic)
        name, epoch, after = client.client_id, client.epoch, self._newest()
        gone = ClientAway(name, expiry_s, after, epoch) if expiry_s else ClientGone(name, after, epoch)
        self._say(self.ticket(), gone)

    def session_over(self, client: str) -> None:
        """A session that was stored is forgotten, because its client has begun anew."""
        epoch = self._epochs.get(client, self._epoch + 2) - 1
        if self.room:
            self._say(self.ticket(), ClientGone(client, 0, epoch))

    # ── streams ─────────────────────────────────────────────────────────────────────────────────────────────

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def declare(self, client: Client, held: Held, declared: Declare) -> None:
        """Say something of a stream; its ``note`` is told when that is done."""
        topic, diff = declared.topic, declared.diff
        if callable(declared.note):
            self._waiting[declared.ticket] = declared.note
        size = _CHANGE_BYTES + len(topic) + size_of(diff or {})
        self._unsettled.append((declared.ticket, size))
        self._unsettled_bytes += size
        self._tell([self._sayings.declared(topic, diff, declared.ticket)])
        self._held.append((declared.ticket, held))
        name = client.client_id if declared.publishes else ""
        changes = ((topic, None if diff is None else dict(diff)),)
        self._say(
            declared.ticket,
            Streams(
                name,
                client.expiry_s,
                changes,
                self._newest(),
                client.epoch if name else 0,
                client.user,
            ),
        )

    def _tell(self, learned: Iterable[Learned]) -> None:
        """Those who publish on these topics what is said of them now."""
        for topic, keys in learned:
            for held in self._publishers.get(topic, ()):
                held.learned(topic, keys)

    def publishes(self, topic: str, held: Held, recalled: Metadata | None) -> None:
        """One connection more publishes on a topic, of which its session says this."""
        self._publishers.setdefault(topic, {})[held] = None
        self._sayings.published(topic, recalled)

    def _say(self, ticket: int, command: Command) -> None:
        cause = f"{self.broker}:s{ticket}"
        self._post(ClientsChanged(ticket=ticket, command=command, cause=cause))

    # ── what the participant tells ──────────────────────────────────────────────────────────────────────────

    def described(self, streams: Mapping[str, Metadata], *, whole: bool) -> None:
        self._tell(self._sayings.described(streams, whole=whole))

    def settle(self, ticket: int) -> None:
        """Everything up to this ticket is in the coordinator's log."""
        self._settled = max(self._settled, ticket)
        while self._unsettled and self._unsettled[0][0] <= ticket:
            self._unsettled_bytes -= self._unsettled.popleft()[1]
        doubtful = self._sayings.settled(ticket)
        if doubtful:
            asyncio.get_running_loop().call_later(TOLD_S, self._doubt, doubtful)
        self._answer()

    def _doubt(self, topics: list[str]) -> None:
        self._tell(self._sayings.doubted(topics))

    def _answer(self) -> None:
        done = min(self._settled, self._cleared)
        while self._waiting and (first := next(iter(self._waiting))) <= done:
            self._waiting.pop(first)(None)

    def refuse(self, ticket: int, topic: str, problem: str) -> None:
        """The coordinator did not take what was said of a stream."""
        waiting = self._waiting.pop(ticket, None)
        if waiting is not None:
            waiting(problem)
            return
        self.refused += 1
        self._log.warning("what was said of a stream was not taken", stream=topic, problem=problem)

    def clear(self, ticket: int) -> None:
        """Messages that wait for changes up to this ticket may go."""
        self._cleared = max(self._cleared, ticket)
        while self._held and self._held[0][0] <= ticket:
            self._held.popleft()[1].clear(ticket)
        self._answer()

    def release(self) -> None:
        """The broker stops: nothing waits any more."""
        while self._held:
            self.clear(self._tickets)


def will_id(prefix: str) -> str:
    """The record id of the will of a client whose other record ids begin so."""
    return f"{prefix}.will"
