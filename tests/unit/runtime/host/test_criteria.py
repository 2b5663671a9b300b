"""Criteria as real commands: what they say, and what becomes of those that misbehave."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.config import Criterion
from tocsin.core.assignment.ranking.scoring import Criterion as Judged
from tocsin.runtime.host import criteria
from tocsin.runtime.host.criteria import NOT_ASKED, Asked, answer

DEADLINE_S = 60.0


def asking(*command: str, timeout_ms: int = 30_000, every_s: float = 0.1) -> Asked:
    criterion = Criterion(name="mine", command=command, weight=2.0, timeout_ms=timeout_ms, every_s=every_s)
    return Asked(criterion, "north-1", "north")


def shell(script: str, timeout_ms: int = 30_000) -> Asked:
    return asking("/bin/sh", "-c", script, timeout_ms=timeout_ms)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_first_line_is_the_answer() -> None:
    assert await shell("echo ' 0.25 '; echo 0.9; echo words >&2").ask() == Judged(0.25, 2.0)


async def test_no_shell_reads_the_command() -> None:
    asked = asking(sys.executable, "-c", "import sys; print(sys.argv[1] == '$HOME; echo')", "$HOME; echo")
    assert (await asked.ask()).problem == "says 'True', which is no number"


async def test_a_command_knows_for_which_broker_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_STATUS_FD", "7")
    script = '[ "$TOCSIN_BROKER $TOCSIN_CLUSTER$TOCSIN_STATUS_FD" = "north-1 north" ] && echo 1'
    assert await shell(script).ask() == Judged(1.0, 2.0)


async def test_a_command_runs_with_low_priority_in_its_own_session() -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) >= 19:
        pytest.skip("nothing has less priority than this test")
    script = (
        "import os, time\n"
        f"while os.getpriority(os.PRIO_PROCESS, 0) == {os.getpriority(os.PRIO_PROCESS, 0)}: time.sleep(0.01)\n"
        "print(int(os.getsid(0) == os.getpid()))"
    )
    assert await asking(sys.executable, "-c", script).ask() == Judged(1.0, 2.0)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 3", "ended with code 3"),
        ("echo 1; echo first >&2; echo cannot reach it >&2; exit 3", "ended with code 3: cannot reach it"),
        ("kill -9 $$", "was ended by signal 9"),
        ("true", "its first line is empty"),
        ("echo; echo 1", "its first line is empty"),
        ("echo full", "says 'full', which is no number"),
        ("echo 1.5", "says 1.5, not between 0 and 1"),
        ("echo -0.5", "says -0.5, not between 0 and 1"),
        ("echo nan", "says 'nan', which is no number"),
    ],
)
async def test_a_command_that_fails_is_named_with_its_problem(script: str, problem: str) -> None:
    assert await shell(script).ask() == Judged(None, 2.0, problem)


async def test_a_program_that_is_not_there_or_cannot_be_run_is_named(tmp_path: Path) -> None:
    assert "there is no program 'no-such-thing'" in (await asking("no-such-thing").ask()).problem
    plain = tmp_path / "plain"
    plain.write_text("no program")
    plain.chmod(0o755)
    assert "Exec format error" in (await asking(str(plain)).ask()).problem


async def test_a_command_over_its_deadline_is_killed_with_its_children(tmp_path: Path) -> None:
    started = tmp_path / "pids"
    asked = shell(
        f"sleep 600 & echo $! $$ > {started}.new; mv {started}.new {started}; wait", timeout_ms=3_000
    )
    judged = await asked.ask()
    assert judged.problem == "no answer within 3000 ms"
    await eventually(lambda: not any(_alive(int(each)) for each in started.read_text().split()))


async def test_one_that_writes_without_end_is_bounded_and_killed() -> None:
    judged = await asking("/bin/sh", "-c", "yes 0.5", timeout_ms=500).ask()
    assert judged.problem == "no answer within 500 ms"


async def test_what_a_command_leaves_running_is_ended_and_its_answer_counts(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    asked = shell(f"sleep 600 & echo $! > {started}; echo 0.75")
    assert await asked.ask() == Judged(0.75, 2.0)
    await eventually(lambda: not _alive(int(started.read_text())))


async def test_one_that_cannot_be_killed_is_not_run_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteria, "KILLED_S", 0.05)
    asked = shell("sleep 600", timeout_ms=50)
    with monkeypatch.context() as patched:
        patched.setattr(criteria, "_kill_all", lambda process: None)
        await asked.ask()
        held = asked._stuck
        assert held is not None
        assert "cannot be killed" in (await asked.ask()).problem
        assert asked._stuck is held
    os.killpg(held.pid, signal.SIGKILL)
    held.wait(DEADLINE_S)
    assert "no answer within" in (await asked.ask()).problem, "it is asked again"
    assert asked._stuck is None


async def test_it_is_asked_again_and_its_last_answer_is_kept(tmp_path: Path) -> None:
    said = tmp_path / "said"
    said.write_text("0.5")
    asked = asking("/bin/cat", str(said))
    assert asked.last == Judged(None, 2.0, NOT_ASKED)
    running = asyncio.create_task(asked.run())
    try:
        await eventually(lambda: asked.last.value == 0.5)
        said.write_text("0.1")
        await eventually(lambda: asked.last.value == 0.1)
        said.unlink()
        await eventually(lambda: "No such file" in asked.last.problem)
        assert asked.last.value is None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_command_ends_when_nobody_asks_any_more(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    asked = shell(f"echo $$ > {started}.new; mv {started}.new {started}; sleep 600")
    running = asyncio.create_task(asked.run())
    await eventually(started.exists)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await eventually(lambda: not _alive(int(started.read_text())))


@given(st.floats(0, 1))
def test_every_number_from_zero_to_one_is_read_as_it_is_written(value: float) -> None:
    assert answer(f"{value!r}\nmore".encode(), b"", 0) == (value, "")


@given(said=st.binary(max_size=100), complained=st.binary(max_size=100), code=st.integers(-64, 255))
def test_whatever_a_command_says_is_a_number_in_bounds_or_a_problem(
    said: bytes, complained: bytes, code: int
) -> None:
    value, problem = answer(said, complained, code)
    assert (value is None) == bool(problem)
    assert value is None or (0 <= value <= 1 and code == 0 and value == float(said.split(b"\n")[0]))


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
