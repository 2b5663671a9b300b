"""``tocsin pipeline`` where it cannot run."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tocsin.cli.main import main


def test_without_the_extra_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pyspark" else real(name, *rest)
    )
    assert main(["pipeline"]) == 2
    assert (
        "pyspark (a Python package) was not found. Install the extra: pip install 'tocsin[spark]'"
        in capsys.readouterr().err
    )


def test_a_master_that_is_none_is_refused_before_anything_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")
    assert main(["pipeline", "--state", str(tmp_path), "--set", "spark.master=mesos://x"]) == 2
    assert "spark.master = 'mesos://x' is no master that Spark has" in capsys.readouterr().err
