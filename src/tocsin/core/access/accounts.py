"""Accounts: the users who registered themselves, as the store has them.

    u.<name>      an ``Account``, one cell each, written with compare-and-set: of two who take one name at once, at two
                  brokers, one is told that it is taken
    i.<digest>    an ``Invitation``, under the digest of its token: who reads the table cannot redeem it

A name begins with ``~``. No user of the operator's, no certificate and no rule has such a name by accident: a stranger
who registers is never somebody else. What follows is lower-case ASCII, so that two names never look alike.

    (none) ──register──► active ──first log-in──► used ──┐
       │                   ▲                             │
       └──register──► waiting ──approved                 │
                           └──rejected──► (none)         │
    active, used ──removed──► removed ──► (none)  ◄──────┘

A cell that is waiting or unused expires by itself, and so does a removed one: that is kept for as long as a session of
its user may be, so that nobody else takes the name and with it the session.

Every broker watches the accounts. Invariant of ``Accounts``: once ``ready``, it is what the table held a moment ago.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, Literal, NamedTuple

import msgspec

from tocsin.model.subjects import tokens_of
from tocsin.model.versions import UNREADABLE, Packed
from tocsin.ports import Change, TableSpec

ACCOUNTS_USER: Final = "$account"  # the user name of a connection that makes or changes accounts
MARK: Final = "~"  # before the name of every user who registered
NAME_MAX_CHARS: Final = 64  # with the mark
PASSWORD_MIN_BYTES: Final = 8  # as NIST SP 800-63B asks of passwords that people choose
PREFIX: Final = "u."
INVITATIONS: Final = "i."
TOKEN_BYTES: Final = 20  # of chance in an invitation
# Names of people and parts of a network whom others may believe.
RESERVED: Final = frozenset(
    {
        "abuse", "admin", "administrator", "anonymous", "broker", "coordinator", "everybody", "feeder", "guest",
        "help", "info", "moderator", "network", "nobody", "operator", "pipeline", "postmaster", "root", "security",
        "service", "staff", "support", "sysop", "system", "tocsin", "webmaster",
    }
)  # fmt: skip
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._@-]*[a-z0-9])?")

State = Literal["active", "waiting", "removed"]
How = Literal["open", "invited", "approved"]


class Account(msgspec.Struct, frozen=True, array_like=True):
    """One user who registered."""

    name: str  # with the mark
    hashed: str  # argon2; empty once removed
    how: How
    made_s: int  # by the wall's clock of the broker that made it
    state: State = "active"
    used: bool = False  # somebody has logged in with it


class Invitation(msgspec.Struct, frozen=True, array_like=True):
    """The right to register once, for the person who has its token."""

    made_s: int
    ends_s: int
    note: str = ""  # the operator's, such as for whom it is


ACCOUNT: Final = Packed("an account of a user who registered", msgspec.msgpack.Decoder(Account))
INVITATION: Final = Packed("an invitation to register", msgspec.msgpack.Decoder(Invitation))


def accounts_table(network: str) -> TableSpec:
    return TableSpec(name=f"{network}-accounts")


def is_registered(name: str) -> bool:
    """Whether a user's name is one of those who registered."""
    return name.startswith(MARK)


def account_name(wanted: str) -> str:
    """The whole name of an account; the mark may be left out."""
    return MARK + wanted.removeprefix(MARK)


def name_problem(wanted: str) -> str | None:
    """Why no account can have this name; None if one can, if it is free."""
    name = account_name(wanted)
    if not 1 < len(name) <= NAME_MAX_CHARS:
        return f"a name has from 1 to {NAME_MAX_CHARS - 1} characters behind the {MARK}"
    if not _NAME.fullmatch(name[1:]):
        return "a name has lower-case letters a-z, digits and . _ @ - between them"
    return None


def account_key(name: str) -> str:
    return PREFIX + tokens_of(name.removeprefix(MARK))


def invitation_key(token: str) -> str:
    return INVITATIONS + sha256(token.encode()).hexdigest()


class Known(NamedTuple):
    """An account, and the revision of its cell."""

    account: Account
    revision: int


class Accounts:
    """All accounts, as far as this broker has heard."""

    def __init__(self) -> None:
        self.ready = False  # the table was read once
        self.unreadable: set[str] = set()  # keys of cells that a newer release wrote, or that are damaged
        self._known: dict[str, Known] = {}  # by key
        self._arriving: dict[str, Known] | None = None  # what is there after a reset, until ``ready``

    def __len__(self) -> int:
        """How many cells there are: removed ones take a place too, while their names do."""
        return len(self._known) + len(self.unreadable)

    def __iter__(self) -> Iterator[Known]:
        return iter(tuple(self._known.values()))

    def find(self, name: str) -> Known | None:
        return self._known.get(account_key(name)) if is_registered(name) else None

    def takes(self, name: str) -> bool:
        """Whether a name is taken."""
        key = account_key(name)
        return key in self._known or key in self.unreadable

    def hash_of(self, name: str) -> str | None:
        """The hash of the user's password, also while it waits; None: there is no such user."""
        found = self.find(name)
        return None if found is None else found.account.hashed or None

    def made_since(self, moment_s: int) -> int:
        """How many accounts were made since then, in the whole network; those that were removed count, too."""
        return sum(each.account.made_s >= moment_s for each in self._known.values())

    # ── what the table says ─────────────────────────────────────────────────────────────────────────────────

    def learn(self, account: Account, revision: int) -> frozenset[str]:
        """A cell was written: here, or as the table says. The users whose password counts no more."""
        key = account_key(account.name)
        before = self._known.get(key)
        if self._arriving is not None:
            self._arriving[key] = Known(account, revision)
        if before is not None and before.revision >= revision:
            return frozenset()
        self._known[key] = Known(account, revision)
        self.unreadable.discard(key)
        gone = before is not None and before.account.hashed != account.hashed
        return frozenset((account.name,)) if gone else frozenset()

    def take(self, change: Change) -> frozenset[str]:
        """The table has changed. The users who are gone, or whose password is another."""
        if change.kind == "reset":
            self._arriving = {}
            return frozenset()
        if change.kind == "ready":
            return self._settle()
        if change.kind == "delete":
            known = self._known.get(change.key)
            if known is not None and known.revision > change.revision > 0:
                return frozenset()  # it was written here since
            if self._arriving is not None:
                self._arriving.pop(change.key, None)
            return self._forget(change.key)
        account = _read(change)
        if account is None:
            self.unreadable.add(change.key)
            return self._forget(change.key, unreadable=True)
        return self.learn(account, change.revision)

    def _settle(self) -> frozenset[str]:
        """All is told of what the table holds: what was not named is gone."""
        arrived, self._arriving, self.ready = self._arriving or {}, None, True
        gone = [key for key in self._known if key not in arrived]
        return frozenset(name for key in gone for name in self._forget(key))

    def _forget(self, key: str, *, unreadable: bool = False) -> frozenset[str]:
        if not unreadable:
            self.unreadable.discard(key)
        before = self._known.pop(key, None)
        return frozenset() if before is None else frozenset((before.account.name,))


def _read(change: Change) -> Account | None:
    """The account of a cell; None if it cannot be read, or is not where that account belongs."""
    try:
        account = ACCOUNT.read(change.value)
    except UNREADABLE:
        return None
    return account if is_registered(account.name) and account_key(account.name) == change.key else None
