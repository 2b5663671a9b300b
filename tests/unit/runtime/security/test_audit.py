"""The audit log: lines that last, in files of bounded size that nobody else reads."""

from __future__ import annotations

import json
from pathlib import Path

from tocsin.runtime.security.audit import KEPT, Audit


def test_each_action_is_one_line_with_user_time_and_outcome(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    audit.write("ann", "drop", "Reports", "DROP DATASET Reports", "refused", "ann may not drop Reports")
    Audit(tmp_path).write("operator", "query", "", "SELECT 1", "done")
    first, second = map(json.loads, audit.path.read_text().splitlines())
    assert first.pop("at").endswith("+00:00")
    assert first == {
        "v": 1,
        "who": "ann",
        "action": "drop",
        "name": "Reports",
        "what": "DROP DATASET Reports",
        "outcome": "refused",
        "problem": "ann may not drop Reports",
    }
    assert second["who"] == "operator" and "problem" not in second
    assert audit.path.stat().st_mode & 0o777 == 0o600
    assert audit.path.parent.stat().st_mode & 0o777 == 0o700


def test_its_size_is_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    audit = Audit(tmp_path, max_bytes=1_000)
    for number in range(200):
        audit.write("ann", "query", "", f"SELECT {number} {'x' * 5_000}"[: 100 + number], "done")
    files = sorted(audit.path.parent.glob("audit.log*"))
    assert len(files) == 1 + KEPT and all(each.stat().st_size <= 1_000 for each in files)
    assert "SELECT 199" in audit.path.read_text()


def test_what_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("in the way")
    Audit(tmp_path).write("ann", "query", "", "SELECT 1", "done")
