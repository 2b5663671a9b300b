"""The tree of covers: where an index keeps its queries, and how it finds those that matter.

A node stands for tokens that metadata may have: those on the way from the root to it. A query is kept at nodes such
that, whenever it is true, all tokens of one of them are there. A small node is a list. One that grows **divides**: its
queries go on to the children that their covers name (``atoms.cover_of``), and what has no further cover stays:

- as **rest**, looked at whenever the node is reached, or
- **homed**, if its cover is of ranges: found by the numbers that these hold.

The index takes the cover with the best kind of atom (equality, then beginning or ``EXISTS``, then range). If several
are equally good, it takes the one with the fewest queries below its children. So queries spread by themselves over
what tells them apart, and what shares one value is told apart one level deeper by another. A node that shrinks is a
list again. Answers depend neither on where a query is kept nor on the order of additions; costs hardly.

A node other than the root exists while something is kept at or below it. ``size`` counts what is, a query once for each
place that it has there; ``mentions`` counts the same by the keys that the queries mention. A node is a list of entries,
or it is divided and has an ``Inner``.

Two walks. ``holding`` goes down along all tokens of some metadata. ``turning`` is for metadata of which some keys
changed: along unchanged tokens it goes on only where a changed key is mentioned, and at a divided node it asks for
those that stayed there and that the change concerns (``watch``); a token that came or went leads over to
``holding``.

Cost, with d divided nodes on the way and t tokens of the metadata: d × t look-ups, at most ``LIST_MAX`` queries for
each list reached, and what the ranges and watches yield. None of these grows with queries that share no token with
the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from tocsin.query.index.atoms import (
    NEVER,
    AllOf,
    AnyOf,
    Atom,
    Cover,
    Range,
    Tokens,
    Watched,
    cover_of,
    watches_of,
)
from tocsin.query.index.intervals import IntervalIndex
from tocsin.query.index.tokens import HERE, Beginning, Reading, Token, View
from tocsin.query.index.watch import KeyWatch
from tocsin.query.query import Query

# Queries above which a node divides: to ask as many costs about as much as two levels more.
LIST_MAX: Final = 32
DEPTH_MAX: Final = 16  # nodes from the root to the lowest
PLACES_MAX: Final = 2_048  # of one query: the longest list of options that is allowed has fewer tokens

_Used = Mapping[str, set[Token]]
# The kind of the atoms, how many queries are there, how many atoms, and which. The least is the best.
_Choice = tuple[int, int, int, tuple[Atom, ...]]

Id = TypeVar("Id")


class Entry(Generic[Id]):
    """A query in the tree."""

    __slots__ = ("id", "places", "query")

    def __init__(self, id: Id, query: Query) -> None:
        self.id = id
        self.query = query
        self.places: tuple[Node[Id], ...] = ()


class Inner(Generic[Id]):
    """The children of a divided node."""

    __slots__ = ("children", "homed", "lengths", "mentions", "ranges", "rest", "watches")

    def __init__(self) -> None:
        self.children: dict[str, dict[Token, Node[Id]]] = {}  # key → token → node
        self.lengths: dict[
            str, dict[int, int]
        ] = {}  # key → length of a beginning → children with such a token
        self.rest: dict[Entry[Id], None] = {}  # what has no further cover
        self.homed: dict[Entry[Id], tuple[Range, ...]] = {}  # what is found by ranges, with these
        self.ranges: dict[str, IntervalIndex[Entry[Id]]] = {}  # key → the ranges of what is homed
        self.watches: dict[str, KeyWatch[Entry[Id]]] = {}  # key → what is in rest or homed and mentions it
        self.mentions: dict[str, int] = {}

    def tokens(self, key: str, reading: Reading | None) -> tuple[Token, ...]:
        """The tokens of a value that children may have."""
        if reading is None:
            return ()
        lengths = self.lengths.get(key)
        if not lengths:
            return reading.tokens
        text = reading.text
        return reading.tokens + tuple(Beginning(text[:n]) for n in lengths if n <= len(text))

    def keep(self, entry: Entry[Id], ranges: tuple[Range, ...]) -> None:
        """Let an entry stay here, found by the ranges if there are any."""
        if ranges:
            self.homed[entry] = ranges
            for each in ranges:
                self.ranges.setdefault(each.key, IntervalIndex()).add(each.low, each.high, entry)
        else:
            self.rest[entry] = None
        for key, watched in _further(entry, ranges):
            self.watches.setdefault(key, KeyWatch()).add(entry, watched)

    def release(self, entry: Entry[Id]) -> None:
        """Undo ``keep``."""
        ranges = self.homed.pop(entry, ())
        if not ranges:
            del self.rest[entry]
        for each in ranges:
            intervals = self.ranges[each.key]
            intervals.remove(each.low, each.high, entry)
            if not intervals:
                del self.ranges[each.key]
        for key, watched in _further(entry, ranges):
            watch = self.watches[key]
            watch.remove(entry, watched)
            if not watch:
                del self.watches[key]


class Node(Generic[Id]):
    """One token more than the node above."""

    __slots__ = ("entries", "inner", "key", "size", "token", "up")

    def __init__(self, up: Node[Id] | None, key: str, token: Token) -> None:
        self.up = up
        self.key = key
        self.token = token
        self.size = 0
        self.entries: list[Entry[Id]] = []  # none once it is divided
        self.inner: Inner[Id] | None = None

    def above(self) -> Iterator[Node[Id]]:
        """This node and those above it."""
        node: Node[Id] | None = self
        while node is not None:
            yield node
            node = node.up

    def below(self) -> list[Node[Id]]:
        """This node and those below it."""
        found = [self]
        for node in found:
            if node.inner is not None:
                found.extend(child for table in node.inner.children.values() for child in table.values())
        return found

    def kept(self) -> Iterable[Entry[Id]]:
        """The entries that have a place at this very node."""
        return self.entries if self.inner is None else (*self.inner.rest, *self.inner.homed)

    def take(self, entry: Entry[Id], ranges: tuple[Range, ...]) -> None:
        """Give an entry a place here."""
        if self.inner is None:
            self.entries.append(entry)
        else:
            self.inner.keep(entry, ranges)
        entry.places += (self,)
        self.count(entry, 1)

    def drop(self, entry: Entry[Id]) -> None:
        """Undo ``take``; the entry's own list of places is the caller's matter."""
        if self.inner is None:
            self.entries.remove(entry)
        else:
            self.inner.release(entry)
        self.count(entry, -1)

    def count(self, entry: Entry[Id], by: int) -> None:
        """One place more or less here."""
        for node in self.above():
            node.size += by
            if node.inner is not None:
                mentions = node.inner.mentions
                for key in entry.query.keys:
                    _count(mentions, key, by)

    def child(self, key: str, token: Token) -> Node[Id]:
        """The child for a token, made if there is none."""
        inner = self.inner
        assert inner is not None
        children = inner.children.setdefault(key, {})
        node = children.get(token)
        if node is None:
            node = children[token] = Node(self, key, token)
            if isinstance(token, Beginning):
                _count(inner.lengths.setdefault(key, {}), len(token.text), 1)
        return node

    def cut(self) -> None:
        """Take this node, which is empty, from the one above, if it still hangs there."""
        inner = self.up and self.up.inner
        if not inner or inner.children.get(self.key, {}).get(self.token) is not self:
            return
        del inner.children[self.key][self.token]
        if not inner.children[self.key]:
            del inner.children[self.key]
        if isinstance(self.token, Beginning):
            lengths = inner.lengths[self.key]
            _count(lengths, len(self.token.text), -1)
            if not lengths:
                del inner.lengths[self.key]


def _further(entry: Entry[Id], ranges: tuple[Range, ...]) -> Iterator[tuple[str, set[Watched]]]:
    """By key, the atoms that matter to an entry besides the ranges that it is found by."""
    for key, watched in watches_of(entry.query.expression).items():
        further = set(watched).difference(ranges)
        if further:
            yield key, further


Counted = TypeVar("Counted", str, int)


def _count(counts: dict[Counted, int], what: Counted, by: int) -> None:
    count = counts.get(what, 0) + by
    if count:
        counts[what] = count
    else:
        del counts[what]


class CoverTree(Generic[Id]):
    """Stores queries by what must hold for them, and finds those that metadata can satisfy."""

    def __init__(self) -> None:
        self._root: Node[Id] = Node(None, "", HERE)

    def add(self, entry: Entry[Id]) -> None:
        cover = cover_of(entry.query.expression)
        if cover != NEVER:
            self._insert(self._root, entry, cover)

    def remove(self, entry: Entry[Id]) -> None:
        places, entry.places = entry.places, ()
        for node in places:
            node.drop(entry)
        for node in places:
            self._shrink(node)

    # ── walks ───────────────────────────────────────────────────────────────────────────────────────────────

    def holding(self, view: View) -> list[Entry[Id]]:
        """All that can be true there, and perhaps some more; one may come twice."""
        found: list[Entry[Id]] = []
        _hold([self._root], view, found)
        return found

    def turning(self, before: View, after: View, changed: frozenset[str]) -> list[Entry[Id]]:
        """All whose outcome can differ, and perhaps some more; one may come twice."""
        found: list[Entry[Id]] = []
        unchanged = [key for key in after.metadata if key not in changed]
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            inner = node.inner
            if inner is None:
                found.extend(entry for entry in node.entries if not changed.isdisjoint(entry.query.keys))
                continue
            if changed.isdisjoint(inner.mentions):
                continue
            for key in unchanged:
                children = inner.children.get(key)
                if children is not None:
                    tokens = inner.tokens(key, after.read(key))
                    waiting.extend(children[token] for token in tokens if token in children)
            for key in changed:
                if key in inner.children:
                    waiting.extend(_pass(inner, key, before, after, found))
                if key in inner.ranges:
                    found.extend(_moved(inner.ranges[key], before.read(key), after.read(key)))
                if key in inner.watches:
                    found.extend(inner.watches[key].concerned(before.read(key), after.read(key)))
        return found

    # ── places ──────────────────────────────────────────────────────────────────────────────────────────────

    def _insert(self, node: Node[Id], entry: Entry[Id], cover: Cover | None) -> None:
        if node.inner is None:
            node.take(entry, ())
            if len(node.entries) > LIST_MAX:
                self._divide(node)
            return
        tokens, ranges = _choose(node, node.inner, entry, cover)
        if ranges or not tokens:
            node.take(entry, ranges)
        for key, token in tokens:
            self._insert(node.child(key, token), entry, cover)

    def _divide(self, node: Node[Id]) -> None:
        entries = tuple(node.entries)
        for entry in entries:
            node.drop(entry)
            entry.places = tuple(place for place in entry.places if place is not node)
        node.inner = Inner()
        for entry in entries:
            self._insert(node, entry, cover_of(entry.query.expression))

    def _shrink(self, node: Node[Id]) -> None:
        """Cut what is empty from a place upwards, and make a list of the highest that has become small."""
        small: Node[Id] | None = None
        for each in node.above():
            if not each.size:
                each.cut()
            elif each.inner is not None and each.size <= LIST_MAX // 2:
                small = each
        if small is not None:
            self._gather(small)

    def _gather(self, node: Node[Id]) -> None:
        below = node.below()
        entries = dict.fromkeys(entry for place in below for entry in place.kept())
        for entry in entries:
            for place in entry.places:
                if place in below:
                    place.drop(entry)
            entry.places = tuple(place for place in entry.places if place not in below)
        node.inner = None
        for entry in entries:
            node.take(entry, ())


def _hold(waiting: list[Node[Id]], view: View, found: list[Entry[Id]]) -> None:
    """``holding``, from some nodes on."""
    while waiting:
        node = waiting.pop()
        inner = node.inner
        if inner is None:
            found.extend(node.entries)
            continue
        for key in view.metadata:
            children = inner.children.get(key)
            if children is not None:
                tokens = inner.tokens(key, view.read(key))
                waiting.extend(children[token] for token in tokens if token in children)
            if key in inner.ranges:
                found.extend(_moved(inner.ranges[key], None, view.read(key)))
        found.extend(inner.rest)


def _pass(
    inner: Inner[Id], key: str, before: View, after: View, found: list[Entry[Id]]
) -> Iterator[Node[Id]]:
    """Go down along the tokens that a changed key lost or got; give the nodes of those that it kept."""
    children = inner.children[key]
    old, new = inner.tokens(key, before.read(key)), inner.tokens(key, after.read(key))
    _hold([children[token] for token in old if token in children and token not in new], before, found)
    _hold([children[token] for token in new if token in children and token not in old], after, found)
    yield from (children[token] for token in new if token in children and token in old)


def _moved(
    intervals: IntervalIndex[Entry[Id]], old: Reading | None, new: Reading | None
) -> Iterator[Entry[Id]]:
    """The members that hold just one of the two numbers, where a value may be missing or no number."""
    start = None if old is None else old.number
    end = None if new is None else new.number
    if start is not None and end is not None:
        yield from intervals.crossing(start, end)
    elif start is not None or end is not None:
        yield from intervals.holding(start if end is None else end)  # type: ignore[arg-type]


# ── the choice of a cover ────────────────────────────────────────────────────────────────────────────────────


def _choose(
    node: Node[Id], inner: Inner[Id], entry: Entry[Id], cover: Cover | None
) -> tuple[list[tuple[str, Token]], tuple[Range, ...]]:
    """The tokens of the children, and the ranges, by which to keep an entry; none if it is to stay as rest."""
    used: dict[str, set[Token]] = {}
    depth = 0
    while node.up is not None:
        used.setdefault(node.key, set()).add(node.token)
        node = node.up
        depth += 1
    choice = None if cover is None or depth >= DEPTH_MAX else _best(inner, cover, used)
    if choice is None:
        return [], ()
    tokens = dict.fromkeys(
        (atom.key, token) for atom in choice[3] if isinstance(atom, Tokens) for token in atom.tokens
    )
    if len(tokens) + len(entry.places) > PLACES_MAX:
        return [], ()
    return list(tokens), tuple(dict.fromkeys(atom for atom in choice[3] if isinstance(atom, Range)))


def _best(inner: Inner[Id], cover: Cover, used: _Used) -> _Choice | None:
    """The best atoms of which one holds if the cover does; None if, with the tokens on the way, it may hold anyway."""
    match cover:
        case Tokens(key, tokens, implied):
            spent = used.get(key)
            if spent is not None and not spent.isdisjoint(tokens):
                return None
            if implied and used:
                return None  # it tells hardly any queries apart, and here they are few
            children = inner.children.get(key)
            size = sum(children[token].size for token in tokens if token in children) if children else 0
            return _kind(cover), size, len(tokens), (cover,)
        case Range(key):
            intervals = inner.ranges.get(key)
            return 2, len(intervals) if intervals else 0, 1, (cover,)
        case AllOf(parts):
            best: _Choice | None = None
            for part in parts:
                choice = _best(inner, part, used)
                if choice is not None and (best is None or choice[:3] < best[:3]):
                    best = choice
            return best
        case AnyOf(parts):
            kind = size = 0
            atoms: tuple[Atom, ...] = ()
            for part in parts:
                choice = _best(inner, part, used)
                if choice is None:
                    return None
                kind, size, atoms = max(kind, choice[0]), size + choice[1], atoms + choice[3]
            return kind, size, len(atoms), atoms


def _kind(atom: Tokens) -> int:
    if atom.implied:
        return 3
    return 1 if atom.tokens[0] == HERE or isinstance(atom.tokens[0], Beginning) else 0
