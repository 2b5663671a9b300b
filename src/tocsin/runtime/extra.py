"""The extra that the pipeline needs: whether it is installed, without importing any of it."""

from __future__ import annotations

import importlib.util
from typing import Final

from tocsin.errors import ProgramMissing

PACKAGES: Final = ("pyspark", "pyarrow", "pandas", "deltalake", "sqlglot")
REMEDY: Final = "Install the extra: pip install 'tocsin[spark]'"


def missing() -> str | None:
    """The first package of the extra that is not installed; None if all are."""
    return next((each for each in PACKAGES if importlib.util.find_spec(each) is None), None)


def check_installed() -> None:
    """``OperatorError`` unless the extra is there."""
    if (package := missing()) is not None:
        raise ProgramMissing(f"{package} (a Python package)", REMEDY)
