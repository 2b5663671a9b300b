"""Resolving what messages of the log refer to: the metadata that their streams had."""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from tocsin.core.streams.references import Known
from tocsin.errors import FormatNewer, Malformed, StoreUnavailable
from tocsin.model.publication import Publication
from tocsin.model.said import SAID, decode_said
from tocsin.model.stream import Value
from tocsin.model.subjects import said_subject
from tocsin.ports import Log

NOTHING: Final[dict[str, Value]] = {}


class Resolver:
    """One process's, for one log."""

    def __init__(self, log: Log, network: str) -> None:
        self._log = log
        self._network = network
        self._known = Known()
        self.missing = 0  # references whose metadata the log no longer had

    def learn(self, reference: bytes, data: bytes) -> None:
        """An entry of the log has these metadata."""
        try:
            self._known.learn(reference, decode_said(data), len(data))
        except (Malformed, FormatNewer) as error:
            structlog.get_logger().error("metadata in the log are unreadable", problem=str(error))

    async def resolve(self, publication: Publication, position: int) -> Publication:
        """A message of the log, at this position, with what it refers to. Metadata that the log no longer has count as
        none. Raises ``StoreError`` if that cannot be told now, ``FormatNewer`` if a newer process can.
        """
        if publication.resolved:
            return publication
        reference = publication.said
        keys = self._known.get(reference)
        if keys is None:
            keys = await self._read(reference, position)
        return msgspec.structs.replace(publication, keys=keys)

    async def _read(self, reference: bytes, position: int) -> dict[str, Value]:
        page = await self._log.read(said_subject(reference, self._network), 0, limit=1)
        if page.entries:
            data = page.entries[0].payload
            SAID.open(data)  # ``FormatNewer``: without it nobody can tell for which queries the message is
            self.learn(reference, data)
            return self._known.get(reference) or NOTHING
        if page.last < position:  # who answered does not have the message itself yet
            raise StoreUnavailable("resolve metadata", "the server that answered is behind")
        self.missing += 1
        structlog.get_logger().warning("metadata of a message are no longer kept", position=position)
        return NOTHING
