"""Ephemeral state: removed when nobody uses it, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tocsin.runtime.network import janitor
from tocsin.runtime.network.directory import StateDirectory
from tocsin.runtime.network.ephemeral import ABANDONED_AFTER_S, ephemeral_directory, sweep


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_nothing_is_left(temporary: Path) -> None:
    with ephemeral_directory() as directory:
        assert directory.path.parent == temporary
        (directory.nats / "data").write_text("x")
    assert list(temporary.iterdir()) == []


def test_nothing_is_left_after_an_error(temporary: Path) -> None:
    with pytest.raises(ZeroDivisionError), ephemeral_directory():
        raise ZeroDivisionError
    assert list(temporary.iterdir()) == []


def old(path: Path) -> Path:
    path.mkdir()
    (path / "lock").touch()
    past = path.stat().st_mtime - 2 * ABANDONED_AFTER_S
    os.utime(path, (past, past))
    return path


def test_abandoned_directories_are_swept_and_no_others(tmp_path: Path) -> None:
    abandoned = old(tmp_path / f"{janitor.PREFIX}a")
    held = StateDirectory.hold(tmp_path / f"{janitor.PREFIX}b")
    os.utime(held.path, (0, 0))
    young = tmp_path / f"{janitor.PREFIX}c"
    young.mkdir()
    foreign = old(tmp_path / "tocsin")
    link = tmp_path / f"{janitor.PREFIX}d"
    link.symlink_to(foreign)
    sweep(tmp_path)
    assert not abandoned.exists()
    assert held.path.exists() and young.exists() and foreign.exists() and link.is_symlink()
    held.release()


def test_the_janitor_removes_only_what_is_ours(tmp_path: Path) -> None:
    assert not janitor.remove(tmp_path)
    assert tmp_path.exists()
