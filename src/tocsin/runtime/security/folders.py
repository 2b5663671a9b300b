"""The folders that feeds may read: below the directories of ``feeds.folders``, never in the state directory.

A user who may define a feed could otherwise have the feeder read, and move, any file that the feeder's user can.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

REMEDY: Final = "Name a folder below one of feeds.folders, or have the operator add it there"


class Folders:
    """The directories, with symbolic links followed."""

    def __init__(self, allowed: Sequence[str], state: str | Path) -> None:
        self._allowed = tuple(os.path.realpath(each) for each in allowed)
        self._state = os.path.realpath(state)

    def problem(self, path: str | Path) -> str | None:
        """Why files of a folder may not be read; None if they may. Asked at every look: links may change."""
        real = os.path.realpath(path)
        if _within(real, self._state) or _within(self._state, real):
            return f"{path} holds, or is in, the network's state directory"
        if any(_within(real, each) for each in self._allowed):
            return None
        return f"{path} is not in a directory from which feeds may read ({', '.join(self._allowed) or 'there is none'})"


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
