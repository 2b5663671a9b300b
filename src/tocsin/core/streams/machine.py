"""One client's publishing: its streams, and which of its messages go on, which wait and which are refused.

    serving  --ClientLeft-->  leaving

Transitions of ``ClientStreams``:

    serving  SessionResumed, MessageTaken, MetadataTaken
             ClientLeft → leaving
    *        WillTaken, MessageSettled, Cleared

A message goes on when every broker concerned knows its stream. ``core.streams.publish_gate`` keeps what waits
in order; this machine decides what enters it:

- A topic becomes a **stream** of the client's with its first message, if the client may have one more and the changes
  that wait for a coordinator are not too many (``ChangeNumbers``). If it may not, the message goes on without
  one: no query finds it. If the message says something of its stream, it is refused instead.
- **Metadata** that is wrong or too large is refused before anything is kept (``read``, ``read_metadata``). A client may
  describe as many topics as it may have streams, even if others publish on them; withdrawing everything is always
  allowed.
- A **will** makes no stream, and keeps its place behind what came before it.
- While too much waits, the client is not read (``HoldClient``).
- When the client has left and all that it published is durable, the coordinator is told (``TellGone``).

The hot path is exempt. The shell looks for each message's topic in ``gate.ready``: what is there is a known stream
while nothing waits, and its messages need no event. For durable messages the shell confirms that with ``gate.sent``.

Invariants: what ``PassOn`` gives is in the order in which it was taken; every item is given back once, by ``PassOn``,
``DeclareStream`` or ``RefuseItem``; ``_described`` has none of the client's streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

from tocsin.core.machine import Effect, Table, TableMachine
from tocsin.core.streams.metadata import StreamMetadata
from tocsin.core.streams.metadata_payload import DescriptionInvalid, read_payload, read_properties
from tocsin.core.streams.publish_gate import Action, Declare, PublishGate
from tocsin.core.streams.signals import (
    Cleared,
    ClientLeft,
    CountUnregistered,
    DeclareStream,
    HoldClient,
    MessageSettled,
    MessageTaken,
    MetadataTaken,
    PassOn,
    RefuseItem,
    Register,
    SessionResumed,
    TellBack,
    TellGone,
    WillTaken,
)
from tocsin.model.stream import Diff, size_of, size_problem

UNSETTLED_MAX: Final = 100_000  # changes that wait for a coordinator before no stream is made any more
UNSETTLED_MAX_BYTES: Final = 64 << 20  # of those
CHANGE_BYTES: Final = 600  # of one, beside its texts, here and on its way
QUOTA_EXCEEDED: Final = 0x97
OVERHEAD_BYTES: Final = 200  # of a message that waits, beside its payload

_END: Final = object()  # in the gate: the client has left


class ChangeNumbers:
    """The numbers of what a broker tells the coordinator of its clients, and a bound on what waits for it.

    ChangeNumbers grow over all clients of a broker. A change is **settled** when it is in the coordinator's log. While
    no coordinator answers nothing is, so that the changes that wait are bounded, by number and by bytes.

    Invariants: tickets are given once, each larger than the one before; ``_bytes`` is the sum over ``_unsettled``.
    """

    __slots__ = ("_bytes", "_unsettled", "last", "settled")

    def __init__(self) -> None:
        self.last = 0
        self.settled = 0
        # Numbers of declarations that are not, with their bytes.
        self._unsettled: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def next(self) -> int:
        self.last += 1
        return self.last

    @property
    def room(self) -> bool:
        """Whether one change more may wait for a coordinator."""
        return self.last - self.settled < UNSETTLED_MAX and self._bytes < UNSETTLED_MAX_BYTES

    def declared(self, ticket: int, topic: str, diff: Diff | None) -> None:
        """A stream's metadata are changed under this ticket."""
        size = CHANGE_BYTES + len(topic) + size_of(diff or {})
        self._unsettled.append((ticket, size))
        self._bytes += size

    def settle(self, ticket: int) -> None:
        """Everything up to this ticket is in the coordinator's log."""
        self.settled = max(self.settled, ticket)
        while self._unsettled and self._unsettled[0][0] <= ticket:
            self._bytes -= self._unsettled.popleft()[1]


class MetadataTooLarge(DescriptionInvalid):
    """With this, more would be said of a stream than may be."""

    reason_code = QUOTA_EXCEEDED


class StreamsState(StrEnum):
    """Whether the client is there."""

    SERVING = "serving"
    LEAVING = "leaving"


