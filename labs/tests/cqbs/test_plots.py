"""The pictures; where matplotlib is not installed, the words instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.tests.cqbs.test_run import results
from tocsin_labs import drawing
from tocsin_labs.cqbs.run import draw

MESSAGES = "sent_s,latency_ms,subscriber,publisher,changed\n0,20,0,0,1\n0.2,0.5,0,0,0\n0.4,9,0,0,2\n"
NOTICES = "change,sent_s,latency_ms,subscriber,broker,kind\n1,0,5,0,dummy-1,joined\n2,21,900,0,dummy-1,left\n"


def test_there_is_a_picture_of_each_experiment(tmp_path: Path) -> None:
    for name, rows in (("single-1", MESSAGES), ("full", MESSAGES), ("coordinator-replicated", NOTICES)):
        (tmp_path / f"{name}.csv").write_text(rows)
    assert draw(results(), tmp_path) == f"pictures are in {tmp_path}"
    for name in ("single", "coordinator", "full"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "available", lambda: False)
    assert "tocsin[lab]" in draw(results(), tmp_path)
    assert not list(tmp_path.iterdir())
