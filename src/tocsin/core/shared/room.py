"""A group's room in a broker's memory: entries that wait for a member, and the part of the log that is being read.

It is an account of the broker's budget for groups (``core.budgets.budget``), of the user whose client was the first in
the group here. A message larger than all the room of a group counts as the whole room: it goes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tocsin.core.budgets.budget import Account, Kind


class GroupRoom:
    """Counts the bytes that one group may hold in memory."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._read = 0  # bytes that were taken for what was read, and entries of it may use

    def belong(self, user: str) -> None:
        """A client of this user has joined."""
        if self._account.user is None:
            self._account.belong(user)

    def keep(self, size: int) -> bool:
        """Take so many bytes, if there is room for them."""
        share = self._share(size)
        rest = max(0, share - self._read)
        if rest and self._account.take(Kind.GROUPS, rest) is not None:
            return False
        self._read -= share - rest
        return True

    def let_go(self, size: int) -> None:
        """Give back what was taken for one entry."""
        self._account.give(Kind.GROUPS, self._share(size))

    def before_read(self, size: int, begin: Callable[[], None], crowded: Callable[[], None]) -> None:
        """Call ``begin`` once so many bytes are taken; ``crowded`` each time that others have to make room first."""
        if self._account.closed:
            return
        if self.keep(size):
            begin()
            return
        crowded()
        again = partial(self.before_read, size, begin, crowded)
        self._account.when_room(Kind.GROUPS, self._share(size), again)

    def after_read(self, size: int, tell: Callable[[], None]) -> None:
        """Have the group told what was read. The entries that the group keeps use the taken bytes first."""
        self._read = self._share(size)
        tell()
        rest, self._read = self._read, 0
        self._account.give(Kind.GROUPS, rest)

    def close(self) -> None:
        """The group is over here."""
        self._account.close()

    def _share(self, size: int) -> int:
        return min(size, self._account.limit(Kind.GROUPS))