class ClientStreams(TableMachine):
    """Decides what becomes of what one client publishes.

    ``metadata`` and ``tickets`` are the broker's, for all its clients; the bounds are those of one client's streams,
    and of one stream's metadata.
    """

    state: StreamsState = StreamsState.SERVING

    def __init__(
        self, metadata: StreamMetadata, tickets: ChangeNumbers, *, streams_max: int, metadata_max_bytes: int
    ) -> None:
        self._metadata = metadata
        self._tickets = tickets
        self._streams_max = streams_max
        self._metadata_max_bytes = metadata_max_bytes
        self.gate: PublishGate[Any] = PublishGate(streams_max, tickets.next)
        self._described: set[int] = set()  # hashes of topics that the client only says something of
        self._stated: dict[str, Diff] = {}  # what messages said last, by topic
        self._known = False  # the coordinator was told of the client
        self._held_back = False  # the shell was told not to read the client

    def __len__(self) -> int:
        """How many messages and changes wait."""
        return len(self.gate)

    # ── for the shell to look at ────────────────────────────────────────────────────────────────────────────

    def read(self, topic: str, properties: Sequence[tuple[str, str]]) -> Diff | None:
        """A message's change of its stream's metadata; None: no change. Raises ``DescriptionInvalid``."""
        diff = self._checked(topic, read_properties(properties))
        if not diff:
            return diff
        again, self._stated[topic] = self._stated.get(topic) == diff, diff
        if len(self._stated) > self._streams_max:
            self._stated.clear()
        if again and topic in self.gate.topics and (len(self.gate) or self._metadata.says(topic, diff)):
            return None  # many clients state the same with each message; what waits before it has it already
        return diff

    def read_metadata(self, topic: str, payload: bytes) -> Diff | None:
        """A change of metadata without a message; None: forget all. Raises ``DescriptionInvalid``."""
        self._stated.pop(topic, None)
        return self._checked(topic, read_payload(payload))

    def _checked(self, topic: str, diff: Diff | None) -> Diff | None:
        """The coordinator would refuse what is too large as well. For a stream without a local publisher only the
        change itself is known.
        """
        if diff:
            size = self._metadata.size_with(topic, diff)
            if size > self._metadata_max_bytes:
                raise MetadataTooLarge(size_problem(size, self._metadata_max_bytes))
        return diff

    # ── what the client does ────────────────────────────────────────────────────────────────────────────────

    def _resume(self, event: SessionResumed, now_us: int) -> list[Effect]:
        if not self._tickets.room:
            return []
        self._known = True
        return [TellBack()]

    def _take(self, event: MessageTaken, now_us: int) -> list[Effect]:
        stream: str | None = event.topic
        before: list[Effect] = []
        if event.topic not in self.gate.topics:
            if self.gate.room and self._tickets.room:
                self._known = True
                self._described.discard(hash(event.topic))
                before = [Register(topic=event.topic)]
            elif event.diff is not None:
                problem = f"{event.topic} is one stream too many to be described"
                return [_refusal(event, problem)]
            else:
                before = [CountUnregistered()]
                stream = None
        size = event.size + OVERHEAD_BYTES
        actions = self.gate.take(event.item, topic=stream, diff=event.diff, size=size, commits=event.commits)
        return [*before, *self._do(actions)]

    def _describe(self, event: MetadataTaken, now_us: int) -> list[Effect]:
        if not self._may_describe(event.topic, event.diff):
            return [_refusal(event, f"a client may describe {self._streams_max} streams")]
        if not self._tickets.room:
            return [_refusal(event, "no coordinator answers, and too much waits for one already")]
        return self._do(self.gate.describe(event.topic, event.diff, event.item))

    def _may_describe(self, topic: str, diff: Diff | None) -> bool:
        if topic in self.gate.topics or not diff:
            return True
        if hash(topic) not in self._described:
            if len(self.gate.topics) + len(self._described) >= self._streams_max:
                return False
            self._described.add(hash(topic))
        return True

    def _bequeath(self, event: WillTaken, now_us: int) -> list[Effect]:
        return self._do(self.gate.take(event.item, topic=None, size=event.size, commits=False))

    def _leave(self, event: ClientLeft, now_us: int) -> list[Effect]:
        self.state = StreamsState.LEAVING
        return self._do(self.gate.end(_END))

    # ── what the shell says ─────────────────────────────────────────────────────────────────────────────────

    def _settle(self, event: MessageSettled, now_us: int) -> list[Effect]:
        return self._do(self.gate.settled())

    def _clear(self, event: Cleared, now_us: int) -> list[Effect]:
        return self._do(self.gate.clear(event.ticket))

    def _do(self, actions: list[Action[Any]]) -> list[Effect]:
        """The gate's actions as effects, and whether the client is to be read."""
        effects: list[Effect] = []
        for action in actions:
            if isinstance(action, Declare):
                effects.append(
                    DeclareStream(
                        ticket=action.ticket,
                        topic=action.topic,
                        diff=action.diff,
                        publishes=action.publishes,
                        item=action.note,
                    )
                )
                continue
            items = [item for item in action.items if item is not _END]
            if items:
                effects.append(PassOn(items=items))
            if len(items) < len(action.items) and self._known:
                effects.append(TellGone(topics=frozenset(self.gate.topics)))
        if self.gate.full != self._held_back:
            self._held_back = self.gate.full
            effects.append(HoldClient(waits=self._held_back))
        return effects

    table: ClassVar[Table] = {
        (StreamsState.SERVING, SessionResumed): _resume,
        (StreamsState.SERVING, MessageTaken): _take,
        (StreamsState.SERVING, MetadataTaken): _describe,
        (StreamsState.SERVING, ClientLeft): _leave,
        ("*", WillTaken): _bequeath,
        ("*", MessageSettled): _settle,
        ("*", Cleared): _clear,
    }


def _refusal(event: MessageTaken | MetadataTaken, problem: str) -> RefuseItem:
    return RefuseItem(item=event.item, reason_code=QUOTA_EXCEEDED, problem=problem)
