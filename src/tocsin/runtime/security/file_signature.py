"""Whether a file has changed since it was read."""

from __future__ import annotations

from pathlib import Path

Signature = tuple[int, int, int]
NO_FILE: Signature = (0, 0, 0)


def signature(path: str | Path) -> Signature:
    """The properties that change when a file is rewritten: its time, size and inode; NO_FILE if there is none."""
    if path == "":  # pathlib would take it for the working directory
        return NO_FILE
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return NO_FILE
    return (found.st_mtime_ns, found.st_size, found.st_ino)
