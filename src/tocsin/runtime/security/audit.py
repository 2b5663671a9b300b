"""The audit log: each act of an operator, with its user, time and outcome. JSON lines in the state directory, bounded
by rotation.

    audit/audit.log      the newest; up to FILE_MAX_BYTES
    audit/audit.log.1    the one before, and so on to ``.KEPT``

The pipeline and the operator's commands write it, each while it holds the lock ``audit/lock``. A line is written, and
flushed to disk, before what it tells of is answered. If it cannot be written, the process's own
log says so, and work goes on: a full disk must not keep an operator from dropping what fills it.
"""

from __future__ import annotations

import datetime
import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec
import structlog

from tocsin.model.versions import Document
from tocsin.runtime.network.directory import make_private

FILE_MAX_BYTES: Final = 16 << 20  # some 50 000 statements
KEPT: Final = 4  # older files beside the newest: 80 MiB in all
LOCK: Final = "lock"
WHAT_MAX_CHARS: Final = 2_000  # of a statement


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that somebody did, or wanted to."""

    at: str  # UTC, ISO 8601
    who: str
    action: str  # define, drop, query, or an operator's verb
    name: str  # of what it was done to
    what: str  # as it was stated
    outcome: str  # done, refused, failed, or given up by who began it
    problem: str = ""
    result: str = ""  # figures of what is done


LINE: Final = Document("a line of the audit log", msgspec.json.Decoder(Entry))


class Audit:
    """Appends entries. Several processes may write one directory."""

    def __init__(self, state: str | Path, *, max_bytes: int = FILE_MAX_BYTES) -> None:
        self.path = Path(state).absolute() / "audit" / "audit.log"
        self._max_bytes = max_bytes

    def write(
        self, who: str, action: str, name: str, what: str, outcome: str, problem: str = "", result: str = ""
    ) -> None:
        """Note something that happened."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        what, problem, result = (each[:WHAT_MAX_CHARS] for each in (what, problem, result))
        entry = Entry(now, who, action, name, what, outcome, problem, result)
        try:
            self._append(LINE.write(entry) + b"\n")
        except OSError as error:
            structlog.get_logger().error(
                "the audit log cannot be written", problem=str(error), who=who, what=entry.what
            )

    def _append(self, line: bytes) -> None:
        make_private(self.path.parent)
        lock = os.open(self.path.with_name(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held for one line: nobody waits for long
            if self.path.exists() and self.path.stat().st_size + len(line) > self._max_bytes:
                self._rotate()
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        finally:
            os.close(lock)

    def _rotate(self) -> None:
        for number in range(KEPT, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = self.path if number == 1 else self.path.with_name(f"{self.path.name}.{number - 1}")
            if newer.exists():
                newer.replace(older)
