"""Who wants topics that overlap a filter: what ``$wanted/filter`` is told from.

A filter is **asked** about when somebody wants to know whether anybody subscribes to topics that it shares with others.
For each such filter this counts who wants how many filters that overlap it. The coordinator counts brokers, a broker
its clients and their queries, with the same class.

Who asks nothing pays nothing: before the first question nothing is kept. The first question has all that is wanted
indexed (``held``), once: a client that asks and stops asking, again and again, has it done once all the same.

Cost, while somebody asks: a wanted filter that comes or goes costs its levels and the questions that it overlaps; a
question costs the wanted filters that overlap it, once, however many ask it: ``ask`` says how many steps these were, so
that who asks can be charged for them.

Invariant: while a filter is asked about, its count is what ``held`` says now, of the filters that overlap it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from tocsin.core.filters import interest_of

Who = TypeVar("Who", bound=Hashable)
ASKED_BYTES: Final = 1_500  # of a question beside its text, with the one to three who want it
TEXT_FACTOR: Final = 4  # the text is a key, and its levels are a path


class Demand(Generic[Who]):
    """Counts, for each filter that is asked about, who wants something of it.

    ``held`` lists everything that is wanted. ``stirred`` is called when there may be something to ``settle``.
    """

    def __init__(
        self, held: Callable[[], Iterable[tuple[Who, str]]], stirred: Callable[[], None] | None = None
    ) -> None:
        self._held = held
        self._stirred = stirred
        self._asked = FilterTree()
        self._wanted = FilterTree()
        self._wanting: dict[str, Counter[Who]] = {}  # wanted filter → who wants it, and for how many reasons
        self._counts: dict[str, Counter[Who]] = {}  # filter that is asked about → who wants how many of it
        self._before: dict[
            str, frozenset[Who]
        ] = {}  # … how that was at the last ``settle``, where it changed
        self._text_bytes = 0
        self._indexed = False  # what is wanted is, since the first question

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def cost(self) -> int:
        """The bytes that the questions count as."""
        return ASKED_BYTES * len(self._counts) + TEXT_FACTOR * self._text_bytes

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, topic_filter: str) -> int:
        """Count for this filter from now on; how many steps that took."""
        if topic_filter in self._counts:
            return 0
        if not self._indexed:
            self._indexed = True
            for who, name in self._held():
                self._add(who, name)
        self._asked.add(topic_filter)
        self._text_bytes += len(topic_filter)
        count = self._counts[topic_filter] = Counter[Who]()
        before = self._wanted.steps
        for wanted in self._wanted.overlapping(topic_filter):
            for who in self._wanting[wanted]:
                count[who] += 1
        return self._wanted.steps - before + count.total()

    def withdraw(self, topic_filter: str) -> None:
        """Nobody asks about this filter any more."""
        del self._counts[topic_filter]
        self._before.pop(topic_filter, None)
        self._asked.remove(topic_filter)
        self._text_bytes -= len(topic_filter)

    def is_wanted(self, topic_filter: str, but: Who) -> bool:
        """Whether anybody wants something of a filter, beside the one who asks."""
        return anybody(self._counts[topic_filter].keys(), but)

    # ── what is wanted ──────────────────────────────────────────────────────────────────────────────────────

    def want(self, who: Who, names: Iterable[str]) -> None:
        """Each of these is wanted for one reason more."""
        if self._indexed:
            for name in names:
                topic_filter = self._add(who, name)
                if topic_filter is not None:
                    for asked in self._asked.overlapping(topic_filter):
                        self._note(asked)
                        self._counts[asked][who] += 1

    def release(self, who: Who, names: Iterable[str]) -> None:
        """One reason less."""
        if self._indexed:
            for name in names:
                topic_filter = self._remove(who, name)
                if topic_filter is not None:
                    for asked in self._asked.overlapping(topic_filter):
                        self._note(asked)
                        count = self._counts[asked]
                        count[who] -= 1
                        if not count[who]:
                            del count[who]

    def settle(self) -> list[tuple[str, frozenset[Who], frozenset[Who]]]:
        """The filters for which others want something than at the last call; those before and now, two at most."""
        before, self._before = self._before, {}
        turned = ((asked, was, _some(self._counts[asked])) for asked, was in before.items())
        return [each for each in turned if each[1] != each[2]]

    def _note(self, asked: str) -> None:
        if asked not in self._before:
            if not self._before and self._stirred is not None:
                self._stirred()
            self._before[asked] = _some(self._counts[asked])

    def _add(self, who: Who, name: str) -> str | None:
        """The filter of what is wanted, if it is wanted for the first reason by this one."""
        topic_filter = interest_of(name).pattern
        wanting = self._wanting.get(topic_filter)
        if wanting is None:
            wanting = self._wanting[topic_filter] = Counter()
            self._wanted.add(topic_filter)
        wanting[who] += 1
        return topic_filter if wanting[who] == 1 else None

    def _remove(self, who: Who, name: str) -> str | None:
        """The filter, if this one wants it for no reason any more."""
        topic_filter = interest_of(name).pattern
        wanting = self._wanting[topic_filter]
        wanting[who] -= 1
        if wanting[who]:
            return None
        del wanting[who]
        if not wanting:
            del self._wanting[topic_filter]
            self._wanted.remove(topic_filter)
        return topic_filter


def anybody(wanting: Iterable[Who], but: Who) -> bool:
    """Whether somebody is among these, beside the one who asks."""
    return any(who != but for who in wanting)


def _some(count: Counter[Who]) -> frozenset[Who]:
    """Two of them, or all if there are fewer: enough to tell anybody whether there are others."""
    return frozenset(who for _, who in zip(range(2), count, strict=False))


class _Node:
    """One level of filters."""

    __slots__ = ("children", "ends", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.ends: str | None = None  # the filter that ends here
        self.rest: str | None = None  # the filter that goes on with "#"


class FilterTree:
    """Filters by their levels: finds those that overlap another, in time proportional to the nodes that do."""

    def __init__(self) -> None:
        self.steps = 0  # nodes that were looked at, to find what overlaps
        self._root = _Node()

    def add(self, topic_filter: str) -> None:
        levels, rest = _levels(topic_filter)
        node = self._root
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        if rest:
            node.rest = topic_filter
        else:
            node.ends = topic_filter

    def remove(self, topic_filter: str) -> None:
        levels, rest = _levels(topic_filter)
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        if rest:
            path[-1].rest = None
        else:
            path[-1].ends = None
        for level in reversed(levels):
            node = path.pop()
            if node.children or node.ends is not None or node.rest is not None:
                break
            del path[-1].children[level]

    def overlapping(self, topic_filter: str) -> Iterator[str]:
        """The filters that some topic matches which matches this one, too."""
        levels, rest = _levels(topic_filter)
        own = topic_filter.startswith("$")  # a wildcard in front stands for nothing that begins so
        nodes = [self._root]
        for depth, level in enumerate(levels):
            below: list[_Node] = []
            for node in nodes:
                if node.rest is not None and (depth or not own):
                    yield node.rest
                if level == "+":
                    children = node.children
                    below += (each for key, each in children.items() if depth or not key.startswith("$"))
                    continue
                if (child := node.children.get(level)) is not None:
                    below.append(child)
                if (depth or not own) and (child := node.children.get("+")) is not None:
                    below.append(child)
            nodes = below
            self.steps += len(nodes)
        for node in nodes:
            if node.rest is not None:
                yield node.rest
            if node.ends is not None:
                yield node.ends
        if rest:
            first = not levels
            while nodes:
                node = nodes.pop()
                self.steps += len(node.children)
                for key, child in node.children.items():
                    if first and key.startswith("$"):
                        continue
                    if child.rest is not None:
                        yield child.rest
                    if child.ends is not None:
                        yield child.ends
                    nodes.append(child)
                first = False


def _levels(topic_filter: str) -> tuple[list[str], bool]:
    """The levels of a filter, and whether it goes on with "#"."""
    levels = topic_filter.split("/")
    return (levels[:-1], True) if levels[-1] == "#" else (levels, False)
