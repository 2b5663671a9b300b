"""The publish gate: one client's messages, in order, and none before the network knows its stream.

A client's first message on a topic makes that a **stream** of the client's. A stream's metadata
(``core.streams.metadata``) may change with any message, or between two. Both are *declared* to the coordinator, and
messages after a declaration wait until it is **clear**: until every broker concerned has heard of it. So a subscriber
hears that a stream joined before it gets its first message.

Everything waits in one line. A new stream is declared at once, wherever its message stands in the line, so that a burst
of first messages costs one round trip. A change of a stream that may have messages before it is declared when it comes
to the head of the line and all messages before it are durable, so that a subscriber hears that the stream left after
its last message.

Declarations have **tickets**, which grow over all clients of a broker. This is a structure and no machine: its methods
give what to do now, in order, as ``Declare`` and ``Go``.

Invariants: what ``Go`` gives is in the order in which it was taken; ``ready`` is empty while anything waits; never more
than ``streams_max`` topics.

Costs: a message of a known stream while nothing waits costs the shell one look-up in ``ready``; any other a few steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from typing import Final, Generic, TypeVar

import msgspec

from tocsin.model.stream import Diff

HELD_MAX: Final = 1_000  # messages that wait before the client is read no more
HELD_MAX_BYTES: Final = 1 << 20  # of them

Item = TypeVar("Item")

_CLOSED: Final[Set[str]] = frozenset()


class Declare(msgspec.Struct, frozen=True):
    """Say something of a stream to the coordinator, under this ticket."""

    ticket: int
    topic: str
    diff: Diff | None
    publishes: bool  # the client publishes on it; else it only says something of it
    note: object = None  # whatever came with it


class Go(msgspec.Struct, Generic[Item], frozen=True):
    """Pass these on, in order."""

    items: list[Item]


Action = Declare | Go[Item]


class _Held(Generic[Item]):
    """One message or declaration that waits."""

    __slots__ = ("change", "commits", "item", "last", "size", "ticket")

    def __init__(self, item: Item | None, size: int, commits: bool) -> None:
        self.item = item  # None: a change without a message
        self.size = size
        self.commits = commits  # it is made durable, and ``settled`` follows
        self.last = False  # goes only when everything before it is durable
        self.change: tuple[str, Diff | None, bool, object] | None = (
            None  # to be declared then, before it goes
        )
        self.ticket = 0  # to be clear before it goes


class PublishGate(Generic[Item]):
    """Holds one client's messages until the network knows their streams."""

    __slots__ = (
        "_cleared",
        "_held",
        "_next_ticket",
        "_size",
        "_streams_max",
        "_under_way",
        "ready",
        "topics",
    )

    def __init__(self, streams_max: int, next_ticket: Callable[[], int]) -> None:
        self.topics: set[str] = set()  # the client's streams
        self.ready: Set[str] = self.topics  # those of them whose messages need not wait
        self._streams_max = streams_max
        self._next_ticket = next_ticket
        self._held: deque[_Held[Item]] = deque()
        self._size = 0  # of those, in bytes
        self._under_way = 0  # messages that went, and are being made durable
        self._cleared = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._held)

    @property
    def full(self) -> bool:
        """Whether the client should not be read for now."""
        return len(self._held) >= HELD_MAX or self._size >= HELD_MAX_BYTES

    @property
    def room(self) -> bool:
        """Whether the client may have one stream more."""
        return len(self.topics) < self._streams_max

    # ── what the client does ────────────────────────────────────────────────────────────────────────────────

    def take(
        self, item: Item, *, topic: str | None, diff: Diff | None = None, size: int, commits: bool
    ) -> list[Action[Item]]:
        """A message; with a topic, it is one of that stream, which is the client's from now on if it was not.

        The caller has seen to it that there is ``room``. ``diff`` is what the message says of its stream.
        """
        held = _Held(item, size, commits)
        declared: list[Action[Item]] = []
        if topic is not None and (topic not in self.topics or diff):
            declared = self._declare(held, topic, diff or {}, publishes=True)
            self.topics.add(topic)
        return self._enter(held) or declared

    def describe(self, topic: str, diff: Diff | None, note: object) -> list[Action[Item]]:
        """The client changes a stream's metadata, even if others publish on it; None: forget them."""
        held: _Held[Item] = _Held(None, 0, False)
        declared = self._declare(held, topic, diff, publishes=False, note=note)
        return self._enter(held) or declared

    def end(self, item: Item) -> list[Action[Item]]:
        """The client's connection is over: this comes when everything before it is durable."""
        held = _Held(item, 0, False)
        held.last = True
        return self._enter(held)

    def sent(self) -> None:
        """A message of a stream in ``ready`` went to be made durable."""
        self._under_way += 1

    # ── what the shell says ─────────────────────────────────────────────────────────────────────────────────

    def settled(self) -> list[Action[Item]]:
        """One of the messages that were to be made durable is, or cannot be."""
        self._under_way -= 1
        return self._advance() if self._held else []

    def clear(self, ticket: int) -> list[Action[Item]]:
        """Every broker concerned knows the declarations up to this ticket."""
        self._cleared = max(self._cleared, ticket)
        return self._advance()

    # ── the line ────────────────────────────────────────────────────────────────────────────────────────────

    def _declare(
        self,
        held: _Held[Item],
        topic: str,
        diff: Diff | None,
        *,
        publishes: bool,
        note: object = None,
    ) -> list[Action[Item]]:
        """Declare at once what has no message before it; leave the rest to the line."""
        if topic in self.topics and (self._held or self._under_way):
            held.change = (topic, diff, publishes, note)
            return []
        held.ticket = self._next_ticket()
        self._push(held)
        return [Declare(held.ticket, topic, diff, publishes, note)]

    def _push(self, held: _Held[Item]) -> None:
        self._held.append(held)
        self._size += held.size
        self.ready = _CLOSED

    def _enter(self, held: _Held[Item]) -> list[Action[Item]]:
        if held.ticket:
            return []  # it stands in the line already
        self._push(held)
        return self._advance() if len(self._held) == 1 else []

    def _advance(self) -> list[Action[Item]]:
        gone: list[Item] = []
        declared: list[Action[Item]] = []
        while self._held:
            head = self._held[0]
            if self._under_way and (head.last or head.change is not None):
                break
            if head.change is not None:
                head.ticket = self._next_ticket()
                declared = [Declare(head.ticket, *head.change)]
                head.change = None
            if head.ticket > self._cleared:
                break
            self._held.popleft()
            self._size -= head.size
            self._under_way += head.commits
            if head.item is not None:
                gone.append(head.item)
        if not self._held:
            self.ready = self.topics
        went: list[Action[Item]] = [Go(gone)] if gone else []
        return [*went, *declared]
