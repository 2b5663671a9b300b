"""Reads the newest snapshot back, piece by piece, and rebuilds the state slice by slice.

    idle ──► reading (pieces) ──► working (a slice at each REBUILD) ──► idle

A large state takes seconds to work out. Between two slices other events have their turn, so that a restoring
coordinator still hears of the lease, and reports its health.

The pieces that a manifest names may be gone by the time they are read, because a newer snapshot replaced them. Then the
snapshot is useless, and the coordinator starts again with the table's current manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from tocsin.core.coordination.leader.snapshot_writer import Manifest
from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.state import snapshot
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import CancelTimer, Effect, ReadLog, Say, SetTimer, Stored, StoreFailed
from tocsin.model.versions import UNREADABLE
from tocsin.ports import READ_MAX, Page

AGAIN_US: Final = 300_000  # before the store is asked again after a failure
UNREADABLE_US: Final = 30_000_000  # before what cannot be read is read again: a person has to act
REST_US: Final = 100  # between two slices, for whatever else there is to do
ANSWER_US: Final = 6_000_000  # longer than a store waits; an answer that is not there by then never comes


class Restored(NamedTuple):
    """A state, and the position that it is of."""

    state: State
    position: int


class Restorer:
    """Reads one snapshot. Its methods say what to do next, or what came of it."""

    def __init__(self, log: str, request: Callable[[str], str], slice_size: int) -> None:
        self._log = log
        self._slice_size = slice_size
        self._request = request
        self._asked = ""
        # The manifest that is being read, whatever the table says by now.
        self._manifest: Manifest | None = None
        self.problem = ""  # why the newest snapshot cannot be read
        self._pieces: list[bytes] = []
        self._rebuilding: Generator[None, None, State] | None = None

    @property
    def busy(self) -> bool:
        """Whether it is at work, and not only waiting to begin again."""
        return self._manifest is not None

    def begin(self, manifest: Manifest) -> list[Effect]:
        self.stop()
        self._manifest = manifest
        return self._read(manifest.first)

    def stop(self) -> None:
        self._manifest, self._pieces, self._asked, self._rebuilding = None, [], "", None

    def later(self, delay_us: int = AGAIN_US) -> list[Effect]:
        """Let it be, and have it begun again in a while."""
        self.stop()
        return [SetTimer(name=CoordinatorTimer.AGAIN, delay_us=delay_us)]

    def answered(self, event: Stored | StoreFailed) -> Restored | list[Effect]:
        """The store has answered somebody, perhaps us."""
        if event.request != self._asked:
            return []
        self._asked = ""
        return self._take(event.value) if isinstance(event, Stored) else self.later()

    def _take(self, page: Page) -> Restored | list[Effect]:
        assert self._manifest is not None
        self._pieces += [entry.payload for entry in page.entries]
        if len(self._pieces) < self._manifest.pieces:
            return self._read(page.next) if page.next <= page.last else self.later()
        self._rebuilding = snapshot.rebuild(self._pieces[: self._manifest.pieces], self._slice_size)
        next_slice = self.go_on()
        if isinstance(next_slice, Restored):
            return next_slice
        return [CancelTimer(name=CoordinatorTimer.AGAIN), *next_slice]

    def go_on(self) -> Restored | list[Effect]:
        """Work out a slice more."""
        if self._rebuilding is None:
            return []
        assert self._manifest is not None
        try:
            next(self._rebuilding)
        except StopIteration as done:
            return Restored(done.value, self._manifest.position)
        except UNREADABLE as error:
            self.problem = str(error)
            return [Say(level="error", text=self.problem), *self.later(UNREADABLE_US)]
        return [SetTimer(name=CoordinatorTimer.REBUILD, delay_us=REST_US)]

    def _read(self, start: int) -> list[Effect]:
        assert self._manifest is not None
        self._asked = self._request("restore")
        read = ReadLog(
            request=self._asked,
            log=self._log,
            subject=self._manifest.subject,
            start=start,
            limit=READ_MAX,
        )
        return [read, SetTimer(name=CoordinatorTimer.AGAIN, delay_us=ANSWER_US)]
