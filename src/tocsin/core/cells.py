"""Writes one cell of a table beside others who may write it too: one request at a time, each until it is decided.

A write expects the revision that is known. It is tried, with the same bytes, until it is certain what has become of it;
only then the next one begins. So a try whose answer was lost, and that takes effect late, does no harm: it expects a
revision of the past. (Where a write expected no cell, and there is none again, it may happen again.)

    idle ──write──► put ──Stored───────────────────────────────────► written
                     │  ──no store──────► (a while) ──► put
                     │  ──no answer─────► (a while) ──► read      from now on the write is *unsure*
                     └  ──Conflict──► read if unsure, or if the owner learns what others write, or looks; else
                                      overtaken, or missing (there is no cell, and one was expected)
        read: the expected revision ──► put (a try may still take effect: it comes first, or conflicts)
              our bytes ──► written;   none ──► missing;   else ──► overtaken
    idle ──remove──► delete ──Stored──► removed
                     └  ──Conflict──► read if the owner looks; else overtaken: there is nothing of ours

Reads are fresh, because they decide: an older cell would look like somebody else's.

An owner that **learns** (a shared group) reads after every failure, too: what the cell says is all that counts for it,
and ``missing`` and ``overtaken`` are news like others. For other owners (a session has one owner, whose bytes are
nobody else's) ``overtaken`` is the end, and a **missing** cell has expired: the write is kept, and ``anew`` writes it
where none is. An owner that **looks** is told which cell has overtaken its request: it may have reason to ask once
more, over that one.

Puts of an owner whose key is nobody else's need not be **conditional**; only known revisions are ever deleted.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from tocsin.core.machine import DeleteKey, Effect, GetKey, PutKey, Say, SetTimer, Stored, StoreFailed
from tocsin.errors import Conflict, OutcomeUnknown
from tocsin.ports import Cell

Kind = Literal["ignored", "under way", "read", "written", "removed", "missing", "overtaken", "failed"]


class CellRules(msgspec.Struct, frozen=True):
    """The properties that the cells of one owner share. Requests without a name have that of the key."""

    table: str
    words: str  # for the log, when a request fails
    timer: str  # set when a request fails; then ``again``
    again_us: int  # before a failed request is tried once more
    put: str = ""
    delete: str = ""
    read: str = ""
    learns: bool = False
    looks: bool = False
    conditional: bool = True


class Step(NamedTuple):
    """The decision that an answer brings, the current cell if it is known, and the effects."""

    kind: Kind
    cell: Cell | None = None
    effects: tuple[Effect, ...] = ()


IGNORED: Final = Step("ignored")  # an answer to what nobody asked any more


class CellWriter:
    """One cell, and the one request about it that is under way or to be tried again."""

    __slots__ = ("_key", "_rules", "_ttl_us", "_value", "_writing", "asked", "revision", "unsure")

    def __init__(self, rules: CellRules, key: str, revision: int = 0) -> None:
        self._rules = rules
        self._key = key
        self.revision = revision  # as it is known; 0: there is none
        self.asked: Literal["", "put", "delete", "read"] = ""
        self.unsure = False  # a try of the write may have taken effect, or still will
        self._writing: Literal["", "put", "delete"] = ""  # not decided yet
        self._value = b""  # what is put
        self._ttl_us: int | None = None

    @property
    def busy(self) -> bool:
        return bool(self.asked or self._writing)

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, value: bytes, ttl_us: int | None = None) -> Effect:
        """Make this of the cell; it expires after so long, unless it is written again."""
        assert not self.busy, "one request at a time"
        self._value, self._ttl_us = value, ttl_us
        return self._ask("put")

    def remove(self) -> Effect:
        """Remove the cell, if it is as it is known."""
        assert not self.busy, "one request at a time"
        return self._ask("delete")

    def read(self) -> Effect:
        """Find out what the cell is."""
        return self._ask("read")

    def again(self) -> Effect | None:
        """Repeat a failed request; after a write that may have happened, first read the outcome."""
        if not self.asked:
            return None
        if self._rules.learns or self.asked == "read" or (self.unsure and self._writing == "put"):
            return self._ask("read")
        return self._ask(self.asked)

    def anew(self) -> Effect:
        """Write what was to be written where there is no cell."""
        assert self._writing == "put" and not self.asked, "only a missing cell is rewritten"
        self.revision = 0
        return self._ask("put")

    def drop(self) -> None:
        """Forget the request that failed. If it is unsure it stays so, until the next one is decided."""
        self.asked, self._writing, self._value = "", "", b""

    def _ask(self, what: Literal["put", "delete", "read"]) -> Effect:
        rules, key, self.asked = self._rules, self._key, what
        if what == "read":
            return GetKey(request=rules.read or key, table=rules.table, key=key, fresh=True)
        self._writing = what
        if what == "delete":
            return DeleteKey(request=rules.delete or key, table=rules.table, key=key, revision=self.revision)
        return PutKey(
            request=rules.put or key,
            table=rules.table,
            key=key,
            value=self._value,
            revision=self.revision if rules.conditional else None,
            ttl_us=self._ttl_us,
        )

    @property
    def _request(self) -> str:
        """The name of the request whose answer counts."""
        rules = self._rules
        return {"put": rules.put, "delete": rules.delete, "read": rules.read}[self.asked] or self._key

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def stored(self, event: Stored) -> Step:
        if not self.asked or event.request != self._request:
            return IGNORED
        if self.asked == "put":
            return self._written(event.value)
        if self.asked == "delete":
            return self._decided("removed", None)
        return self._found(event.value)

    def _found(self, cell: Cell | None) -> Step:
        if not self._writing:
            return self._decided("read", cell)
        if self.revision == (0 if cell is None else cell.revision):
            # No try has taken effect, though one still may: this try comes first, or conflicts.
            return Step("under way", None, (self._ask(self._writing),))
        if cell is None:
            return self._missing() if self._writing == "put" else self._decided("removed", None)
        if self._writing == "put" and cell.value == self._value:
            return self._written(cell.revision)
        return self._decided("overtaken", cell)

    def _missing(self) -> Step:
        if self._rules.learns:
            return self._decided("missing", None)
        self.asked = ""  # the write is kept
        return Step("missing")

    def _written(self, revision: int) -> Step:
        return self._decided("written", Cell(self._key, self._value, revision))

    def _decided(self, kind: Kind, cell: Cell | None) -> Step:
        self.asked, self._writing, self._value, self.unsure = "", "", b"", False
        self.revision = 0 if cell is None else cell.revision
        return Step(kind, cell)

    def failed(self, event: StoreFailed) -> Step:
        error = event.error
        if not self.asked or event.request != self._request:
            return IGNORED
        if isinstance(error, Conflict) and self.asked != "read":
            return self._conflicted(error)
        if isinstance(error, OutcomeUnknown) and self.asked != "read":
            self.unsure = True
            if not self._rules.conditional and self.asked == "put":
                self.revision = 0  # whatever it was, it may be another now
        rules = self._rules
        said = Say(text=rules.words, level="warning", facts={"problem": str(error)})
        return Step("failed", None, (said, SetTimer(name=rules.timer, delay_us=rules.again_us)))

    def _conflicted(self, conflict: Conflict) -> Step:
        if self._rules.learns or (self.unsure and self._writing == "put"):
            return Step("under way", None, (self._ask("read"),))
        if self._writing == "put" and conflict.actual == 0 and self.revision:
            return self._missing()
        if self._rules.looks and conflict.actual:
            return Step("under way", None, (self._ask("read"),))
        return self._decided("overtaken", None)
