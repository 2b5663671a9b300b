"""Whether the extra is installed."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tocsin.errors import ProgramMissing
from tocsin.runtime import extra


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "deltalake" else object())
    assert extra.missing() == "deltalake"
    with pytest.raises(ProgramMissing, match=r"deltalake.*tocsin\[spark\]"):
        extra.check_installed()


def test_looking_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sqlglot"]:
        monkeypatch.delitem(sys.modules, name)
    extra.missing()
    assert "sqlglot" not in sys.modules


def test_where_all_is_installed_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert extra.missing() is None
    extra.check_installed()
