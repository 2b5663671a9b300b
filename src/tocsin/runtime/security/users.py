"""The file of users: a name and an argon2 hash a line, written by ``tocsin user``, read by every broker.

    alice:$argon2id$v=19$m=19456,t=2,p=1$…

To check a password costs some 20 ms and 19 MiB on purpose, so it is done in threads of its own, of which there are few.
``core.access.logins`` chooses the next check, and the log-ins that are refused unchecked. A proven password is
remembered as a digest under a key that only this process has: thousands of devices that reconnect at once, for example
after a broken link, are admitted without a hash.

A broker reads the file again when it changes (``reload``); what was remembered of a user whose line changed counts no
more. A file that cannot be read then leaves the users as they were, and says so in the log.

Users who registered (``core.access.accounts``) are in the store instead of the file; their passwords wait in the same
queue. A name that is in the file is the file's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hmac
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError, VerificationError

from tocsin.config import Limits
from tocsin.core.access.accounts import MARK, Accounts, is_registered
from tocsin.core.access.admission import is_loopback, source_of
from tocsin.core.access.logins import Logins, LoginTurn, Turned
from tocsin.core.access.rule_tables import user_name_problem
from tocsin.errors import OperatorError
from tocsin.runtime.machines.clock import now_us, token_bytes
from tocsin.runtime.security.followed_files import signature

# The least that OWASP's password storage guidance names for argon2id (2024): 19 MiB, two passes, one lane. More would
# make the first wave of devices after a broker's start wait longer than they do.
_HASHER: Final = PasswordHasher(memory_cost=19_456, time_cost=2, parallelism=1)
FILE_MAX_BYTES: Final = 16 << 20
USERS_MAX: Final = 100_000  # at 110 bytes a line, 11 MB
PASSWORD_MAX_BYTES: Final = 1_024
THREADS_MAX: Final = 4  # so 76 MiB of hashing at once
PROVEN_MAX: Final = 20_000  # passwords remembered; above the default limits.connections_max


class UsersBusy(Exception):
    """A password that is not looked at."""

    def __init__(self, turned: Turned) -> None:
        self.turned = turned
        super().__init__(str(turned))


class Users:
    """The users of a broker."""

    def __init__(
        self,
        path: Path | None,
        failures_max: int = Limits().password_failures,
        registered: Accounts | None = None,
    ) -> None:
        """Read the file; ``OperatorError`` if that is not possible. ``registered``: the users who registered."""
        self.path = path
        self.registered = registered
        self._signature = signature(path) if path else None
        self._hashes = read_users(path) if path else {}
        self._key = token_bytes(32)
        self._proven: dict[str, tuple[str, bytes]] = {}  # user → the line's hash and the password's digest
        self._logins = Logins(failures_max)
        self._turns: dict[LoginTurn, asyncio.Future[None]] = {}  # of the waiting checks
        threads = min(THREADS_MAX, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="passwords")
        self._free = threads
        self._nobody = _HASHER.hash(token_bytes(16))  # checked for users that there are not

    def __contains__(self, name: str) -> bool:
        return name in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def problem(self, name: str) -> str:
        """Why a user whose password is right may not come in; empty if he may."""
        if name in self._hashes or self.registered is None or (known := self.registered.find(name)) is None:
            return ""
        return "this account waits for the operator's approval" if known.account.state == "waiting" else ""

    def _hash_of(self, name: str) -> str | None:
        """The hash of a user's password; None: there is no such user."""
        found = self._hashes.get(name)
        return self.registered.hash_of(name) if found is None and self.registered is not None else found

    def recall(self, name: str, password: bytes) -> bool:
        """Whether this password was proven before, and still counts. Quick; False says nothing."""
        known = self._proven.get(name)
        if known is None or known[0] != self._hash_of(name):
            return False
        return hmac.compare_digest(known[1], self._digest(name, password))

    async def verify(self, name: str, password: bytes, address: str = "") -> bool:
        """Whether this is the user's password, as somebody at that address says; ``UsersBusy`` if it is not looked at.

        Cancel it when a client gives up: in a crowd, its hashing would keep the others until they give up as well.
        """
        if self.recall(name, password):
            return True
        if len(password) > PASSWORD_MAX_BYTES:
            return False
        ticket = await self._take_turn(name, address)
        if self.recall(name, password):
            self._over(ticket, good=None)
            return True
        return await self._check(ticket, password)

    async def hash(self, name: str, password: bytes, address: str = "") -> str:
        """Hash a password that somebody at that address chooses, in its turn; ``UsersBusy`` if it is not."""
        ticket = await self._take_turn(name, address)
        job = asyncio.get_running_loop().run_in_executor(self._pool, _HASHER.hash, password)
        # Whoever asks may go: the thread is busy until it is done.
        job.add_done_callback(lambda _: self._over(ticket, good=None))
        return await asyncio.shield(job)

    async def _take_turn(self, name: str, address: str) -> LoginTurn:
        """Wait for a thread; ``UsersBusy`` if there will be none. The caller gives it back (``_over``)."""
        local = not address or is_loopback(address)
        ticket, turned, gone = self._logins.ask(source_of(address), name, now_us(), local=local)
        for each in gone:
            lost = self._turns.pop(each)
            if not lost.done():  # else its client has left in this moment
                lost.set_exception(UsersBusy(Turned("crowded", 1)))
        if ticket is None:
            assert turned is not None, "it is one or the other"
            raise UsersBusy(turned)
        turn = self._turns[ticket] = asyncio.get_running_loop().create_future()
        self._call_next()
        try:
            await turn
        except asyncio.CancelledError:
            self._logins.forget(ticket)
            self._turns.pop(ticket, None)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._over(ticket, good=None)  # it was called in the same moment
            raise
        return ticket

    async def _check(self, ticket: LoginTurn, password: bytes) -> bool:
        """Check it in a thread. A client that leaves during the check has used the thread all the same; it counts as a
        wrong password.
        """
        name = ticket.name
        hashed = self._hash_of(name)
        # A user that there is not takes as long as a wrong password: nobody learns who there is.
        job = asyncio.get_running_loop().run_in_executor(
            self._pool, _matches, hashed or self._nobody, password
        )
        good = False
        try:
            good = await asyncio.shield(job) and hashed is not None and self._hash_of(name) == hashed
        finally:
            if job.done():
                self._over(ticket, good=good)
            else:
                job.add_done_callback(lambda _: self._over(ticket, good=False))
        if good and hashed is not None:
            self._remember(name, hashed, password)
        return good

    def _call_next(self) -> None:
        """Give free threads to those whose turn it is."""
        while self._free and (ticket := self._logins.next(now_us())) is not None:
            turn = self._turns.pop(ticket)
            if turn.done():  # its client has left in this moment: no thread is lost with it
                self._logins.done(ticket, None, now_us())
                continue
            self._free -= 1
            turn.set_result(None)

    def _over(self, ticket: LoginTurn, *, good: bool | None) -> None:
        self._logins.done(ticket, good, now_us())
        self._free += 1
        self._call_next()

    def reload(self) -> frozenset[str] | None:
        """Read the file again if it changed: the users whose line is gone or another; None if it did not change.

        ``OperatorError`` if it cannot be read; the users stay as they were.
        """
        if self.path is None or (found := signature(self.path)) == self._signature:
            return None
        self._signature = found  # once a change: a bad file is complained about once
        hashes = read_users(self.path)
        before, self._hashes = self._hashes, hashes
        changed = frozenset(name for name, hashed in before.items() if hashes.get(name) != hashed)
        self.changed(changed)
        return changed

    def changed(self, names: Iterable[str]) -> None:
        """These users are gone, or have another password."""
        self._logins.unprove(names)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _remember(self, name: str, hashed: str, password: bytes) -> None:
        self._proven.pop(name, None)
        if len(self._proven) >= PROVEN_MAX:
            del self._proven[next(iter(self._proven))]
        self._proven[name] = (hashed, self._digest(name, password))

    def _digest(self, name: str, password: bytes) -> bytes:
        return hmac.digest(self._key, name.encode() + b"\0" + password, sha256)


