"""The pipeline's named objects: datasets, the feeds that fill them, and channels over them.

Definitions are cells of one table (``CATALOGUE``), a key each (``key_of``), as JSON. The pipeline writes them; brokers
watch the channels, so that a subscription is checked where it is made. ``version`` grows with every change of a
definition; a name that is dropped and created again goes on counting.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from tocsin.model.versions import Document

CATALOGUE: Final = "catalogue"  # the table's name, after the network's and a hyphen

NAME_MAX: Final = 64
COLUMNS_MAX: Final = 256
PARAMETERS_MAX: Final = 16
TEXT_MAX_BYTES: Final = 65_536  # of one statement

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)

# Types of parameters. Spark defines those of a dataset's columns: STRING, BIGINT, ARRAY<DOUBLE>, STRUCT<…>, …
ParameterType = Literal["STRING", "BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"]


class Column(msgspec.Struct, frozen=True):
    """A column of a dataset or of a channel's results; ``type`` is a Spark SQL type, in capitals."""

    name: str
    type: str
    nullable: bool = True


class Dataset(msgspec.Struct, frozen=True, tag_field="kind", tag="dataset"):
    """A stored table: append-only, or with a key, of which the newest row counts."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()  # empty: append-only
    event_time: str | None = (
        None  # the column that says which row of a key is newer; None: the order of arrival
    )
    keep_s: float | None = None  # rows are forgotten after this; None: never
    version: int = 1
    text: str = ""  # the statement that made it


class StreamSource(msgspec.Struct, frozen=True, tag_field="from", tag="streams"):
    """Messages of all streams whose metadata satisfies a query (``tocsin.query``)."""

    query: str


class TopicSource(msgspec.Struct, frozen=True, tag_field="from", tag="topic"):
    """Messages of an MQTT topic filter."""

    topic_filter: str


class HttpSource(msgspec.Struct, frozen=True, tag_field="from", tag="http"):
    """Records that are sent to the pipeline's HTTP endpoint, under the feed's name."""


class FolderSource(msgspec.Struct, frozen=True, tag_field="from", tag="folder"):
    """Files that appear in a folder: CSV, JSON lines, GeoJSON or Parquet, by their names' ends."""

    path: str


class KafkaSource(msgspec.Struct, frozen=True, tag_field="from", tag="kafka"):
    """A topic of a Kafka that the user has."""

    servers: str
    topic: str


FeedSource = StreamSource | TopicSource | HttpSource | FolderSource | KafkaSource


class Feed(msgspec.Struct, frozen=True, tag_field="kind", tag="feed"):
    """A feed, which fills a dataset."""

    name: str
    dataset: str
    source: FeedSource
    version: int = 1
    text: str = ""
    since: int | None = (
        None  # the message log's newest position when it was made: it takes what came after; None: not known
    )


class Parameter(msgspec.Struct, frozen=True):
    name: str
    type: ParameterType


class Channel(msgspec.Struct, frozen=True, tag_field="kind", tag="channel"):
    """A parameterised query, run every so often or whenever there is something new, for all who subscribed at once."""

    name: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]  # of a result
    query: str  # the SELECT, as it was written
    every_s: float | None = None  # None: continuous
    priority: int = 0  # 0 … 9; from ``model.results.CRITICAL`` on its results overtake others
    priority_column: str | None = None  # of a result, that overrules it
    paused: bool = False
    version: int = 1
    text: str = ""

    @property
    def signature(self) -> str:
        """As an error names it: ``Name(user STRING, radius DOUBLE)``."""
        return f"{self.name}({', '.join(f'{each.name} {each.type}' for each in self.parameters)})"


Definition = Dataset | Feed | Channel

_decoder: msgspec.json.Decoder[Definition] = msgspec.json.Decoder(Definition)
DEFINITION: Final = Document("a definition", _decoder)


def is_name(text: str) -> bool:
    """Whether a dataset, feed or channel can be called so. Names differ in more than the case of their letters."""
    return _NAME.fullmatch(text) is not None


def key_of(definition: Definition) -> str:
    """The key of a definition's cell."""
    kind: str = type(definition).__struct_config__.tag  # type: ignore[assignment]
    return f"{kind}.{definition.name.lower()}"


def encode_definition(definition: Definition) -> bytes:
    return DEFINITION.write(definition)


def decode_definition(data: bytes) -> Definition:
    """Decode a definition; anything else raises ``Malformed``."""
    return DEFINITION.read(data)
