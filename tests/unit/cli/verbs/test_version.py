"""Versions."""

from __future__ import annotations

import pytest

from tocsin.cli.main import main
from tocsin.cli.verbs.version import PARTS, installed


def test_the_versions_of_everything_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"tocsin {installed('tocsin')}"
    assert shown[1].startswith("python 3.")
    assert [line.split()[0] for line in shown[2:]] == list(PARTS)


def test_a_missing_part_has_no_version() -> None:
    assert installed("no-such-part-of-ours") == ""
