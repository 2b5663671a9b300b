"""Reads the newest snapshot back, piece by piece.

What a manifest names may be gone by the time it is read, because a newer one took its place. Then there is
nothing to be had of it, and whoever asked begins again with what the table says now.
"""

from __future__ import annotations

from collections.abc import Callable

from tocsin.core.coordination import snapshot
from tocsin.core.coordination.archivist import Manifest
from tocsin.core.coordination.state import State
from tocsin.core.machine import Effect, ReadLog
from tocsin.errors import Malformed
from tocsin.ports import READ_MAX, Page


class Restorer:
    """One reading at a time."""

    def __init__(self, log: str, request: Callable[[str], str]) -> None:
        self._log = log
        self._request = request
        self._manifest: Manifest | None = (
            None  # the one that is being read, whatever the table says meanwhile
        )
        self._pieces: list[bytes] = []
        self.asked = ""

    def begin(self, cause: str, manifest: Manifest) -> Effect:
        self._manifest, self._pieces = manifest, []
        return self._read(cause, manifest.first)

    def stop(self) -> None:
        self._manifest, self._pieces, self.asked = None, [], ""

    def take(self, cause: str, page: Page) -> tuple[State, int] | Effect | None:
        """The state and the position that it is of; or what to ask next; None if the snapshot is unusable."""
        manifest = self._manifest
        assert manifest is not None
        self._pieces += [entry.payload for entry in page.entries]
        if len(self._pieces) < manifest.pieces:
            return self._read(cause, page.next) if page.next <= page.last else None
        try:
            return snapshot.restore(self._pieces[: manifest.pieces]), manifest.position
        except Malformed:
            return None

    def _read(self, cause: str, start: int) -> Effect:
        assert self._manifest is not None
        self.asked = self._request("restore")
        return ReadLog(
            cause=cause,
            request=self.asked,
            log=self._log,
            subject=self._manifest.subject,
            start=start,
            limit=READ_MAX,
        )
