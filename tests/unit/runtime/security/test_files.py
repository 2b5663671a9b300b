"""What guards a door, and how it follows its files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from tocsin.config import Access, Settings
from tocsin.core.access.admission import Policy
from tocsin.core.access.rights import Who
from tocsin.errors import OperatorError
from tocsin.runtime.security import files as module
from tocsin.runtime.security.files import Changed, Guard, read_rules
from tocsin.runtime.security.users import remove_user, set_password

WHO = Who("bob", "x")
ALLOW = '[[rules]]\nallow = "both"\ntopics = ["{}"]\n'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    set_password(tmp_path / "users", "bob", b"builder")
    (tmp_path / "rules").write_text(ALLOW.format("a"))
    files = Access(users=str(tmp_path / "users"), rules=str(tmp_path / "rules"), anonymous="never")
    return Settings(access=files)


def test_without_files_there_is_nothing_to_guard_or_watch() -> None:
    guard = Guard()
    assert not guard.has_files and guard.access.open
    assert guard.users is None and guard.certificates is None
    assert guard.policy == Policy(users=False, anonymous="loopback")
    assert not guard.look()
    guard.close()


def test_the_files_of_the_settings_are_read(settings: Settings) -> None:
    guard = Guard(settings)
    assert guard.policy == Policy(users=True, anonymous="never")
    assert guard.users is not None and "bob" in guard.users
    assert guard.access.may_publish(WHO, "a") and not guard.access.may_publish(WHO, "b")
    guard.close()


def test_a_look_finds_what_changed_and_nothing_twice(settings: Settings, tmp_path: Path) -> None:
    guard = Guard(settings)
    assert not guard.look()
    (tmp_path / "rules").write_text(ALLOW.format("long/b"))
    assert guard.look() == Changed(access=True)
    assert guard.access.may_publish(WHO, "long/b") and not guard.access.may_publish(WHO, "a")
    remove_user(tmp_path / "users", "bob")
    assert guard.look() == Changed(users=frozenset({"bob"}))
    assert not guard.look()
    guard.close()


@pytest.mark.parametrize("text", [None, "nonsense", "[[rules]]"])
def test_rules_that_went_bad_neither_open_nor_lock_the_door(
    settings: Settings, tmp_path: Path, text: str | None
) -> None:
    guard = Guard(settings)
    if text is None:
        (tmp_path / "rules").unlink()
    else:
        (tmp_path / "rules").write_text(text)
    assert not guard.look()
    assert guard.access.may_publish(WHO, "a") and not guard.access.may_publish(WHO, "b")
    guard.close()


async def test_a_signal_makes_it_look_at_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 3_600.0)
    guard = Guard(settings)
    told: asyncio.Queue[Changed] = asyncio.Queue()
    watching = asyncio.create_task(guard.watch(told.put_nowait))
    await asyncio.sleep(0)
    (tmp_path / "rules").write_text(ALLOW.format("long/b"))
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(10):
        assert await told.get() == Changed(access=True)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    guard.close()


async def test_without_a_signal_it_looks_now_and_then(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    guard = Guard(settings)
    told: asyncio.Queue[Changed] = asyncio.Queue()
    watching = asyncio.create_task(guard.watch(told.put_nowait))
    set_password(tmp_path / "users", "bob", b"other")
    async with asyncio.timeout(10):
        assert await told.get() == Changed(users=frozenset({"bob"}))
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    guard.close()


@pytest.mark.parametrize(
    ("data", "problem"),
    [(None, "no such file"), (b"\xff", "not text in UTF-8"), (b"#" * ((1 << 20) + 1), "larger than 1 MiB")],
)
def test_rules_that_cannot_be_read_are_refused(tmp_path: Path, data: bytes | None, problem: str) -> None:
    path = tmp_path / "rules"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(OperatorError) as caught:
        read_rules(path)
    assert problem in caught.value.problem and "access.rules" in caught.value.problem


def test_a_bad_file_stops_a_broker_before_it_starts(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("nonsense")
    with pytest.raises(OperatorError):
        Guard(settings)
