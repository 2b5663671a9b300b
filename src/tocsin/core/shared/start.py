"""Where a new group begins: at the end of the log, so that no message is delivered by two groups.

A group ends with its last member, and its cell is removed. The next group of its name must have none of the last one's
messages; and a client that was told that it is a member must miss nothing that comes to the log afterwards. This
broker's own view of the log does not tell where that is: it may be behind. Neither does the end of the log alone, asked
for before the cell is written: until the write happens, another group of the name may come, deliver, and go.

So a group is made in two writes. The first makes the cell, without a position. Then the log is asked where it ends, and
the second write, by whichever broker comes first, says that the group begins behind that; only now are members told.

    no cell ──made (revision r)──► not begun ──the end is found──► written over r: begun behind it

*Nothing twice.* The second write happens only if the cell's revision is still the one for which the log was asked, and
no revision is used twice. So from before the question until after the write this cell was there, and no other group of
the name was. Everything that an earlier group claimed was in the log at that time, that is before the question.

*Nothing missed.* The position is known before anybody is told that it is a member, so that what is published
afterwards lies behind it.

An answer counts for the revision for which it was asked, and for no other: the cell may be another group's by then.
"""

from __future__ import annotations

from tocsin.core.shared.signals import EndFound, EndUnknown, FindEnd


class Beginning:
    """Finds the position at which a new group begins."""

    def __init__(self) -> None:
        self._asked = 0  # the revision for which the log was asked last
        self._end = -1  # what it said; -1: nothing yet

    def ask(self, revision: int) -> list[FindEnd]:
        """Have the log asked for a cell of this revision, unless that is done already."""
        if revision == self._asked:
            return []
        self._asked, self._end = revision, -1
        return [FindEnd(revision=revision)]

    def found(self, event: EndFound) -> None:
        if event.revision == self._asked:
            self._end = event.position

    def failed(self, event: EndUnknown) -> bool:
        """Whether it matters that there is no answer."""
        if event.revision != self._asked:
            return False
        self._asked = 0
        return True

    def position(self, revision: int) -> int:
        """Where a group begins whose cell has this revision; 0: that is not known."""
        return self._end + 1 if revision == self._asked else 0