def _matches(hashed: str, password: bytes) -> bool:
    try:
        return _HASHER.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


# ── the file ────────────────────────────────────────────────────────────────────────────────────────────────


def read_users(path: Path) -> dict[str, str]:
    """Names and hashes; ``OperatorError`` if the file cannot be read or is something else."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    if len(data) > FILE_MAX_BYTES:
        raise _unusable(path, f"it is larger than {FILE_MAX_BYTES >> 20} MiB")
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise _unusable(path, "it is not text in UTF-8") from None
    users: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        name, colon, hashed = line.partition(":")
        if not line.strip():
            continue
        if not colon or user_name_problem(name) or not hashed.startswith("$argon2"):
            raise _unusable(path, f"line {number} is not name:hash with a hash made by argon2")
        if name in users:
            raise _unusable(path, f"line {number} names {name} a second time")
        users[name] = hashed
    if len(users) > USERS_MAX:
        raise _unusable(path, f"it has {len(users)} users; at most {USERS_MAX} are allowed")
    return users


def set_password(path: Path, name: str, password: bytes) -> bool:
    """Add a user or change a password; True if the user is new. Makes the file if there is none."""
    problem = user_name_problem(name)
    if problem is None and is_registered(name):
        problem = f"names that begin with {MARK} are of users who register"
    if problem:
        raise OperatorError(f"nobody can be called {name!r}: {problem}", "Choose another name")
    if not password or len(password) > PASSWORD_MAX_BYTES:
        raise OperatorError(
            f"the password has {len(password)} bytes", f"Give one of 1 to {PASSWORD_MAX_BYTES} bytes"
        )
    try:
        hashed = _HASHER.hash(password)
    except Argon2Error as error:
        raise OperatorError(f"the password cannot be hashed: {error}", "Free some memory") from None
    with _edited(path, create=True) as users:
        new = name not in users
        users[name] = hashed
        if len(users) > USERS_MAX:
            raise OperatorError(f"{path} has {USERS_MAX} users already", "Remove some")
    return new


def remove_user(path: Path, name: str) -> None:
    """Remove a user; ``OperatorError`` if there is none of that name."""
    with _edited(path, create=False) as users:
        if users.pop(name, None) is None:
            raise OperatorError(f"there is no user {name!r} in {path}", "See them with `tocsin user list`")


@contextlib.contextmanager
def _edited(path: Path, *, create: bool) -> Iterator[dict[str, str]]:
    """The users to change. One editor at a time; readers see the file as it was or as it will be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        users = {} if create and not path.exists() else read_users(path)
        yield users
        _write(path, users)
        os.fsync(directory)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    finally:
        os.close(directory)


def _write(path: Path, users: Mapping[str, str]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # from a crash, perhaps with other permissions
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{name}:{hashed}\n" for name, hashed in sorted(users.items()))
        file.flush()
        os.fsync(file.fileno())
    if path.exists():  # users that could read the file, such as the broker's own, still can
        owner = path.stat()
        with contextlib.suppress(PermissionError):
            os.chown(partial, owner.st_uid, owner.st_gid)
    partial.replace(path)


def _unusable(path: Path, reason: str) -> OperatorError:
    return OperatorError(
        f"the users' file {path} (access.users) cannot be used: {reason[:1].lower()}{reason[1:]}",
        "Make or mend it with `tocsin user add NAME`",
    )
