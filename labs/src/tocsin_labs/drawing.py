"""The common parts of all pictures: matplotlib, if it is installed, and how axes and files are finished."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Final

DPI: Final = 100
COLOURS: Final = 48  # of a picture's palette: lines and their smoothed edges look the same with them
MISSING: Final = "no pictures: matplotlib is not installed (pip install 'tocsin[lab]')"


def available() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def pyplot() -> Any:
    importlib.import_module("matplotlib").use("agg")
    return importlib.import_module("matplotlib.pyplot")


def finish(axes: Any, title: str, along: str, up: str) -> None:
    axes.grid(alpha=0.3)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(along)
    axes.set_ylabel(up)
    axes.legend(fontsize=8)


def save(figure: Any, path: Path) -> None:
    """Write a picture. One of pixels gets few colours: a third of the size, so that it can be kept with the docs."""
    figure.savefig(path, dpi=DPI)
    pyplot().close(figure)
    if path.suffix == ".png":
        shrink(path)


def shrink(path: Path) -> None:
    images = importlib.import_module("PIL.Image")  # matplotlib requires it
    with images.open(path) as image:
        flat = image.convert("RGB").quantize(COLOURS)
    flat.save(path, optimize=True)
