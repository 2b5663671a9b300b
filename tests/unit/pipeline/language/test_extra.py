"""A reason where the other modules of this directory are left out."""

from __future__ import annotations

import pytest


def test_the_extra_is_installed() -> None:
    for package in ("sqlglot", "pyarrow"):
        pytest.importorskip(package, reason="install the extra tocsin[spark]")
