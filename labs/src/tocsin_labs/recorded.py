"""Pictures from the directory of a run: all that it found is in ``results.json``, and its samples lie beside it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin.errors import OperatorError
from tocsin_labs.drawing import MISSING, available

RESULTS: Final = "results.json"
LABS: Final = {  # how the command of a run begins → what draws its results
    "tocsin lab cqbs": "tocsin_labs.cqbs.run",
    "tocsin lab landmark": "tocsin_labs.landmark.run",
    "tocsin lab reaps creation": "tocsin_labs.reaps.creation",
    "tocsin lab pubsubcoord": "tocsin_labs.pubsubcoord.run",
    "tocsin lab reaps prototype": "tocsin_labs.reaps.prototype.run",
    "tocsin lab reaps simulation": "tocsin_labs.reaps.run",
}
REMEDY: Final = "Name the directory that was the --out of a lab's run."


class _Named(msgspec.Struct):
    command: str


def draw(directory: Path, out: Path) -> list[Path]:
    """Draw all pictures of a run into a directory; which ones."""
    if not available():
        raise OperatorError(MISSING, "Install it, and draw again")
    before = {each: each.stat().st_mtime_ns for each in out.glob("*.png")}
    results, lab = read(directory)
    try:
        if directory == out or lab.__name__ != LABS["tocsin lab cqbs"]:
            lab.draw(results, out)
        else:
            lab.draw(results, out, samples=directory)
    except OSError as error:
        raise OperatorError(f"a file of samples cannot be read: {error}", REMEDY) from None
    return sorted(each for each in out.glob("*.png") if before.get(each) != each.stat().st_mtime_ns)


def read(directory: Path) -> tuple[Any, Any]:
    """What a run found, and the module of its lab."""
    try:
        kept = (directory / RESULTS).read_bytes()
        command = msgspec.json.decode(kept, type=_Named).command
    except (OSError, msgspec.DecodeError) as error:
        raise OperatorError(f"{directory / RESULTS} cannot be read: {error}", REMEDY) from None
    for prefix, module in LABS.items():
        if command.startswith(prefix):
            lab = importlib.import_module(module)
            try:
                return msgspec.json.decode(kept, type=lab.Results), lab
            except msgspec.ValidationError as error:
                problem = f"{directory / RESULTS} is of another release: {error}"
                raise OperatorError(
                    problem, "Draw it with the release that ran it, or run the lab again"
                ) from None
    raise OperatorError(f"{directory / RESULTS} is of no lab whose results are drawn: {command!r}", REMEDY)
