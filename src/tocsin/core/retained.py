"""The retained messages that a broker knows: the newest of each topic, found by filter.

A trie over the topics' levels, so that a filter costs what it matches and not what there is. The bound is on
messages: one more than that replaces none and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class _Node(Generic[Kept]):
    """One level. It exists only while a topic at or below it is kept."""

    __slots__ = ("children", "kept")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Kept]] = {}
        self.kept: Kept | None = None


class RetainedTopics(Generic[Kept]):
    """See the module's text. Topics and filters are taken as valid."""

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
            node = node.children.setdefault(level, _Node())
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
            del walked[-1].children[level]

    def clear(self) -> None:
        self._root = _Node()
        self._count = 0

    def matching(self, topic_filter: str) -> Iterator[Kept]:
        """What is kept of the topics that the filter matches."""
        levels = topic_filter.split("/")
        stack: list[tuple[_Node[Kept], int]] = [(self._root, 0)]
        while stack:
            node, depth = stack.pop()
            if depth == len(levels):
                if node.kept is not None:
                    yield node.kept
                continue
            level = levels[depth]
            if level == "#":
                yield from self._below(node, skip_server=depth == 0)
            elif level == "+":
                stack.extend(
                    (child, depth + 1)
                    for name, child in node.children.items()
                    if depth or not name.startswith("$")  # a leading wildcard does not match "$…"
                )
            elif (child := node.children.get(level)) is not None:
                stack.append((child, depth + 1))

    def _below(self, node: _Node[Kept], *, skip_server: bool) -> Iterator[Kept]:
        if node.kept is not None:
            yield node.kept
        stack = [child for name, child in node.children.items() if not (skip_server and name.startswith("$"))]
        while stack:
            each = stack.pop()
            if each.kept is not None:
                yield each.kept
            if each.children:
                stack.extend(each.children.values())
