"""Messages to subscribers of ``$streams/<predicate>``, as JSON with its version.

{"v": 1, "streams": [{"topic": …, "metadata": {…}}, …], "more": true}     the whole set, in parts but for the last
{"v": 1, "joined": {"topic": …, "metadata": {…}}}      and so ``changed`` and ``left``
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.model.stream import Value
from tocsin.model.versions import Document


class StreamNotice(msgspec.Struct):
    """A stream, as a broker tells of it."""

    topic: str
    metadata: dict[str, Value] = {}


class StreamNews(msgspec.Struct):
    """A broker's message about a set of streams."""

    streams: list[StreamNotice] | None = None
    more: bool = False
    joined: StreamNotice | None = None
    changed: StreamNotice | None = None
    left: StreamNotice | None = None


NEWS: Final = Document("a notice about streams", msgspec.json.Decoder(StreamNews))
