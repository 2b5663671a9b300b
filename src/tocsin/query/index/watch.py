"""The members of one key that a change of its value can concern, found by the old and the new value.

Each member has registered the atoms by which the key matters to it (``atoms.watches_of``). It is concerned if one of
them turns: a token that only one of the two values has, an interval that holds only one of them. If the value comes,
goes or changes its form, outcomes turn from or to failure, and all members are concerned.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from tocsin.query.index.atoms import Range, Tokens, Watch, Watched
from tocsin.query.index.bag import Bag, added, remove
from tocsin.query.index.intervals import IntervalIndex
from tocsin.query.index.tokens import Reading, Token

Member = TypeVar("Member", bound=Hashable)


class KeyWatch(Generic[Member]):
    """Finds the queries that a change of one key's value can turn."""

    __slots__ = ("_every", "_form", "_intervals", "_tokens")

    def __init__(self) -> None:
        self._tokens: dict[Token, Bag[Member]] = {}
        self._intervals: IntervalIndex[Member] = IntervalIndex()
        self._form: dict[Member, None] = {}
        self._every: dict[Member, None] = {}

    def __bool__(self) -> bool:
        return bool(self._tokens or self._intervals or self._form or self._every)

    def add(self, member: Member, watched: Iterable[Watched]) -> None:
        """A member that is not there yet."""
        for atom in watched:
            match atom:
                case Tokens(_, tokens):
                    for token in tokens:
                        bag = self._tokens.get(token, [])
                        if member not in bag:  # two atoms of one query may share a token
                            self._tokens[token] = added(bag, member)
                case Range(_, low, high):
                    self._intervals.add(low, high, member)
                case Watch.FORM:
                    self._form[member] = None
                case Watch.EVERY:
                    self._every[member] = None

    def remove(self, member: Member, watched: Iterable[Watched]) -> None:
        """A member, with the atoms that it was added with."""
        for atom in watched:
            match atom:
                case Tokens(_, tokens):
                    for token in tokens:
                        bag = self._tokens.get(token, [])
                        if member in bag:
                            remove(bag, member)
                            if not bag:
                                del self._tokens[token]
                case Range(_, low, high):
                    self._intervals.remove(low, high, member)
                case Watch.FORM:
                    del self._form[member]
                case Watch.EVERY:
                    del self._every[member]

    def concerned(self, old: Reading | None, new: Reading | None) -> Iterator[Member]:
        """Those whose outcome the change can turn, and perhaps some more; one may come twice."""
        yield from self._every
        if old is None or new is None or old.form != new.form:
            yield from self._form
            yield from self._intervals.members()
            for bag in self._tokens.values():
                yield from bag
            return
        for token in set(old.tokens) ^ set(new.tokens):
            yield from self._tokens.get(token, ())
        if old.number is not None and new.number is not None:
            yield from self._intervals.crossing(old.number, new.number)
