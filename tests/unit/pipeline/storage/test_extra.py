from __future__ import annotations

import pytest


def test_the_storage_is_tested_where_its_extra_is_installed() -> None:
    for package in ("pyarrow", "deltalake"):
        pytest.importorskip(package, reason="install the extra tocsin[spark]")
