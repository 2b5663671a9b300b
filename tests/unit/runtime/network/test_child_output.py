"""Output of children: bounded files, and the last line in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.runtime.network.child_output import LINE_MAX_BYTES, BoundedFile, LastLine, last_words


def test_a_file_is_appended_to_across_lives(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        file = BoundedFile(tmp_path / "a.log")
        file.write(text)
        file.close()
    assert (tmp_path / "a.log").read_bytes() == b"one\ntwo\n"


def test_a_full_file_is_set_aside_and_at_most_two_are_kept(tmp_path: Path) -> None:
    file = BoundedFile(tmp_path / "a.log", max_bytes=100)
    for number in range(1_000):
        file.write(b"%8d\n" % number)
    file.close()
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["a.log", "a.log.1"]
    assert all((tmp_path / name).stat().st_size <= 100 for name in kept)
    assert (tmp_path / "a.log").read_bytes().endswith(b"999\n")


def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "a.log").mkdir()
    BoundedFile(tmp_path / "a.log").write(b"x")


@given(st.lists(st.binary(max_size=30)))
def test_the_last_line_is_the_same_however_output_is_cut(pieces: list[bytes]) -> None:
    line = LastLine()
    for piece in pieces:
        line.feed(piece)
    lines = [part for part in b"".join(pieces).split(b"\n") if part.strip()]
    assert line.text == (lines[-1].decode(errors="replace").strip() if lines else "")


def test_a_line_without_end_is_bounded() -> None:
    line = LastLine()
    for _ in range(100):
        line.feed(b"x" * 1_000)
    assert len(line.text) == LINE_MAX_BYTES


@pytest.mark.parametrize(
    ("code", "line", "words"),
    [
        (2, "tocsin: the port is taken. Choose another.", "the port is taken. Choose another."),
        (1, "ModuleNotFoundError: No module named 'x'", "ModuleNotFoundError: No module named 'x'"),
        (1, json.dumps({"level": "error", "event": "process failed", "exception": "T\nValueError: no"}),
         "process failed: ValueError: no"),
        (1, json.dumps({"level": "error", "event": "gone"}), "gone"),
        (1, json.dumps({"level": "info", "event": "hello"}), ""),
        (1, "{not json", "{not json"),
        (1, "[7] 2026/01/01 [INF] Server is ready", ""),
        (1, "[7] 2026/01/01 [FTL] no disk", "[7] 2026/01/01 [FTL] no disk"),
        (-9, "whatever", ""),
        (0, "bye", ""),
    ],
)  # fmt: skip
def test_last_words_are_those_that_say_why(code: int, line: str, words: str) -> None:
    assert last_words(code, line) == words
