"""Writes snapshots of the state, and trims the command log behind them.

    idle ──► writing (pieces, append by append) ──► recording (the manifest) ──► trimming (both logs) ──► idle
                                                       │    ▲
                                                       ▼    │ it is ours
                                                      checking ──► discarding (the pieces) ──► idle

A snapshot counts from its **manifest** on, one key of the table. Pieces that were written and never recorded are
trimmed with the next snapshot. Two may write at the same time: the table lets one of them record. Whoever is refused
looks whose manifest is there before it forgets its pieces: an earlier try of its own may have been applied and not
answered, and a manifest without pieces would keep every coordinator from leading for good.

The command log keeps MARGIN entries before the snapshot, or as many as take some MARGIN_BYTES, for replicas and brokers
that are a little behind.

A snapshot is due after so many commands, or after so many bytes of what followed from them (``State.told``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from tocsin.core.coordination.leader.timers import CoordinatorTimer
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.coordination.state import snapshot
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import Append, Effect, GetKey, PutKey, Say, SetTimer, Stored, StoreFailed, TrimLog
from tocsin.model.versions import UNREADABLE, Document
from tocsin.ports import Cell, Change, Record

KEY: Final = "core.snapshot"
BUSY_US: Final = 1_000  # before a leader looks again for a moment in which nothing is under way
PIECES_MAX: Final = 8  # in one append: 4 MiB
ANSWER_US: Final = 6_000_000
MARGIN_BYTES: Final = 16 << 20  # of entries that are kept before a snapshot


class Manifest(msgspec.Struct, frozen=True):
    """A snapshot that is complete."""

    position: int  # of the last batch that it covers
    commands: int  # that were applied until then
    subject: str  # of its pieces in the log of snapshots; nobody else's
    pieces: int
    first: int = 0  # position of the first piece
    told: int = 0  # bytes that had followed from the commands until then


MANIFEST: Final = Document("the manifest of a snapshot", msgspec.json.Decoder(Manifest))


def decode_manifest(data: bytes) -> Manifest:
    return MANIFEST.read(data)


class Archivist:
    """Writes one coordinator's snapshots."""

    def __init__(
        self,
        places: StoreNames,
        options: Options,
        request: Callable[[str], str],
        record_id: Callable[[], str],
    ) -> None:
        self._places = places
        self._options = options
        self._request = request
        self._record_id = record_id
        self._revision = 0  # of the manifest
        self._base = (
            0  # the same when the snapshot was begun: another that is recorded in that time is as good
        )
        self._appends: deque[tuple[Record, ...]] = deque()  # pieces that are not written yet
        self._pending: Manifest | None = None  # of what is being written
        self._margin = options.margin  # entries to keep before the snapshot that is being written
        self._step = "idle"
        self._refusal = ""  # why the manifest, or a piece, was not taken
        self._coming = False  # a snapshot is due, and its timer runs
        self.asked = ""
        self.manifest: Manifest | None = None  # the newest there is
        self.problem = ""  # why it cannot be read

    def watched(self, change: Change) -> None:
        if change.kind == "put":
            self.problem, self._revision = "", change.revision
            try:
                self.manifest = decode_manifest(change.value)
            except UNREADABLE as error:  # there is a snapshot, which is not for us, and must not be replaced
                self.manifest, self.problem = None, str(error)
        elif change.kind in ("delete", "reset"):
            self.manifest, self._revision, self.problem = None, 0, ""

    def look(self, state: State, patience_us: int) -> list[Effect]:
        """Have a snapshot taken in a while, if one is due."""
        if self._coming or not self._is_due(state):
            return []
        self._coming = True
        return [SetTimer(name=CoordinatorTimer.SNAPSHOT, delay_us=patience_us)]

    def _is_due(self, state: State) -> bool:
        if self._step != "idle" or self.problem:
            return False
        covered = 0 if self.manifest is None else self.manifest.commands
        many = state.commands - covered >= self._options.snapshot_every
        return many or self.uncovered_bytes(state) >= self._options.snapshot_every_bytes

    def uncovered_bytes(self, state: State) -> int:
        """The estimated bytes of the log beyond the newest snapshot."""
        return state.told - (0 if self.manifest is None else self.manifest.told)

    def take(self, state: State, position: int, *, clean: bool) -> list[Effect]:
        """The while has passed: begin, unless nobody needs it any more, or the state is just now ahead of the log."""
        self._coming = self._is_due(state) and not clean
        if self._coming:
            return [SetTimer(name=CoordinatorTimer.SNAPSHOT, delay_us=BUSY_US)]
        return self._begin(state, position) if self._is_due(state) else []

    def _begin(self, state: State, position: int) -> list[Effect]:
        """Write the state, which is that of the log up to the batch at ``position``."""
        pieces = snapshot.take(state)
        subject = self._places.snapshot_subject(self._record_id())
        records = [Record(subject, piece, self._record_id()) for piece in pieces]
        self._appends = deque(
            tuple(records[start : start + PIECES_MAX]) for start in range(0, len(records), PIECES_MAX)
        )
        self._margin = self._margin_of(state, position)
        self._pending = Manifest(position, state.commands, subject, len(pieces), told=state.told)
        self._base = self._revision
        self._step = "writing"
        facts = {"position": position, "bytes": sum(map(len, pieces)), "streams": len(state.presence.streams)}
        return [Say(text="snapshot begins", facts=facts), *self._ask()]

    def _margin_of(self, state: State, position: int) -> int:
        """The entries to keep before a snapshot: as many as take MARGIN_BYTES, if entries go on as they were."""
        before = 0 if self.manifest is None else self.manifest.position
        size = self.uncovered_bytes(state) // max(1, position - before)
        return min(self._options.margin, MARGIN_BYTES // max(1, size))

    def answered(self, event: Stored | StoreFailed) -> list[Effect]:
        """The store has answered somebody, perhaps us."""
        if event.request != self.asked:
            return []
        if isinstance(event, Stored):
            return self._stored(event.value)
        self.asked = ""
        if event.error.retryable:
            return [SetTimer(name=CoordinatorTimer.ARCHIVE, delay_us=ANSWER_US // 6)]
        self._refusal = str(event.error)  # somebody has recorded a snapshot, or the store is full
        if self._step == "recording":
            self._step = "checking"
            return self._ask()
        return [*self._discard(), *self.stop()]

    def _checked(self, cell: Cell | None) -> list[Effect]:
        """Whose manifest is there."""
        assert self._pending is not None
        try:
            there = None if cell is None else decode_manifest(cell.value)
        except UNREADABLE:
            there = None  # a newer release's
        if there is not None and there.subject == self._pending.subject:
            self._step = "trimming commands"
            return self._ask()
        if (0 if cell is None else cell.revision) == self._base:
            self._step = "recording"  # nobody's, so far: an earlier try may still be under way
            return [SetTimer(name=CoordinatorTimer.ARCHIVE, delay_us=ANSWER_US // 6)]
        return [*self._discard(), *self.stop()]

    def _discard(self) -> list[Effect]:
        """Forget pieces that nobody will record: with them the log of snapshots might stay full for good."""
        if self._pending is None or self._step not in ("writing", "checking"):
            return []
        log, subject = self._places.snapshots.name, self._pending.subject
        return [
            Say(text="a snapshot is given up", level="warning", facts={"problem": self._refusal}),
            TrimLog(request=self._request("discard"), log=log, before=None, subject=subject),
        ]

    def _stored(self, value: object) -> list[Effect]:
        assert self._pending is not None
        if self._step == "checking":
            assert value is None or isinstance(value, Cell)
            return self._checked(value)
        if self._step == "writing":
            assert isinstance(value, tuple)
            self._appends.popleft()
            if not self._pending.first:
                self._pending = msgspec.structs.replace(self._pending, first=value[0])
            if not self._appends:
                self._step = "recording"
        elif self._step == "recording":
            self._step = "trimming commands"
        elif self._step == "trimming commands":
            self._step = "trimming snapshots"
        else:
            return self.stop()
        return self._ask()

    def again(self) -> list[Effect]:
        return [] if self._step == "idle" else self._ask()

    def stop(self) -> list[Effect]:
        self._step, self.asked, self._pending, self._coming = "idle", "", None, False
        self._appends.clear()
        return []

    def _ask(self) -> list[Effect]:
        assert self._pending is not None
        self.asked = self._request("archive")
        effect: Effect
        if self._step == "writing":
            effect = Append(request=self.asked, log=self._places.snapshots.name, records=self._appends[0])
        elif self._step == "recording":
            effect = PutKey(
                request=self.asked,
                table=self._places.table.name,
                key=KEY,
                value=MANIFEST.write(self._pending),
                revision=self._base,
            )
        elif self._step == "checking":
            effect = GetKey(request=self.asked, table=self._places.table.name, key=KEY, fresh=True)
        elif self._step == "trimming commands":
            before = max(0, self._pending.position - self._margin)
            effect = TrimLog(request=self.asked, log=self._places.commands.name, before=before)
        else:
            effect = TrimLog(request=self.asked, log=self._places.snapshots.name, before=self._pending.first)
        return [effect, SetTimer(name=CoordinatorTimer.ARCHIVE, delay_us=ANSWER_US)]
