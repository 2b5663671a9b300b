"""The quota of stored sessions, in number and bytes: for the network, and for each user.

The store tells how much its table holds, now and then (``saw``); what was made here since, and what grew, is added. So
the network's bounds are passed by no more than the other brokers make between two looks. New sessions are refused from
four fifths of the table's share on, and those that there are may not grow from nine tenths on: the rest is for what
clients that are connected have to store.

A user's sessions are counted at each broker: those that it serves, or served last, until they end, would expire or are
taken elsewhere. A broker that was started finds those of its last run in the table (``found``, by the scan that each
run begins with). Brokers tell each other what they count (``report``, ``heard``), so that a user's bound is the
network's: it is passed by no more than what is made between two reports. A report leaves out users with less than a
``NOTABLE`` part of their bound, so that one of many users is short. A broker that is down reports nothing, and its
sessions count again for their users when it is back, or their clients are elsewhere.

Invariants: what is counted of a user here is the sum of its sessions here; no session counts twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tocsin.core.deadlines import Deadlines
from tocsin.model.versions import Packed

NEW_PART: Final = (4, 5)  # of the share: beyond it no session is made
GROW_PART: Final = (9, 10)  # … and none grows
FRESH_BYTES: Final = 512  # of a session that was just made
NOTABLE: Final = 64  # a user is reported from this part of its bound on
REPORTED_MAX: Final = 1_000  # users in a report, those with most

Counts = dict[str, tuple[int, int]]  # user → sessions, and their bytes
REPORT: Final = Packed("the stored sessions of users at a broker", msgspec.msgpack.Decoder(Counts))


class _Session:
    __slots__ = ("size", "user")

    def __init__(self, user: str, size: int) -> None:
        self.user = user
        self.size = size


class SessionQuota:
    """One broker's view. ``share_bytes`` is the table's; ``user_percent`` of each bound is for one user."""

    def __init__(self, sessions_max: int, share_bytes: int, user_percent: int) -> None:
        self._most = sessions_max
        self._share = share_bytes
        self._user_most = max(1, sessions_max * user_percent // 100)
        self._user_bytes = max(1, share_bytes * user_percent // 100)
        self._stored = 0  # sessions in the table, as it was last seen …
        self._stored_bytes = 0
        self._made = 0  # … and what was made here since …
        self._grown = 0  # … and by how many bytes those here have grown
        self._sessions: dict[str, _Session] = {}  # by client
        self._users: Counts = {}  # of sessions here; never (0, 0)
        self._elsewhere: Counts = {}  # at other brokers, as they said last
        self._ends = Deadlines()  # client → when its session expires; none while it is connected here
        self.refused = 0

    @property
    def stored(self) -> tuple[int, int]:
        """Sessions of the network, and their bytes, as far as is known."""
        size = self._stored_bytes + FRESH_BYTES * self._made + self._grown
        return self._stored + self._made, max(0, size)

    @property
    def is_idle(self) -> bool:
        """Whether no session counts here, and none was made since the table was seen."""
        return not (self._sessions or self._made)

    def of_user(self, user: str) -> tuple[int, int]:
        """A user's sessions in the network, and their bytes, as far as is known."""
        here, elsewhere = self._users.get(user, (0, 0)), self._elsewhere.get(user, (0, 0))
        return here[0] + elsewhere[0], here[1] + elsewhere[1]

    def user_of(self, client: str) -> str | None:
        """The owner of a client's session that counts here; None if none does."""
        session = self._sessions.get(client)
        return None if session is None else session.user

    def saw(self, sessions: int, size: int) -> None:
        """The table holds so many."""
        self._stored, self._stored_bytes, self._made, self._grown = sessions, size, 0, 0

    def report(self, now_us: int) -> Counts:
        """The report for other brokers: users with a notable part of their quota here."""
        self._expire(now_us)
        notable = [
            (user, held)
            for user, held in self._users.items()
            if NOTABLE * held[0] >= self._user_most or NOTABLE * held[1] >= self._user_bytes
        ]
        if len(notable) > REPORTED_MAX:
            notable.sort(key=lambda each: max(each[1][0] / self._user_most, each[1][1] / self._user_bytes))
        return dict(notable[-REPORTED_MAX:])

    def heard(self, reports: Iterable[Counts]) -> None:
        """Take the reports of all other brokers."""
        self._elsewhere = {}
        for report in reports:
            for user, (sessions, size) in report.items():
                known = self._elsewhere.get(user, (0, 0))
                self._elsewhere[user] = (known[0] + sessions, known[1] + size)

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def no_room(self, user: str, now_us: int) -> str | None:
        """Why no further session can be stored for a user; None if one can."""
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
        if client in self._sessions:
            self._ends.set(client, until_us)

    def over(self, client: str) -> None:
        """It is forgotten, or another broker has it."""
        self._drop(client)

    def _drop(self, client: str) -> None:
        self._ends.drop(client)
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
        for client in self._ends.due(now_us):
            self._drop(client)


def _part(whole: int, part: tuple[int, int]) -> int:
    return whole * part[0] // part[1]
