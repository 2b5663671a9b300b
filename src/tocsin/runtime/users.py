"""The file of users: a name and an argon2 hash a line, written by ``tocsin user``, read by every broker.

    alice:$argon2id$v=19$m=19456,t=2,p=1$…

To check a password costs some 20 ms and 19 MiB on purpose, so it is done in threads of its own, of which there are
few, and no more than WAITING_MAX wait for them. What was proven once is remembered as a digest under a key that only
this process has: thousands of devices that reconnect at once, after a broken link say, are let in without a hash.

A broker reads the file again when it changes (``reload``); what was remembered of a user whose line changed counts no
more. A file that cannot be read then leaves the users as they were, and says so in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hmac
import os
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError, VerificationError

from tocsin.core.access_rules import user_name_problem
from tocsin.errors import OperatorError
from tocsin.runtime.signature import signature

# The least that OWASP's password storage guidance names for argon2id (2024): 19 MiB, two passes, one lane. More would
# make the first wave of devices after a broker's start wait longer than they do.
_HASHER: Final = PasswordHasher(memory_cost=19_456, time_cost=2, parallelism=1)
FILE_MAX_BYTES: Final = 16 << 20
USERS_MAX: Final = 100_000  # at 110 bytes a line, 11 MB
PASSWORD_MAX_BYTES: Final = 1_024
THREADS_MAX: Final = 4  # so 76 MiB of hashing at once
WAITING_MAX: Final = 1_000  # passwords that wait for a thread: on two cores, some ten seconds' worth
PROVEN_MAX: Final = 20_000  # passwords remembered; above the default limits.connections_max


class UsersBusy(Exception):
    """Too many passwords wait to be checked; this one is not."""


class Users:
    """The users of a broker."""

    def __init__(self, path: Path) -> None:
        """Read the file; ``OperatorError`` if that is not possible."""
        self.path = path
        self._signature = signature(path)
        self._hashes = read_users(path)
        self._key = secrets.token_bytes(32)
        self._proven: dict[str, tuple[str, bytes]] = {}  # user → the line's hash and the password's digest
        self._waiting = 0
        threads = min(THREADS_MAX, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="passwords")
        self._turns = asyncio.Semaphore(threads)
        self._nobody = _HASHER.hash(secrets.token_bytes(16))  # checked for users that there are not

    def __contains__(self, name: str) -> bool:
        return name in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def recall(self, name: str, password: bytes) -> bool:
        """Whether this password was proven before, and still counts. Quick; False says nothing."""
        known = self._proven.get(name)
        if known is None or known[0] != self._hashes.get(name):
            return False
        return hmac.compare_digest(known[1], self._digest(name, password))

    async def verify(self, name: str, password: bytes) -> bool:
        """Whether this is the user's password; ``UsersBusy`` if too many are asked for.

        Cancel it for whoever gives up: in a crowd, hashing for those would keep the others until they give up as well.
        """
        if self.recall(name, password):
            return True
        if len(password) > PASSWORD_MAX_BYTES:
            return False
        if self._waiting >= WAITING_MAX:
            raise UsersBusy
        self._waiting += 1
        try:
            async with self._turns:
                return self.recall(name, password) or await self._hash(name, password)
        finally:
            self._waiting -= 1

    async def _hash(self, name: str, password: bytes) -> bool:
        hashed = self._hashes.get(name)
        # A user that there is not takes as long as a wrong password: nobody learns who there is.
        good = await asyncio.get_running_loop().run_in_executor(
            self._pool, _matches, hashed or self._nobody, password
        )
        if not good or hashed is None or self._hashes.get(name) != hashed:
            return False
        self._remember(name, hashed, password)
        return True

    def reload(self) -> frozenset[str] | None:
        """Read the file again if it changed: the users whose line is gone or another; None if it did not change.

        ``OperatorError`` if it cannot be read; the users stay as they were.
        """
        found = signature(self.path)
        if found == self._signature:
            return None
        self._signature = found  # once a change: a bad file is complained about once
        hashes = read_users(self.path)
        before, self._hashes = self._hashes, hashes
        return frozenset(name for name, hashed in before.items() if hashes.get(name) != hashed)

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
    if problem := user_name_problem(name):
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
    if path.exists():  # whoever was let read the file, such as the broker's own user, still is
        owner = path.stat()
        with contextlib.suppress(PermissionError):
            os.chown(partial, owner.st_uid, owner.st_gid)
    partial.replace(path)


def _unusable(path: Path, reason: str) -> OperatorError:
    return OperatorError(
        f"the users' file {path} (access.users) cannot be used: {reason[:1].lower()}{reason[1:]}",
        "Make or mend it with `tocsin user add NAME`",
    )
