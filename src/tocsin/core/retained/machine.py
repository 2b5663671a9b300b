"""One broker's copy of the network's retained messages: which version of each it has, and when it is complete.

Transitions of ``RetainedCopy``:

    *  MessageSeen, MessageWritten, MessageRemoved, MessageFetched, OwnSaid
       Watched → complete

The copy hears of a message in three ways, in any order: from the log, which brings it as it is committed
(``MessageSeen``); from a write of this broker's own (``MessageWritten``, ``MessageRemoved``); and from the watch of the
table, which may lag behind both (``Watched``). A new subscriber gets all later messages and must not miss an earlier
one, so the copy believes the log at once. Each message has its position in the log, or that of its time: the later
one stays. The copy remembers nothing of a removed message.

When the watch restarts, the old copy stays until the new one is complete; messages that the watch has not named again
by then go. The copy is complete for good once the watch has told everything.

A message that the copy has no room for is **missing**, and so is what it was to replace: an old one in its place would
be wrong. Messages of the broker itself (``$SYS``) are in the copy and in no table, and count against no budget.

The copy knows every message, and has the payloads of some: beyond ``held_max`` bytes it lets go of those that came
first, and keeps a **stub** of each. Who wants such a message fetches it from the table, and tells the copy
(``MessageFetched``). Only what the table has is let go of. A message that was fetched counts as one that came now.

Invariants: of two versions of a message the copy never goes back to the one with the smaller position, unless the table
has forgotten the other; ``room.kept`` is the sum of what the copy has from the table; a key of the table is in the copy
if the copy has its topic from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import ClassVar

from tocsin.core.budgets.budget import weight_of_publication
from tocsin.core.machine import Effect, Event, Say, Table, TableMachine, Watched
from tocsin.core.retained.kept import KEPT, Kept, stub_of
from tocsin.core.retained.topics import RetainedTopics, Room
from tocsin.model.subjects import tokens_of
from tocsin.model.versions import UNREADABLE


class MessageSeen(Event, frozen=True, kw_only=True):
    """The log has brought a message that is to be retained, or (no payload) that removes one."""

    kept: Kept


class MessageWritten(Event, frozen=True, kw_only=True):
    """This broker has written a message, with this revision."""

    kept: Kept
    revision: int


class MessageRemoved(Event, frozen=True, kw_only=True):
    """This broker has removed what was retained of a topic."""

    topic: str


class MessageFetched(Event, frozen=True, kw_only=True):
    """The table was asked for a message, and has this."""

    kept: Kept
    revision: int


class OwnSaid(Event, frozen=True, kw_only=True):
    """A message of the broker itself, for its copy and for no table."""

    kept: Kept


class CopyComplete(Effect, frozen=True, kw_only=True):
    """The copy is complete; waiting subscribers go on."""


class RetainedLate(Effect, frozen=True, kw_only=True):
    """The table has a message of the log, from QoS 1 on, that the log has not brought here."""

    kept: Kept


class CopyState(StrEnum):
    """Whether the watch has told everything once."""

    ARRIVING = "arriving"
    COMPLETE = "complete"


class RetainedCopy(TableMachine):
    """The retained messages that one broker has."""

    state: CopyState = CopyState.ARRIVING

    def __init__(self, topics_max: int, bytes_max: int, user_max: int, held_max: int = 1 << 40) -> None:
        self.held = 0  # bytes of the messages that the copy could let go of
        self.room = Room(bytes_max, user_max)
        self.missing = 0  # messages of the network that the copy has no room for
        self._topics: RetainedTopics[Kept] = RetainedTopics(topics_max)
        # The table's key → topic, and of what the table has the revision and the position.
        self._by_key: dict[str, tuple[str, int, int]] = {}
        self._own: dict[str, Kept] = {}  # what is not in the table, by topic
        self._held_max = held_max
        self._held: dict[str, int] = {}  # … by topic, the one that came first in front
        self._stale: set[str] = set()  # keys that the restarted watch has not named again

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._topics) - len(self._own)

    def get(self, topic: str) -> Kept | None:
        return self._topics.get(topic)

    @property
    def full(self) -> bool:
        return self._topics.full

    @property
    def count(self) -> int:
        """Messages, with the broker's own."""
        return len(self._topics)

    def stored(self, topic: str) -> tuple[int, int]:
        """The revision and the position that the table has of a topic; zeros: nothing, as far as is known."""
        _, revision, position = self._by_key.get(tokens_of(topic), ("", 0, 0))
        return revision, position

    def position(self, topic: str) -> int:
        """The position of a topic's retained message; 0 if there is none."""
        kept = self._topics.get(topic)
        return max(0 if kept is None else kept.position, self.stored(topic)[1])

    def matching(self, topic_filter: str, after: str | None = None) -> Iterator[Kept]:
        """The retained messages whose topics match a filter, in order, behind one topic; expired ones too."""
        return self._topics.matching(topic_filter, after)

    def of(self, topics: Sequence[str], after: str | None) -> Iterator[Kept]:
        """The same of these topics, which are sorted."""
        for i in range(0 if after is None else bisect_right(topics, after), len(topics)):
            kept = self._topics.get(topics[i])
            if kept is not None:
                yield kept

    # ── what is heard ───────────────────────────────────────────────────────────────────────────────────────

    def _on_seen(self, event: MessageSeen, now_us: int) -> list[Effect]:
        kept, topic = event.kept, event.kept.publication.topic
        current, key = self._topics.get(topic), tokens_of(topic)
        if current is not None and current.position >= kept.position:
            return []
        if not kept.publication.payload:
            self._forget(key)
            return []
        holds, effects = self._hold(kept)
        if holds:  # the broker that took it has written it to the table
            self._by_key.setdefault(key, (topic, 0, 0))
            self._stale.discard(key)
        return effects

    def _on_written(self, event: MessageWritten, now_us: int) -> list[Effect]:
        return self._keep(tokens_of(event.kept.publication.topic), event.kept, event.revision)

    def _on_removed(self, event: MessageRemoved, now_us: int) -> list[Effect]:
        self._forget(tokens_of(event.topic))
        return []

    def _on_fetched(self, event: MessageFetched, now_us: int) -> list[Effect]:
        topic = event.kept.publication.topic
        key = tokens_of(topic)
        if self._topics.get(topic) is None:
            return []  # it was removed meanwhile
        stale = key in self._stale
        effects = self._keep(key, event.kept, event.revision)
        if stale:
            self._stale.add(key)  # a restarted watch has to name it all the same
        return effects

    def _on_own(self, event: OwnSaid, now_us: int) -> list[Effect]:
        topic = event.kept.publication.topic
        if not event.kept.publication.payload:
            if self._own.pop(topic, None) is not None:
                self._topics.remove(topic)
            return []
        self._own[topic] = event.kept
        self._topics.put(topic, event.kept)
        return []

    def _on_watched(self, event: Watched, now_us: int) -> list[Effect]:
        change = event.change
        match change.kind:
            case "reset":
                self._stale = set(self._by_key)
                self.missing = 0
            case "put":
                try:
                    return self._keep(change.key, KEPT.read(change.value), change.revision)
                except UNREADABLE as error:  # it stays in the table
                    if change.revision >= self._by_key.get(change.key, ("", 0, 0))[1]:
                        self._forget(change.key)  # an old one in its place would be wrong
                    facts = {"key": change.key, "problem": str(error)}
                    return [Say(text="a retained message is unreadable", level="error", facts=facts)]
            case "delete":
                self._forget(change.key)
            case "ready":
                return self._complete()
        return []

    def _complete(self) -> list[Effect]:
        for key in self._stale:
            self._forget(key)
        self._stale = set()
        self.state = CopyState.COMPLETE
        known = Say(text="retained messages are known", level="debug", facts={"messages": len(self._topics)})
        return [known, CopyComplete()]

    # ── the copy ────────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self, key: str, kept: Kept, revision: int) -> list[Effect]:
        """The table has this."""
        topic = kept.publication.topic
        self._stale.discard(key)
        if revision < self._by_key.get(key, ("", 0, 0))[1]:
            return []  # the watch is behind what we wrote ourselves
        current = self._topics.get(topic)
        if current is not None and current.position > kept.position:
            self._by_key[key] = (topic, revision, kept.position)  # the table is behind the log
            return []
        news = current is None or current.position < kept.position
        holds, effects = self._hold(kept)
        if holds:
            self._by_key[key] = (topic, revision, kept.position)
            self._hold_payload(topic, kept)
        if holds and news and kept.publication.qos and self.state is CopyState.COMPLETE:
            return [*effects, RetainedLate(kept=kept)]
        return effects

    def _forget(self, key: str) -> None:
        topic, *_ = self._by_key.pop(key, ("", 0, 0))
        if topic:
            self._let_go(topic)
            self._topics.remove(topic)

    def _hold(self, kept: Kept) -> tuple[bool, list[Effect]]:
        """Have a message in the copy, in the place of the one that was there; False if the copy has no room for it."""
        topic = kept.publication.topic
        before = self._topics.get(topic)
        grown = kept.size - (0 if before is None else before.size)
        fits = (grown <= 0 or self.room.fits(grown)) and (before is not None or not self._topics.full)
        said = [] if fits else self._miss(topic)
        self._let_go(topic)
        if not fits:
            self._topics.remove(topic)  # an old one in its place would be wrong
            return False, said
        self.room.keep(kept.user, kept.size)
        return self._topics.put(topic, kept), []

    def _hold_payload(self, topic: str, kept: Kept) -> None:
        """A message came that is in the table: let go of others, if the copy has too many."""
        self._held[topic] = size = weight_of_publication(kept.publication)
        self.held += size
        while self.held > self._held_max and len(self._held) > 1:
            first = next(iter(self._held))
            self.held -= self._held.pop(first)
            if (there := self._topics.get(first)) is not None:
                self._topics.put(first, stub_of(there))

    def _miss(self, topic: str) -> list[Effect]:
        self.missing += 1
        if self.missing > 1:
            return []
        facts = {
            "stream": topic,
            "bytes": self.room.kept,
            "remedy": "raise budgets.retained_bytes, or remove some: tocsin retained remove FILTER",
        }
        return [Say(text="this broker has no room for all retained messages", level="error", facts=facts)]

    def _let_go(self, topic: str) -> None:
        self.held -= self._held.pop(topic, 0)
        before = self._topics.get(topic)
        if before is not None and topic not in self._own:
            self.room.keep(before.user, -before.size)

    table: ClassVar[Table] = {
        ("*", MessageSeen): _on_seen,
        ("*", MessageWritten): _on_written,
        ("*", MessageRemoved): _on_removed,
        ("*", MessageFetched): _on_fetched,
        ("*", OwnSaid): _on_own,
        ("*", Watched): _on_watched,
    }
