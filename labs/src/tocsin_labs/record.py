"""The record of every experiment: where and when it ran, its results, and its tables.

All have ``results.json`` with all that is known, and ``summary.csv`` and ``summary.md`` with the paper's beside ours.
"""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from tocsin_labs.figures import Comparison, as_csv


def machine() -> dict[str, str | int]:
    """The machine and software that figures depend on."""
    return {
        "tocsin": metadata.version("tocsin"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count() or 0,
    }


def today() -> str:
    return f"{datetime.now(UTC):%d %B %Y}"


def write_results(out: Path, results: msgspec.Struct, rows: Iterable[Comparison], summary: str) -> None:
    """All that was found, for programs; the comparisons, and the page, for people."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=2)
    (out / "results.json").write_bytes(text + b"\n")
    (out / "summary.csv").write_text(as_csv(rows))
    (out / "summary.md").write_text(summary)


def write_rows(path: Path, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table as CSV, with six decimals where a number has a fraction."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows([_shown(cell) for cell in row] for row in rows)


def _shown(cell: Any) -> Any:
    return f"{cell:.6f}" if isinstance(cell, float) else cell
