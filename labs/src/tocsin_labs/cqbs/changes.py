"""V-B's publishers and subscribers, as values: their metadata, their queries, and the changes that they have to hear.

A stream has ten traits of ten values each, drawn by chance, so that any trait and value is that of one stream in ten.
Every subscriber asks for one of those, with a condition more that always holds and is its own: no two queries are
one, as in the paper's own load. Or subscribers share a few queries (``Coordination.different``). Each change carries
its number (``Mark``): who hears of it knows which it was.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tocsin.model.stream import Metadata
from tocsin.query import Query, parse

TRAITS: Final = 10
VALUES: Final = 10
OWNER: Final = "lab"
MARK: Final = "Mark"


def queries(subscribers: int, different: int | None = None) -> list[Query]:
    """The query of each: all different ones, or so many, whose subscribers chance decides."""
    if different is not None:
        few, chance = queries(different), random.Random(different)
        return [chance.choice(few) for _ in range(subscribers)]
    found: list[Query] = []
    for number in range(subscribers):
        rest, trait = divmod(number, TRAITS)
        nobody, value = divmod(rest, VALUES)
        found.append(parse(f'Trait/{trait} = "{value}" AND Owner != "nobody-{nobody}"'))
    return found


class Change(msgspec.Struct, frozen=True):
    """A stream comes, or is another from now on."""

    mark: int  # 1, 2, 3 …
    topic: str
    metadata: dict[str, str | int]


def changes(publishers: int, further: int, seed: int) -> list[Change]:
    """Every publisher comes; then they change, each once before any does again."""
    chance = random.Random(seed)
    order = list(range(publishers))
    turns: list[int] = []
    while len(turns) < further:
        chance.shuffle(order)
        turns += order
    numbers = [*range(publishers), *turns[:further]]
    return [
        Change(mark, f"publisher/{number}", _drawn(chance, mark)) for mark, number in enumerate(numbers, 1)
    ]


def _drawn(chance: random.Random, mark: int) -> dict[str, str | int]:
    traits = {f"Trait/{number}": str(chance.randrange(VALUES)) for number in range(TRAITS)}
    return {**traits, "Owner": OWNER, MARK: mark}


Notice = tuple[int, int, str]  # mark, number of the query, and what it is: joined, changed or left


def expected(asked: Sequence[Query], said: Sequence[Change]) -> tuple[set[Notice], list[set[str]]]:
    """By asking every query about every change: what subscribers hear, and the set of each query at the end."""
    sets: list[set[str]] = [set() for _ in asked]
    notices: set[Notice] = set()
    for change in said:
        for number, query in enumerate(asked):
            before, now = change.topic in sets[number], query.matches(change.metadata)
            if now:
                notices.add((change.mark, number, "changed" if before else "joined"))
                sets[number].add(change.topic)
            elif before:
                notices.add((change.mark, number, "left"))
                sets[number].discard(change.topic)
    return notices, sets


def differing(sets: Sequence[set[str]], known: Sequence[Mapping[str, Metadata] | None]) -> int:
    """How many queries have another set than they should."""
    return sum(streams is None or set(streams) != want for want, streams in zip(sets, known, strict=True))
