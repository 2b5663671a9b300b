"""A page of the documentation as something to run: its blocks, in order, each with the kind that it is marked with."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(msgspec.Struct, frozen=True):
    """A block of a page: ``sh`` is run, ``text`` is what that prints, ``json`` what the subscriber hears."""

    section: str
    kind: str
    lines: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        found += [
            Block(title, kind, tuple(body.rstrip("\n").split("\n"))) for kind, body in _BLOCK.findall(section)
        ]
    return found
