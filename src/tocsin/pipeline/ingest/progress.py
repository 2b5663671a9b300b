"""The pipeline's progress: the cells of its own table.

``channel.x``: the channel's last execution and what it has read. ``tick``: the newest tick that brokers were told of.
``ingested``: the position of the log of feeds before which everything is in its dataset. ``version.kind.name``: how
far the versions of a name were counted that is dropped now.

The truth of a tick is its commit, and that of an ingest the dataset's; a cell may be behind by what happened since it
was written. ``pipeline.tick`` and ``pipeline.ingest.ingest`` see to that at the start. So cells are written late, and
together.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tocsin.errors import StoreError
from tocsin.model.versions import Document, Format
from tocsin.ports import Table

CHANNEL: Final = "channel."
TICK: Final = "tick"
INGESTED: Final = "ingested"
VERSION: Final = "version."
AT_ONCE: Final = 64  # cells that are written side by side


class ChannelProgress(msgspec.Struct, frozen=True):
    """Where a channel is."""

    execution: int = 0
    read: dict[str, int] = {}  # of each dataset that it reads as NEW: the version up to which it has
    at_us: int = 0  # of the last execution


COUNT: Final = Format("a count of the pipeline")
PROGRESS: Final = Document("how far a channel is", msgspec.json.Decoder(ChannelProgress))


def _number(value: bytes) -> int:
    return int(COUNT.open(value))


class Progress:
    """All of it, in memory and in the table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.channels: dict[str, ChannelProgress] = {}
        self.tick = 0
        self.ingested = 0
        self._versions: dict[str, int] = {}
        self._unwritten: dict[str, bytes] = {}

    async def load(self) -> None:
        async for change in self._table.watch():
            if change.kind == "ready":
                return
            if change.kind == "put":
                self._take(change.key, change.value)

    def _take(self, key: str, value: bytes) -> None:
        if key.startswith(CHANNEL):
            self.channels[key.removeprefix(CHANNEL)] = PROGRESS.read(value)
        elif key.startswith(VERSION):
            self._versions[key.removeprefix(VERSION)] = _number(value)
        elif key == TICK:
            self.tick = _number(value)
        elif key == INGESTED:
            self.ingested = _number(value)

    # ── what has happened ───────────────────────────────────────────────────────────────────────────────────────

    def channel(self, name: str) -> ChannelProgress | None:
        return self.channels.get(name.lower())

    def note_channel(self, name: str, progress: ChannelProgress) -> None:
        self.channels[name.lower()] = progress
        self._unwritten[f"{CHANNEL}{name.lower()}"] = PROGRESS.write(progress)

    def note_tick(self, tick: int) -> None:
        self.tick = tick
        self._unwritten[TICK] = COUNT.seal(b"%d" % tick)

    def note_ingested(self, position: int) -> None:
        if position != self.ingested:
            self.ingested = position
            self._unwritten[INGESTED] = COUNT.seal(b"%d" % position)

    def last_version(self, key: str) -> int:
        """How far the versions of a definition's key were counted."""
        return self._versions.get(key, 0)

    def note_version(self, key: str, version: int) -> None:
        self._versions[key] = version
        self._unwritten[f"{VERSION}{key}"] = COUNT.seal(b"%d" % version)

    def forget_reading(self, channel: str) -> None:
        """A channel is dropped: a later channel of its name starts from the beginning. Its executions go on
        counting.
        """
        known = self.channel(channel)
        if known is not None:
            self.note_channel(channel, ChannelProgress(known.execution))

    def forget_dataset(self, dataset: str) -> None:
        """The versions of a dataset start again: for its readers, everything that comes is new."""
        name = dataset.lower()
        for channel, known in list(self.channels.items()):
            if known.read.get(name):
                self.note_channel(channel, msgspec.structs.replace(known, read={**known.read, name: 0}))

    async def write(self) -> bool:
        """Write what is not written; what cannot be now is kept for the next time. Whether that was all."""
        unwritten, self._unwritten = self._unwritten, {}
        items = list(unwritten.items())
        for start in range(0, len(items), AT_ONCE):
            some = items[start : start + AT_ONCE]
            done = await asyncio.gather(
                *(self._table.put(key, value) for key, value in some), return_exceptions=True
            )
            for (key, value), outcome in zip(some, done, strict=True):
                if isinstance(outcome, StoreError):
                    self._unwritten.setdefault(key, value)
                elif isinstance(outcome, BaseException):
                    raise outcome
        return not self._unwritten
