"""The definitions of a network: datasets, feeds and channels, in memory and in their table.

The pipeline alone writes the table, one cell for each definition, and counts versions: every change of a definition has
the next one, even after the name was dropped. Dependencies are known here: a dataset that a feed fills or a channel
reads cannot be dropped, nor a channel whose results another one reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import structlog

from tocsin.errors import Malformed, TocsinError
from tocsin.model.catalogue import (
    Channel,
    Dataset,
    Definition,
    Feed,
    decode_definition,
    encode_definition,
    key_of,
)
from tocsin.pipeline.ingest.progress import Progress
from tocsin.pipeline.language.tree.resolution import results_key
from tocsin.ports import Table

D = TypeVar("D", Dataset, Feed, Channel)


class InUse(TocsinError):
    """The object to be dropped is needed by others."""

    fault = "peer"

    def __init__(self, what: str, name: str, users: Iterable[Definition]) -> None:
        self.what = what
        self.name = name
        self.users = tuple(users)
        self.problem, self.remedy = self.words(self.users)
        super().__init__(f"{self.problem}; {self.remedy}")

    def words(self, visible: Collection[Definition]) -> tuple[str, str]:
        """The problem and the remedy, for somebody who knows of these definitions."""
        names = sorted(f"{type(each).__name__.lower()} {each.name}" for each in self.users if each in visible)
        if len(names) == len(self.users):
            return f"{self.what} {self.name} is used by {', '.join(names)}", "drop those first"
        names.append("what you may not see")
        return f"{self.what} {self.name} is used by {', '.join(names)}", "ask the operator"


class StillRead(InUse):
    """A channel cannot be replaced: another one reads its results, and could not read the new ones."""

    def __init__(self, name: str, reader: Channel, reason: str) -> None:
        self._reason = reason
        super().__init__("channel", name, [reader])

    def words(self, visible: Collection[Definition]) -> tuple[str, str]:
        (reader,) = self.users
        if reader not in visible:
            return (
                f"the new results of {self.name} could not be read by what you may not see",
                "ask the operator",
            )
        problem = f"channel {reader.name} reads the results of {self.name}, and could not read the new ones"
        return f"{problem}: {self._reason}", f"drop {reader.name} first, or keep the columns that it reads"


class Catalogue:
    """By kind and name in lower case."""

    def __init__(self, table: Table, progress: Progress) -> None:
        self._table = table
        self._progress = progress
        self.datasets: dict[str, Dataset] = {}
        self.feeds: dict[str, Feed] = {}
        self.channels: dict[str, Channel] = {}
        self.readers: dict[str, frozenset[str]] = {}  # channel → the keys of what it reads (``Read.key``)

    async def load(self) -> None:
        """Read the table; a cell that is no definition is reported and left alone. ``FormatNewer`` ends it: what is
        newer than this process would be replaced by the next definition of its name.
        """
        async for change in self._table.watch():
            if change.kind == "ready":
                return
            if change.kind != "put":
                continue
            try:
                definition = decode_definition(change.value)
            except Malformed as error:
                structlog.get_logger().error(
                    "a definition cannot be read", key=change.key, problem=str(error)
                )
                continue
            self._of(definition)[definition.name.lower()] = definition

    def of_kind(self, kind: str) -> dict[str, Any]:
        """By names in lower case."""
        found: dict[str, dict[str, Any]] = {
            "dataset": self.datasets,
            "feed": self.feeds,
            "channel": self.channels,
        }
        return found[kind]

    def _of(self, definition: Definition) -> dict[str, Any]:
        return self.of_kind(key_of(definition).partition(".")[0])

    def all(self) -> list[Definition]:
        return [*self.datasets.values(), *self.feeds.values(), *self.channels.values()]

    async def put(self, definition: D) -> D:
        """Store a definition under its next version, and return it."""
        key = key_of(definition)
        of_kind = self._of(definition)
        known = of_kind.get(definition.name.lower())
        last = known.version if known is not None else self._progress.last_version(key)
        definition = msgspec.structs.replace(definition, version=last + 1)
        await self._table.put(key, encode_definition(definition))
        of_kind[definition.name.lower()] = definition
        return definition

    async def drop(self, definition: Definition) -> None:
        """Forget a definition; ``InUse`` if others need it."""
        self.check_unused(definition)
        key = key_of(definition)
        self._progress.note_version(key, definition.version)
        await self._progress.write()
        await self._table.delete(key)
        del self._of(definition)[definition.name.lower()]
        if isinstance(definition, Channel):
            self.readers.pop(definition.name.lower(), None)

    def check_unused(self, definition: Definition) -> None:
        users: list[Definition] = []
        name = definition.name.lower()
        if isinstance(definition, Dataset):
            users += [each for each in self.feeds.values() if each.dataset.lower() == name]
            users += self.readers_of(name)
        elif isinstance(definition, Channel):
            users += self.readers_of(results_key(name))
        if users:
            raise InUse(type(definition).__name__.lower(), definition.name, users)

    def readers_of(self, key: str) -> list[Channel]:
        """The channels that read a dataset, or the results of a channel."""
        return [
            self.channels[name]
            for name, keys in sorted(self.readers.items())
            if key in keys and name in self.channels
        ]

    def named(self) -> Mapping[str, Dataset]:
        """Datasets by their names as they were written."""
        return {each.name: each for each in self.datasets.values()}
