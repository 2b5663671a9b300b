"""The files that guard a broker's entrance: users, rules and certificates, read and followed.

The files are looked at every LOOK_S seconds, and at once on SIGHUP; a changed file is read again. An unreadable file
then leaves things as they were, with a line in the log: an operator's slip must neither lock everybody out nor let
everybody in.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

from tocsin.config import Settings
from tocsin.core.access.accounts import Accounts
from tocsin.core.access.admission import Policy
from tocsin.core.access.rights import Access
from tocsin.core.access.rules import FILE_MAX_BYTES, Rule, parse_rules
from tocsin.errors import OperatorError
from tocsin.runtime.security.followed_files import Reminder, signature
from tocsin.runtime.security.tls import Certificates
from tocsin.runtime.security.users import Users

LOOK_S: Final = 1.0
SOON_S: Final = 86_400.0  # before a list of revoked certificates ends: most are renewed every day or week

T = TypeVar("T")


class Changed(msgspec.Struct, frozen=True):
    """The changes found by a look at the files."""

    users: frozenset[str] = frozenset()  # whose line in the users' file is gone or another
    access: bool = False
    certificates: bool = False

    def __bool__(self) -> bool:
        return bool(self.users or self.access or self.certificates)


class Guard:
    """Users (None: there are none), access and certificates (None: no TLS). ``Guard()`` has no files at all."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Read the files; ``OperatorError`` if one cannot be used."""
        settings = settings or Settings()
        files = settings.access
        registers = files.registration != "off"
        self.policy = Policy(
            users=bool(files.users) or registers,
            anonymous=files.anonymous,
            origins=files.origins,
            certified=settings.tls.client_certificates == "required",
            registers=registers,
        )
        failures = settings.limits.password_failures
        self.users: Users | None = None
        if files.users or registers:
            accounts = Accounts() if registers else None
            self.users = Users(Path(files.users) if files.users else None, failures, accounts)
        self._rules = Path(files.rules) if files.rules else None
        self._registered_rules = Path(files.registered_rules) if registers else None
        self._rules_signatures = self._signatures()
        self.access = self._read_access()
        self.certificates = Certificates(settings.tls) if settings.tls.certificate else None
        self._reminder = Reminder(
            "client certificates"
        )  # of a list of revoked certificates that ends, or has ended
        self._log = structlog.get_logger()

    @property
    def has_files(self) -> bool:
        """Whether there is anything to watch."""
        return not (self.users is None and self._rules is None and self.certificates is None)

    @property
    def accounts(self) -> Accounts | None:
        """The users who registered; None: nobody can."""
        return None if self.users is None else self.users.registered

    def look(self) -> Changed:
        """Read again what changed."""
        users = self._tried(self.users.reload) if self.users else None
        return Changed(
            users=users or frozenset(),
            access=bool(self._tried(self._reload_rules)),
            certificates=bool(self.certificates and self._tried(self.certificates.reload)),
        )

    def problem(self, within_s: float = 0) -> str | None:
        """The problem that keeps out legitimate clients, now or within so many seconds; None: there is none."""
        return None if self.certificates is None else self.certificates.list_problem(within_s)

    def _warn(self, now_s: float) -> None:
        """Say in the log that a list of revoked certificates ends, or has ended."""
        self._reminder.remind(self.problem(SOON_S), now_s)

    async def watch(self, changed: Callable[[Changed], None]) -> None:
        """Look again and again, and say what changed; until cancelled."""
        loop, now = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, now.set)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await now.wait()
                now.clear()
                # In a thread: a large file of users takes a while to read.
                found = await asyncio.to_thread(self.look)
                self._warn(loop.time())
                if found:
                    self._log.info(
                        "files of the guard changed",
                        users=len(found.users),
                        access=found.access,
                        certificates=found.certificates,
                    )
                    changed(found)
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    def close(self) -> None:
        if self.users is not None:
            self.users.close()

    def _reload_rules(self) -> bool:
        found = self._signatures()
        if found == self._rules_signatures:
            return False
        self._rules_signatures = found
        self.access = self._read_access()
        return True

    def _signatures(self) -> tuple[object, ...]:
        return tuple(signature(each) for each in (self._rules, self._registered_rules) if each is not None)

    def _read_access(self) -> Access:
        registered = None if self._registered_rules is None else read_rules(self._registered_rules)
        return Access(read_rules(self._rules) if self._rules else None, registered)

    def _tried(self, reload: Callable[[], T]) -> T | None:
        try:
            return reload()
        except OperatorError as error:
            self._log.error("a changed file cannot be used; all stays as it was", problem=str(error))
            return None


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a file; ``OperatorError`` if there are none to be had."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            raise _unreadable(path, f"it is larger than {FILE_MAX_BYTES >> 20} MiB")
        return parse_rules(data.decode(), str(path))
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not text in UTF-8") from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None


def _unreadable(path: Path, reason: str) -> OperatorError:
    return OperatorError(
        f"the rules {path} (access.rules) cannot be read: {reason[:1].lower()}{reason[1:]}",
        "Give a file of rules, or leave access.rules out to allow everything",
    )
