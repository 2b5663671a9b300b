"""The metadata of the streams that are published at one broker, from three sources.

- **Clients here** say something (``declared``): it counts at once, also before a coordinator has it.
- **The coordinator** tells what all clients say (``described``). A whole description replaces all metadata, except
  unsettled local changes: those are younger.
- **A session** remembers the metadata from its client's earlier brokers (``published``). It counts until the
  coordinator has sent metadata, or had the time to: when a declaration that adds nothing is settled, and nothing
  follows a while later (``doubted``), the stream has no metadata.

Metadata stated here while no coordinator answers are **unkept** until one has them. Sessions remember that too: if this
broker crashes first, the next one on which the client publishes says it to the coordinator again (``owed``).

Every change returns the current metadata, for the clients that publish on the topic.

Invariants: keys are known of topics that are published here, and never empty; what is recalled has keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tocsin.model.stream import PERMANENT, Diff, Metadata, Value, size_of

Learned = tuple[str, Metadata]  # topic, and its current metadata


class StreamMetadata:
    """The metadata of the streams that are published at one broker."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[str, Value]] = {}
        self._published: set[str] = set()
        self._unsettled: dict[str, int] = {}  # topic → the ticket of its last local change; in order
        self._recalled: set[str] = set()  # topics of which sessions told, and the coordinator has not
        self._owed: set[str] = set()  # those of them that no coordinator was told of
        # Topic → the ticket of its last local change, with keys; in order: settled or clear as yet neither …
        self._said: dict[str, int] = {}
        self._unkept: dict[str, int] = {}  # … or clear, and not settled

    def __len__(self) -> int:
        """How many topics are published here."""
        return len(self._published)

    def of(self, topic: str) -> dict[str, Value] | None:
        return self._keys.get(topic)

    def size_with(self, topic: str, diff: Diff) -> int:
        """The bytes of a stream's metadata after this change; 0 if the change makes them no larger."""
        before = self._keys.get(topic, {})
        size = size_of(merged(before, diff))
        return size if size > size_of(before) else 0

    def says(self, topic: str, diff: Diff) -> bool:
        """Whether a change is none: all of it was told by a coordinator, or was stated here last."""
        keys = self._keys.get(topic, {})
        return (
            topic not in self._recalled
            and topic not in self._owed
            and all(
                keys.get(key) == value and type(keys.get(key)) is type(value) for key, value in diff.items()
            )
        )

    def is_kept(self, topic: str) -> bool:
        """Whether a stream's metadata came from a coordinator, or are on their way to one that answers."""
        return topic not in self._unkept and topic not in self._owed

    def published(self, topic: str, recalled: Metadata | None, *, unkept: bool = False) -> None:
        """A client here publishes on a topic, of which its session says this; ``unkept``: and no coordinator has it."""
        self._published.add(topic)
        if recalled and topic not in self._keys:
            self._keys[topic] = dict(recalled)
            self._recalled.add(topic)
            if unkept:
                self._owed.add(topic)

    def owed(self, topic: str, diff: Diff | None) -> Diff | None:
        """The declarations for a change: before it, the metadata that a session remembers and no coordinator has."""
        return diff if diff is None or topic not in self._owed else {**self._keys[topic], **diff}

    def ceased(self, topic: str) -> None:
        """Nobody here publishes on it any more."""
        self._published.discard(topic)
        self._keys.pop(topic, None)
        self._recalled.discard(topic)
        self._owed.discard(topic)

    def declared(self, topic: str, diff: Diff | None, ticket: int) -> Learned:
        """A client here changes a stream's metadata; None: forget all."""
        recalled = topic in self._recalled and not diff
        owed = topic in self._owed and bool(diff)
        learned = self._learn(topic, merged(self._keys.get(topic, {}), diff))
        self._unsettled.pop(topic, None)
        self._unsettled[topic] = ticket
        if recalled and topic in self._keys:
            self._recalled.add(topic)
        self._said.pop(topic, None)
        if diff and topic in self._keys:
            self._said[topic] = ticket
            if owed:
                self._owed.add(topic)
        return learned

    def described(self, streams: Mapping[str, Metadata], *, whole: bool) -> list[Learned]:
        """The coordinator describes these streams; with ``whole``, all others have no metadata."""
        if whole:
            self._keys = {topic: keys for topic, keys in self._keys.items() if topic in self._unsettled}
            self._recalled.intersection_update(self._keys)
            self._owed.intersection_update(self._keys)
        return [self._learn(topic, keys) for topic, keys in streams.items()]

    def cleared(self, ticket: int) -> list[Learned]:
        """Messages go on behind the changes up to this ticket: return those that no coordinator has, for sessions to
        remember.
        """
        unkept = _up_to(self._said, ticket)
        for topic, last in unkept.items():
            self._unkept.pop(topic, None)
            self._unkept[topic] = last
        self._owed.difference_update(unkept)
        return [(topic, self._keys[topic]) for topic in unkept if topic in self._keys]

    def kept(self, ticket: int) -> list[Learned]:
        """The coordinator's log has the changes up to this ticket: return those that sessions remember as unkept."""
        said, unkept = _up_to(self._said, ticket), _up_to(self._unkept, ticket)
        told = [*unkept, *(topic for topic in said if topic in self._owed and topic not in unkept)]
        self._owed.difference_update(said)
        return [(topic, self._keys.get(topic, {})) for topic in told]

    def settled(self, ticket: int) -> list[str]:
        """The coordinator's log has the changes up to this ticket: return the topics to be ``doubted`` a while
        later.
        """
        doubtful: list[str] = []
        while self._unsettled and self._unsettled[topic := next(iter(self._unsettled))] <= ticket:
            del self._unsettled[topic]
            if topic in self._recalled:
                doubtful.append(topic)
        return doubtful

    def doubted(self, topics: Iterable[str]) -> list[Learned]:
        """The coordinator knows that these are published here, and had the time to say something of them."""
        return [self._learn(topic, {}) for topic in topics if topic in self._recalled]

    def _learn(self, topic: str, keys: Metadata) -> Learned:
        self._recalled.discard(topic)
        self._owed.discard(topic)
        if keys and topic in self._published:
            self._keys[topic] = dict(keys)
        else:
            self._keys.pop(topic, None)
        return topic, keys


def merged(keys: Metadata, diff: Diff | None) -> dict[str, Value]:
    """A stream's metadata after a change; None: all are forgotten."""
    if diff is None:
        return {}
    made = {key: value for key, value in keys.items() if diff.get(key, value) is not None}
    made.update((key, value) for key, value in diff.items() if value is not None and key != PERMANENT)
    return made


def _up_to(tickets: dict[str, int], ticket: int) -> dict[str, int]:
    """Take out the topics whose tickets are not beyond this ticket; they are in order."""
    taken: dict[str, int] = {}
    while tickets and tickets[topic := next(iter(tickets))] <= ticket:
        taken[topic] = tickets.pop(topic)
    return taken
