"""``tocsin demo`` in its quick form, as a process of its own: Spark, brokers that are killed, and the account."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.running import READY_DEADLINE_S, Heard, until

pytestmark = [pytest.mark.xdist_group("networks with spark"), pytest.mark.timeout(600)]
DEADLINE_S = 580.0  # of a machine that has much else to do
COMMAND = [sys.executable, "-m", "tocsin", "demo", "--quick"]


def remains(of: Path) -> list[Path]:
    """State directories of networks."""
    return list(of.glob("tocsin-ephemeral-*"))


def test_a_broker_and_a_cluster_are_killed_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"delivered +│ (\S+) of (\S+) notifications", done.stdout)
    assert found is not None and found[1] == found[2] and int(found[1]) > 0
    assert re.search(r"lost +│ 0 ", done.stdout)
    for killed in ("north-1", "south-1 and south-2"):
        assert re.search(rf"{killed} killed +│ \d+ subscribers, all served again after [\d.]+ s", done.stdout)
    assert re.search(r"north-2 frozen +│ \d+ subscribers, all served again after [\d.]+ s", done.stdout)
    assert "Nothing was lost, nothing came twice, everything came in order." in done.stdout
    assert done.stderr == ""
    assert not remains(tmp_path)


def test_ctrl_c_ends_it_in_order_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    heard = Heard(COMMAND)
    try:
        until(lambda: any("Spark starts" in line for line in heard.lines), lambda: None, "brokers")
        heard.process.send_signal(signal.SIGINT)
        assert heard.process.wait(READY_DEADLINE_S) == 1
    finally:
        heard.stop()
    assert heard.lines[-1] == "Stopped before its end, in order: there is no account."
    assert not remains(tmp_path)
