"""A child's output: kept in a file of bounded size, with its last line, which often says why it ended."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

import msgspec

FILE_MAX_BYTES = 8 << 20  # about 40 000 lines; with the file before it, at most twice that per child
LINE_MAX_BYTES = 8 << 10  # of the line that is remembered; the file gets everything
WORDS_MAX = 500
UNIMPORTANT = ("[INF]", "[DBG]", "[TRC]", "[WRN]")  # as nats-server marks its lines


class BoundedFile:
    """Appends to a file; when it is full it becomes ``….1``, in place of the one before. Never fails its caller."""

    def __init__(self, path: Path, *, max_bytes: int = FILE_MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file: BinaryIO | None = None
        self._size = 0

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk: the child's work matters more than its log
            if self._file is None or self._size + len(data) > self._max_bytes:
                self._open()
            assert self._file is not None
            self._size += self._file.write(data[-self._max_bytes :])

    def _open(self) -> None:
        self.close()
        with contextlib.suppress(FileNotFoundError):
            self._size = self._path.stat().st_size
            if self._size > self._max_bytes // 2:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._size = os.fstat(descriptor).st_size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class LastLine:
    """The last line that is not blank, of output that comes in pieces."""

    def __init__(self) -> None:
        self._done = b""
        self._begun = b""

    def feed(self, data: bytes) -> None:
        *whole, begun = (self._begun + data).split(b"\n")
        for line in reversed(whole):
            if line.strip():
                self._done = line[-LINE_MAX_BYTES:]
                break
        self._begun = begun[-LINE_MAX_BYTES:]

    @property
    def text(self) -> str:
        line = self._begun if self._begun.strip() else self._done
        return line.decode(errors="replace").strip()


def last_words(code: int, line: str) -> str:
    """Why a process ended with ``code``, if its last line says so; else empty."""
    if code <= 0 or any(mark in line for mark in UNIMPORTANT):
        return ""
    if line.startswith("{"):
        with contextlib.suppress(msgspec.DecodeError):
            return _said(msgspec.json.decode(line.encode(), type=dict[str, object]))
    return line.removeprefix("tocsin: ")[:WORDS_MAX]


def _said(line: dict[str, object]) -> str:
    """A structured line as text; only errors say why a process ended."""
    if line.get("level") != "error":
        return ""
    details = str(line.get("problem") or line.get("exception") or "").strip().rpartition("\n")[2]
    return (
        f"{line.get('event', '')}: {details}"[:WORDS_MAX]
        if details
        else str(line.get("event", ""))[:WORDS_MAX]
    )
