"""What a batch of commands means for brokers: what each is told, in order, and of whom others have to hear.

Most of what happens in a large network is news for nearly everybody, and the same news. So what is told at once is kept
once (an **announcement**), with who hears it, and a broker has the numbers of its announcements. Brokers with the same
numbers are told the same: their notices are worked out and encoded once (``drafting``).

Invariant: of two announcements to one broker the earlier has the smaller number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from tocsin.core.coordination.state.spending import told_bytes
from tocsin.wire.internal import notices

NOBODY: Final[frozenset[str]] = frozenset()


class Outcome:
    """The consequences of a batch of commands for brokers."""

    def __init__(self) -> None:
        self.announcements: list[Sequence[notices.Item]] = []
        self.told: dict[str, list[int]] = {}  # broker → its announcements, in order
        self.fresh: dict[str, None] = {}  # brokers that are told everything, and not only what changed
        # Broker that said something → those that have to hear of it; perhaps itself, where it spoke with others.
        self.concerned: dict[str, frozenset[str]] = {}
        self.size = 0  # of what is told, in bytes as they are estimated
        # By identity, as the same item goes to many brokers; with the item, so that the id stays its own.
        self._sizes: dict[int, tuple[notices.Item, int]] = {}

    def tell(self, broker: str, item: notices.Item) -> None:
        """Tell one broker one thing."""
        self.announce((broker,), (item,))

    def announce(self, brokers: Collection[str], items: Sequence[notices.Item]) -> None:
        """Tell all these brokers the same."""
        number = len(self.announcements)
        self.announcements.append(items)
        told = self.told
        for broker in brokers:
            if broker in told:
                told[broker].append(number)
            else:
                told[broker] = [number]
        self.size += len(brokers) * sum(map(self._size, items))

    def _size(self, item: notices.Item) -> int:
        known = self._sizes.get(id(item))
        if known is None:
            known = self._sizes[id(item)] = (item, told_bytes(item))
        return known[1]

    def concern(self, speakers: Collection[str], heard: frozenset[str]) -> None:
        """These brokers said something, together, and those have to hear of it."""
        own = heard - {*speakers} if len(speakers) == 1 else heard
        for speaker in speakers:
            before = self.concerned.get(speaker, NOBODY)
            self.concerned[speaker] = own if not before else before | own

    def items_of(self, broker: str) -> Iterator[notices.Item]:
        """All that a broker is told."""
        for number in self.told.get(broker, ()):
            yield from self.announcements[number]

    @property
    def items(self) -> dict[str, list[notices.Item]]:
        """All that everybody is told."""
        return {broker: [*self.items_of(broker)] for broker in self.told}
