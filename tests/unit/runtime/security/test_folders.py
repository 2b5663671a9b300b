"""Where feeds may read files."""

from __future__ import annotations

from pathlib import Path

from tocsin.runtime.security.folders import Folders


def test_folders_below_a_named_directory_may_be_read_and_no_others(tmp_path: Path) -> None:
    spool, state = tmp_path / "spool", tmp_path / "spool" / ".tocsin"
    for each in (spool / "in", state / "nats", tmp_path / "spool2"):
        each.mkdir(parents=True)
    folders = Folders([str(spool)], state)
    assert folders.problem(spool / "in") is None
    assert "is not in a directory" in (folders.problem(tmp_path / "spool2") or "")
    assert "is not in a directory" in (folders.problem("/etc") or "")
    assert "is not in a directory" in (folders.problem(spool / ".." / "spool2") or "")
    for each in (state, state / "nats" / "keys", spool):  # the last holds the state directory
        assert "state directory" in (folders.problem(each) or "")
    assert Folders([], state).problem(tmp_path / "spool2") is not None


def test_a_link_is_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "in").symlink_to("/etc")
    problem = Folders([str(tmp_path / "spool")], tmp_path / "state").problem(tmp_path / "spool" / "in")
    assert problem is not None and "is not in a directory" in problem
