"""The account: what the backend committed for each subscriber, held against what that subscriber's program was given.

A result is known by its execution and its emergency's number. For each subscriber:

- **delivered**: committed, and given to it; **lost**: committed, and never given to it;
- **duplicates**: given to it more often than it was committed (past the client, which drops repeats);
- **strange**: given to it, and never committed for it;
- **out of order**: given for the first time after one of the same class (critical or not) that was committed behind it.

Nothing here reads a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tocsin_demo.scene.application import CRITICAL

EXAMPLES_MAX: Final = 10


class Result(msgspec.Struct, frozen=True, array_like=True):
    """One result for one subscriber."""

    execution: int
    number: int  # of the emergency
    priority: int

    @property
    def key(self) -> tuple[int, int]:
        return self.execution, self.number


class Account(msgspec.Struct, frozen=True):
    """The figures. ``repeats`` came to clients again, and not to their programs."""

    subscribers: int
    committed: int
    delivered: int
    lost: int
    duplicates: int
    strange: int
    out_of_order: int
    repeats: int
    critical: int  # of those committed
    examples: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether every promise was."""
        return not (self.lost or self.duplicates or self.strange or self.out_of_order)


def late(got: Iterable[Result]) -> int:
    """How many came for the first time behind a later one of their class."""
    newest: dict[bool, tuple[int, int]] = {}
    seen: set[tuple[int, int]] = set()
    count = 0
    for each in got:
        if each.key in seen:
            continue
        seen.add(each.key)
        before = newest.get(each.priority >= CRITICAL)
        if before is not None and each.key < before:
            count += 1
        else:
            newest[each.priority >= CRITICAL] = each.key
    return count


def account(
    committed: Mapping[str, Sequence[Result]], got: Mapping[str, Sequence[Result]], *, repeats: int = 0
) -> Account:
    """The account of all subscribers in either; ``got`` in the order in which programs were given it."""
    figures: Counter[str] = Counter()
    examples: list[str] = []
    names = dict.fromkeys((*committed, *got))
    for name in names:
        due = Counter(each.key for each in committed.get(name, ()))
        came = Counter(each.key for each in got.get(name, ()))
        missing = due - came
        beyond = came - due
        found = {
            "delivered": (due & came).total(),
            "lost": missing.total(),
            "duplicates": sum(count for key, count in beyond.items() if key in due),
            "strange": sum(count for key, count in beyond.items() if key not in due),
            "out_of_order": late(got.get(name, ())),
        }
        figures.update(found)
        if missing:
            execution, number = min(missing)
            examples.append(f"{name} never got emergency {number} of execution {execution}")
        elif found["out_of_order"] or beyond:
            examples.append(f"{name}: " + ", ".join(f"{n} {what}" for what, n in found.items() if n))
    return Account(
        subscribers=len(names),
        committed=sum(len(each) for each in committed.values()),
        delivered=figures["delivered"],
        lost=figures["lost"],
        duplicates=figures["duplicates"],
        strange=figures["strange"],
        out_of_order=figures["out_of_order"],
        repeats=repeats,
        critical=sum(each.priority >= CRITICAL for results in committed.values() for each in results),
        examples=tuple(examples[:EXAMPLES_MAX]),
    )
