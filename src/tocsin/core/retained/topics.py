"""The retained messages that a broker knows: the newest of each topic, found by filter.

A trie over the topics' levels, so that a filter costs what it matches and not what there is. The bound is on
messages: one more than that replaces none and is refused.

Matches of a filter come in the order of the topics' levels. So a reader in parts keeps only the last topic, and goes
on behind it (``after``): a message that is there throughout comes once, whatever else comes and goes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

Kept = TypeVar("Kept")

# The cost of one retained message beside its bytes: measured (trie, look-ups, two objects), rounded up.
OVERHEAD_BYTES: Final = 1_024
SLACK: Final = (
    4  # a copy may be over its bound by this part of it: brokers that write at once know late of each other
)


class Room:
    """Bytes of retained messages: what is kept, what is on its way, of the whole network and of each user.

    A message's bytes are *reserved* from when it is taken until it is written, and *kept* once the copy has it; for a
    moment both. ``refusal`` says why one more cannot be taken. Messages that other brokers have taken, or that were
    kept under other bounds, count whether there is room or not, up to the slack (``fits``): a copy is bounded in any
    case.
    """

    def __init__(self, bytes_max: int, user_max: int) -> None:
        self.bytes_max = bytes_max
        self.user_max = user_max
        self.kept = 0
        self.reserved = 0
        self._users: dict[str, int] = {}  # kept and reserved

    def refusal(self, user: str, size: int, *, over: int = 0, own: int = 0) -> str | None:
        """Why there is no room for so many bytes of a user's, in the place of ``over``, ``own`` of them the user's."""
        if self.kept + self.reserved + size - over > self.bytes_max:
            return (
                f"the network has no room for more retained messages: {self.bytes_max} bytes "
                "(budgets.retained_bytes)"
            )
        if self._users.get(user, 0) + size - own > self.user_max:
            return (
                f"this user has no room for more retained messages: {self.user_max} bytes "
                "(budgets.user_percent of budgets.retained_bytes)"
            )
        return None

    def fits(self, size: int) -> bool:
        """Whether the copy can hold so many bytes more."""
        return self.kept + size <= self.bytes_max + self.bytes_max // SLACK

    def used(self, user: str) -> int:
        return self._users.get(user, 0)

    def reserve(self, user: str, size: int) -> None:
        """Count a message that is on its way; with a negative size, no longer."""
        self.reserved += size
        self._count(user, size)

    def keep(self, user: str, size: int) -> None:
        """Count a message that the copy has; with a negative size, no longer."""
        self.kept += size
        self._count(user, size)

    def _count(self, user: str, size: int) -> None:
        left = self._users.get(user, 0) + size
        assert left >= 0 and self.kept >= 0 and self.reserved >= 0, "nobody gives back more than it has"
        if left:
            self._users[user] = left
        else:
            self._users.pop(user, None)


class _Node(Generic[Kept]):
    """One level. It exists only while a topic at or below it is kept."""

    __slots__ = ("children", "kept", "order")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Kept]] = {}
        self.kept: Kept | None = None
        self.order: list[str] | None = None  # the children's names, sorted; made when somebody asks for all

    def child(self, name: str) -> _Node[Kept]:
        """The child of that name, made if there is none."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = _Node()
            if self.order is not None:
                insort(self.order, name)
        return found

    def drop(self, name: str) -> None:
        del self.children[name]
        if self.order is not None:
            del self.order[bisect_left(self.order, name)]

    def names(self, start: str | None = None) -> list[str]:
        """The children's names in order, from one on."""
        if self.order is None:
            self.order = sorted(self.children)
        return self.order[bisect_left(self.order, start) :] if start is not None else list(self.order)


class RetainedTopics(Generic[Kept]):
    """Finds retained messages by topic filter. Topics and filters are taken as valid."""

    def __init__(self, topics_max: int) -> None:
        self._root: _Node[Kept] = _Node()
        self._topics_max = topics_max
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether there is no room for one more topic."""
        return self._count >= self._topics_max

    def get(self, topic: str) -> Kept | None:
        node: _Node[Kept] | None = self._root
        for level in topic.split("/"):
            node = node.children.get(level) if node is not None else None
        return None if node is None else node.kept

    def put(self, topic: str, kept: Kept) -> bool:
        """Keep a topic's newest message; False if there is no room for one more topic."""
        if self.full and self.get(topic) is None:
            return False
        node = self._root
        for level in topic.split("/"):
            node = node.child(level)
        if node.kept is None:
            self._count += 1
        node.kept = kept
        return True

    def remove(self, topic: str) -> None:
        """Forget a topic; no effect if it is not kept."""
        levels = topic.split("/")
        walked = [self._root]
        for level in levels:
            node = walked[-1].children.get(level)
            if node is None:
                return
            walked.append(node)
        if walked[-1].kept is None:
            return
        walked[-1].kept = None
        self._count -= 1
        for level in reversed(levels):
            node = walked.pop()
            if node.children or node.kept is not None:
                return
            walked[-1].drop(level)

    def clear(self) -> None:
        self._root = _Node()
        self._count = 0

    def matching(self, topic_filter: str, after: str | None = None) -> Iterator[Kept]:
        """The retained messages of the topics that the filter matches, in order; with ``after``, behind that topic."""
        levels = topic_filter.split("/")
        rest = len(levels) - 1 if levels[-1] == "#" else None  # from this depth on, everything matches
        bound = None if after is None else after.split("/")
        # The rest at each depth. ``bound`` goes along only where the path so far is that of ``after``.
        stack = [iter([(self._root, bound)])]
        while stack:
            depth = len(stack) - 1
            below = rest is not None and depth >= rest
            matches, deeper = below or depth == len(levels), below or depth < len(levels)
            for node, along in stack[-1]:
                if matches and along is None and node.kept is not None:
                    yield node.kept
                if deeper and node.children:
                    stack.append(_children(node, "#" if below else levels[depth], depth, along))
                    break
            else:
                stack.pop()


def _children(
    node: _Node[Kept], name: str, depth: int, along: list[str] | None
) -> Iterator[tuple[_Node[Kept], list[str] | None]]:
    """A node's children that a level of a filter matches, in order, behind ``along``."""
    start = along[depth] if along is not None and depth < len(along) else None
    if name not in ("+", "#"):
        names = [name] if start is None or name >= start else []
    else:
        names = node.names(start)
        if not depth:
            names = [each for each in names if not each.startswith("$")]  # no leading wildcard matches "$…"
    for each in names:
        child = node.children.get(each)
        if child is not None:
            yield child, along if each == start else None
