"""Files loaded into a dataset: CSV, JSON lines, JSON, GeoJSON, Parquet, by the ends of their names.

A file is read in chunks; each is fitted, and lands as one append, under the transaction (``load.`` + digest of the
file's path and content, number of the chunk). So a load that was cut short goes on where it was, and a file that
was loaded does nothing when it is loaded again, unless that is asked for. Rows that do not fit go to quarantine,
with the file as their feed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import FileUnreadable
from tocsin.pipeline.storage.landing import Landing
from tocsin.pipeline.storage.rows.user_files import chunks_of, place_columns_of

AGAIN_MAX: Final = 10_000  # times that one file may be loaded again


class Progress(msgspec.Struct, frozen=True):
    """How far a load has got."""

    rows: int
    quarantined: int
    bytes_read: int
    bytes_total: int


class Loaded(msgspec.Struct, frozen=True):
    """The outcome of a load."""

    rows: int
    quarantined: int
    repeated: bool  # nothing was done: the file is loaded already
    ignored: frozenset[str] = frozenset()


def load(
    landing: Landing,
    path: Path,
    dataset: str,
    *,
    now_us: Callable[[], int],
    again: bool = False,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Loaded:
    """Load a file into a dataset. ``FileUnreadable`` says what is wrong with the file as a whole."""
    fitter = landing.fitter(dataset)
    total = _size(path)
    application = _application(landing, path, dataset, again)
    rows = quarantined = 0
    repeated = True
    ignored: frozenset[str] = frozenset()
    done = landing.data.transaction(dataset, application) or 0
    for number, chunk in enumerate(chunks_of(path, fitter), 1):
        if number > done:
            fitted = chunk.fitted()
            landed = landing.land(
                dataset,
                fitted,
                feed=f"file {path.name}",
                now_us=now_us(),
                positions=chunk.positions,
                transactions={application: number},
            )
            rows += landed.rows
            quarantined += landed.quarantined
            ignored |= fitted.ignored - place_columns_of(path)
            repeated = False
        progress(Progress(rows, quarantined, min(chunk.read_bytes, total), total))
    return Loaded(rows, quarantined, repeated, ignored)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise FileUnreadable(
            str(path), error.strerror or str(error), "Give the path of a file that can be read"
        ) from None


def _application(landing: Landing, path: Path, dataset: str, again: bool) -> str:
    """The application id of a load. Each time that a file is loaded again has one of its own."""
    digest = hashlib.blake2b(str(path.resolve()).encode(), digest_size=16)
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise FileUnreadable(
            str(path), error.strerror or str(error), "Give the path of a file that can be read"
        ) from None
    name = f"load.{digest.hexdigest()}"
    if again:
        for time in range(1, AGAIN_MAX):
            if landing.data.transaction(dataset, f"{name}.{time}") is None:
                return f"{name}.{time}"
    return name
