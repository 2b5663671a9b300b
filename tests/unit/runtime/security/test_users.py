"""The file of users: written whole, checked in threads, remembered, read again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin.core.access.logins import Logins, LoginTurn
from tocsin.errors import OperatorError
from tocsin.runtime.security import users as module
from tocsin.runtime.security.users import Users, UsersBusy, read_users, remove_user, set_password


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    set_password(path, "alice", b"wonder")
    set_password(path, "bob", b"builder")
    return path


@pytest.fixture
def users(path: Path) -> Iterator[Users]:
    users = Users(path)
    yield users
    users.close()


async def test_a_password_is_that_of_its_user_only(users: Users) -> None:
    assert await users.verify("alice", b"wonder")
    assert not await users.verify("alice", b"builder")
    assert not await users.verify("carol", b"wonder")
    assert not await users.verify("alice", b"")
    assert not await users.verify("alice", b"x" * 2_000)


async def test_what_was_proven_is_remembered_and_nothing_else(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not users.recall("alice", b"wonder")
    await users.verify("alice", b"wonder")
    await users.verify("bob", b"wrong")
    assert users.recall("alice", b"wonder")
    assert not users.recall("alice", b"wonder2") and not users.recall("bob", b"wrong")

    def no_hashing(hashed: str, password: bytes) -> bool:
        raise AssertionError("it was remembered")

    monkeypatch.setattr(module, "_matches", no_hashing)
    assert await users.verify("alice", b"wonder")


async def test_what_is_remembered_is_bounded(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROVEN_MAX", 1)
    await users.verify("alice", b"wonder")
    await users.verify("bob", b"builder")
    assert users.recall("bob", b"builder") and not users.recall("alice", b"wonder")


async def test_a_changed_line_counts_at_once_and_the_others_stay(users: Users, path: Path) -> None:
    await users.verify("alice", b"wonder")
    await users.verify("bob", b"builder")
    assert users.reload() is None
    set_password(path, "alice", b"new")
    set_password(path, "carol", b"singer")
    assert users.reload() == frozenset({"alice"})
    assert not users.recall("alice", b"wonder") and users.recall("bob", b"builder")
    assert await users.verify("alice", b"new") and await users.verify("carol", b"singer")
    remove_user(path, "bob")
    assert users.reload() == frozenset({"bob"})
    assert "bob" not in users and len(users) == 2
    assert not await users.verify("bob", b"builder")


def test_a_file_that_went_bad_leaves_the_users_as_they_were(users: Users, path: Path) -> None:
    path.write_text("nonsense")
    with pytest.raises(OperatorError):
        users.reload()
    assert "alice" in users
    assert users.reload() is None, "said once"
    path.unlink()
    with pytest.raises(OperatorError):
        users.reload()
    assert "alice" in users


async def test_a_user_removed_while_the_password_is_checked_is_not_let_in(
    users: Users, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    really = module._matches

    def slow(hashed: str, password: bytes) -> bool:
        go_on.wait(10)
        return really(hashed, password)

    monkeypatch.setattr(module, "_matches", slow)
    checking = asyncio.create_task(users.verify("bob", b"builder"))
    await asyncio.sleep(0)
    remove_user(path, "bob")
    users.reload()
    go_on.set()
    assert not await checking


async def test_waiting_passwords_are_bounded_and_do_not_block_the_loop(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "_logins", Logins(30, waiting_max=20))  # so two of one source
    go_on = threading.Event()
    monkeypatch.setattr(module, "_matches", lambda hashed, password: go_on.wait(10))
    waiting = [asyncio.create_task(users.verify("alice", str(n).encode())) for n in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(UsersBusy):
        await users.verify("alice", b"one more")
    go_on.set()
    assert await asyncio.gather(*waiting) == [True] * 3


async def test_clients_that_gave_up_or_were_proven_are_not_hashed(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[bytes] = []
    really = module._matches

    def counted(line: str, password: bytes) -> bool:
        hashed.append(password)
        return really(line, password)

    monkeypatch.setattr(module, "_matches", counted)
    monkeypatch.setattr(users, "_free", 1)
    same = [asyncio.create_task(users.verify("alice", b"wonder")) for _ in range(5)]
    gone = asyncio.create_task(users.verify("bob", b"builder"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await asyncio.gather(*same) == [True] * 5
    assert hashed == [b"wonder"]


# ── the file ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_file_is_private_whole_and_has_no_password(path: Path) -> None:
    (path.parent / ".users.partial").write_text("from a crash")
    set_password(path, "carol", b"singer")
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"singer" not in path.read_bytes()
    assert sorted(read_users(path)) == ["alice", "bob", "carol"]
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_editors_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users"
    threads = [
        threading.Thread(target=set_password, args=(path, f"user-{number}", b"x")) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_users(path)) == 8


def test_a_failed_edit_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(OperatorError, match="no user 'carol'"):
        remove_user(path, "carol")
    for name, password in (("a/b", b"x"), ("carol", b""), ("carol", b"x" * 1_025)):
        with pytest.raises(OperatorError):
            set_password(path, name, password)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"alice", "line 1 is not name:hash"),
        (b"alice:secret", "line 1 is not name:hash"),
        (b"\na/b:$argon2id$x", "line 2 is not name:hash"),
        (b"a:$argon2id$x\na:$argon2id$y", "line 2 names a a second time"),
        (b"\xff", "not text in UTF-8"),
        (b"x" * ((16 << 20) + 1), "larger than 16 MiB"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, data: bytes, problem: str) -> None:
    (tmp_path / "users").write_bytes(data)
    with pytest.raises(OperatorError) as caught:
        Users(tmp_path / "users")
    assert problem in caught.value.problem and "tocsin user add" in caught.value.remedy


def test_a_missing_file_is_refused_for_brokers(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no such file"):
        Users(tmp_path / "absent")


def test_too_many_users_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "USERS_MAX", 2)
    with pytest.raises(OperatorError, match="2 users already"):
        set_password(path, "carol", b"x")
    monkeypatch.setattr(module, "USERS_MAX", 1)
    with pytest.raises(OperatorError, match="at most 1"):
        read_users(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_users_or_a_refusal(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "any").write_bytes(data)
    with contextlib.suppress(OperatorError):
        read_users(tmp_path / "any")


async def test_a_hash_that_argon2_cannot_read_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("alice:$argon2id$broken\n")
    users = Users(tmp_path / "users")
    assert not await users.verify("alice", b"x")
    users.close()


async def test_a_flood_of_wrong_passwords_keeps_nobody_else_out(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[bytes] = []
    go_on = threading.Event()

    def slow(hashed: str, password: bytes) -> bool:
        go_on.wait(10)
        order.append(password)
        return password == b"right"

    monkeypatch.setattr(module, "_matches", slow)
    flood = [asyncio.create_task(users.verify(f"guess-{n}", b"wrong", "192.0.2.1")) for n in range(80)]
    await asyncio.sleep(0)
    honest = asyncio.create_task(users.verify("alice", b"right", "192.0.2.2"))
    await asyncio.sleep(0)
    go_on.set()
    assert await honest
    assert order.index(b"right") < 10, "the honest one does not wait for the flood"
    assert not any(await asyncio.gather(*flood))
    with pytest.raises(UsersBusy, match="too many wrong passwords"):
        await users.verify("bob", b"wrong", "192.0.2.1")
    assert await users.verify("alice", b"right too", "192.0.2.1") is False, "a proven name is still looked at"


async def test_whoever_gives_up_pays_for_the_check_that_runs(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(module, "_matches", lambda hashed, password: go_on.wait(10) and False)
    monkeypatch.setattr(users, "_logins", Logins(1))
    for number in range(3):
        task = asyncio.create_task(users.verify(f"guess-{number}", b"wrong", "192.0.2.1"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    go_on.set()
    for _ in range(1_000):
        if users._free == users._pool._max_workers:
            break
        await asyncio.sleep(0.005)
    with pytest.raises(UsersBusy):
        await users.verify("bob", b"wrong", "192.0.2.1")


async def test_a_client_that_leaves_in_its_turn_takes_no_thread(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(
        module, "_matches", lambda hashed, password: bool(go_on.wait(10)) and password == b"right"
    )
    running = [
        asyncio.create_task(users.verify("alice", b"wrong", f"192.0.2.{number}"))
        for number in range(users._free)
    ]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(users.verify("alice", b"wrong", f"192.0.3.{n}")) for n in range(8)]
    await asyncio.sleep(0)
    asked = users._logins.next

    def leave(now: int) -> LoginTurn | None:
        """All who wait go, and none of their tasks has noticed yet."""
        for each in waiting:
            each.cancel()
        return asked(now)

    monkeypatch.setattr(users._logins, "next", leave)
    go_on.set()
    await asyncio.gather(*running, *waiting, return_exceptions=True)
    monkeypatch.undo()
    monkeypatch.setattr(module, "_matches", lambda hashed, password: password == b"right")
    async with asyncio.timeout(5):
        assert await users.verify("alice", b"right", "192.0.2.9")
    assert users._free == users._pool._max_workers


async def test_a_client_that_leaves_as_another_takes_its_place_harms_nobody(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(module, "_matches", lambda hashed, password: bool(go_on.wait(10)))
    monkeypatch.setattr(users, "_logins", Logins(30, waiting_max=2))
    running = [
        asyncio.create_task(users.verify("alice", b"x", f"192.0.2.{number}")) for number in range(users._free)
    ]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(users.verify(f"n{n}", b"x", "192.0.3.1")) for n in range(2)]
    await asyncio.sleep(0)
    other = asyncio.create_task(users.verify("alice", b"y", "192.0.4.1"))  # its first step is before theirs
    for each in waiting:
        each.cancel()
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(5):
        assert await other
        await asyncio.gather(*running, *waiting, return_exceptions=True)
    assert users._free == users._pool._max_workers


async def test_a_client_that_lost_its_place_gives_no_thread_back(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(module, "_matches", lambda hashed, password: bool(go_on.wait(10)))
    monkeypatch.setattr(users, "_logins", Logins(30, waiting_max=2))
    running = [
        asyncio.create_task(users.verify("alice", b"x", f"192.0.2.{number}")) for number in range(users._free)
    ]
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(users.verify(f"n{n}", b"x", "192.0.3.1")) for n in range(2)]
    await asyncio.sleep(0)
    other = asyncio.create_task(users.verify("alice", b"y", "192.0.4.1"))
    asyncio.get_running_loop().call_soon(waiting[1].cancel)  # after that has taken its place
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(5):
        assert await other
        await asyncio.gather(*running, *waiting, return_exceptions=True)
    assert users._free == users._pool._max_workers
