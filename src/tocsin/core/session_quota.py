"""How many sessions may be stored, and how large: for the network, and for each user.

The store tells how much its table holds, now and then (``saw``); what was made here since, and what grew, is added. So
the network's bounds are passed by no more than the other brokers make between two looks. New sessions are refused from
four fifths of the table's share on, and those that there are may not grow from nine tenths on: the rest is for what
clients that are connected have to store.

A user's sessions are counted at each broker: those that it serves, or served last, until they end, would expire or are
taken elsewhere. A broker that was started finds those of its last run in the table (``found``, by the scan that each
run begins with). So a user may have its share at each broker (brokers x share), until the network's bounds say no;
those count everything. To count a user for the network would take a write that all brokers compete for, for every
session.

Invariants: what is counted of a user is the sum of its sessions here; no session counts twice.
"""

from __future__ import annotations

import heapq
from typing import Final

NEW_PART: Final = (4, 5)  # of the share: beyond it no session is made
GROW_PART: Final = (9, 10)  # … and none grows
FRESH_BYTES: Final = 512  # of a session that was just made


class _Session:
    __slots__ = ("size", "until_us", "user")

    def __init__(self, user: str, size: int) -> None:
        self.user = user
        self.size = size
        self.until_us: int | None = None  # when it expires; None: its client is connected here


class SessionQuota:
    """One broker's view. ``share_bytes`` is the table's; ``user_percent`` of each bound is for one user."""

    def __init__(self, sessions_max: int, share_bytes: int, user_percent: int) -> None:
        self._most = sessions_max
        self._share = share_bytes
        self._user_most = max(1, sessions_max * user_percent // 100)
        self._user_bytes = share_bytes * user_percent // 100
        self._stored = 0  # sessions in the table, as it was last seen …
        self._stored_bytes = 0
        self._made = 0  # … and what was made here since …
        self._grown = 0  # … and by how many bytes those here have grown
        self._sessions: dict[str, _Session] = {}  # by client
        self._users: dict[str, tuple[int, int]] = {}  # user → sessions here, and their bytes; never (0, 0)
        self._ends: list[tuple[int, str]] = []
        self.refused = 0

    @property
    def stored(self) -> tuple[int, int]:
        """Sessions of the network, and their bytes, as far as is known."""
        size = self._stored_bytes + FRESH_BYTES * self._made + self._grown
        return self._stored + self._made, max(0, size)

    def of_user(self, user: str) -> tuple[int, int]:
        """A user's sessions here, and their bytes."""
        return self._users.get(user, (0, 0))

    def user_of(self, client: str) -> str | None:
        """Whose the session of a client is that counts here; None if none does."""
        session = self._sessions.get(client)
        return None if session is None else session.user

    def saw(self, sessions: int, size: int) -> None:
        """The table holds so many."""
        self._stored, self._stored_bytes, self._made, self._grown = sessions, size, 0, 0

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def no_room(self, user: str, now_us: int) -> str | None:
        """Why no session more can be stored for a user, in words; None if one can."""
        self._expire(now_us)
        sessions, size = self.stored
        own, own_bytes = self.of_user(user)
        problem = None
        if sessions >= self._most:
            problem = f"{self._most} sessions are stored already (limits.sessions_max)"
        elif size >= _part(self._share, NEW_PART):
            problem = "stored sessions take too much room already (shares.sessions_bytes)"
        elif own >= self._user_most:
            problem = f"this user has {own} stored sessions already (limits.sessions_user_percent)"
        elif own_bytes >= _part(self._user_bytes, NEW_PART):
            problem = "this user's stored sessions take too much room already (limits.sessions_user_percent)"
        self.refused += problem is not None
        return problem

    def may_grow(self, user: str) -> bool:
        """Whether more may be stored of a session that there is."""
        own_bytes = self.of_user(user)[1]
        room = self.stored[1] < _part(self._share, GROW_PART)
        return room and own_bytes < _part(self._user_bytes, GROW_PART)

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────

    def serves(self, client: str, user: str, size: int = FRESH_BYTES, *, made: bool) -> None:
        """A stored session of that size is served here; ``made``: it is a new one."""
        self._made += made
        self._drop(client)
        self._sessions[client] = _Session(user, size)
        self._count(user, 1, size)

    def found(self, client: str, user: str, size: int, until_us: int | None) -> None:
        """The table has a session that this broker served last, and that may have expired by then; None: never."""
        if client not in self._sessions:
            self._sessions[client] = _Session(user, size)
            self._count(user, 1, size)
            if until_us is not None:
                self.left(client, until_us)

    def wrote(self, client: str, size: int) -> None:
        """Its cell has that size now."""
        session = self._sessions.get(client)
        if session is not None:
            self._count(session.user, 0, size - session.size)
            self._grown += size - session.size
            session.size = size

    def left(self, client: str, until_us: int) -> None:
        """Its client is away; it expires at that time."""
        session = self._sessions.get(client)
        if session is not None:
            session.until_us = until_us
            heapq.heappush(self._ends, (until_us, client))

    def over(self, client: str) -> None:
        """It is forgotten, or another broker has it."""
        self._drop(client)

    def _drop(self, client: str) -> None:
        session = self._sessions.pop(client, None)
        if session is not None:
            self._count(session.user, -1, -session.size)

    def _count(self, user: str, sessions: int, size: int) -> None:
        before, before_bytes = self._users.get(user, (0, 0))
        after = (before + sessions, before_bytes + size)
        if after == (0, 0):
            self._users.pop(user, None)
        else:
            self._users[user] = after

    def _expire(self, now_us: int) -> None:
        while self._ends and self._ends[0][0] <= now_us:
            until_us, client = heapq.heappop(self._ends)
            session = self._sessions.get(client)
            if session is not None and session.until_us == until_us:
                self._drop(client)


def _part(whole: int, part: tuple[int, int]) -> int:
    return whole * part[0] // part[1]
