"""Points at which a process is killed or stopped: once each, and in the order in which it comes there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tocsin.runtime.faults import kill_points as points

PROGRAM = """
from tocsin.runtime.faults.kill_points import reach
for point in "aabbc":
    print(point, flush=True)
    reach(point)
"""


def run(**variables: str) -> tuple[int, str]:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, "".join(done.stdout.split())


def test_each_of_several_points_kills_once(tmp_path: Path) -> None:
    traps = {points.KILL: f"a:2:{tmp_path / 'first'};c:1:{tmp_path / 'second'}"}
    assert run() == (0, "aabbc")
    assert run(**traps) == (-signal.SIGKILL, "aa")
    assert run(**traps) == (-signal.SIGKILL, "aabbc")
    assert run(**traps) == (0, "aabbc")
    (tmp_path / "first").unlink()
    assert run(**traps) == (-signal.SIGKILL, "aa"), "it is armed again"


def test_a_process_that_is_stopped_goes_on_when_it_is_let(tmp_path: Path) -> None:
    environment = {**os.environ, points.STOP: f"b:1:{tmp_path / 'marker'}"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) and (tmp_path / "marker").read_text() == str(process.pid)
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, "".join(said.split())) == (0, "aabbc")
