"""Whether a file is still the one that was read."""

from __future__ import annotations

import os
from pathlib import Path

from tocsin.runtime.security.followed_files import NO_FILE, signature


def test_a_file_that_was_written_or_replaced_differs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert signature(path) == signature(str(path)) == NO_FILE
    path.write_text("one")
    first = signature(path)
    assert first == signature(path) != NO_FILE
    path.write_text("longer")
    second = signature(path)
    assert second != first
    (tmp_path / "other").write_text("sooner")
    found = path.stat()
    os.utime(tmp_path / "other", ns=(found.st_atime_ns, found.st_mtime_ns))
    (tmp_path / "other").replace(path)
    assert signature(path) != second, "the same time and size, but another file"


def test_a_path_that_cannot_be_one_is_no_file() -> None:
    assert signature("a\0b") == NO_FILE
    assert signature("") == NO_FILE
