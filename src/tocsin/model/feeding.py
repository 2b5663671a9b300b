"""How far a feed is: the cell that its agent keeps, so that each record is in the log of feeds once.

An agent reads its source, appends records to the log of feeds, and must not append any of them again after it was
killed in between, however long it was away. The log remembers the ids of records for minutes only. So each append is
**intended** first: the cell says how far the feed will be, the id of the append's last record, and where the log ended
before it. Appends are atomic: a feeder that finds an intent looks for its id behind that position, and knows.

    marks ──intend──► marks + intent ──append──► the same ──settle──► marks (those of the intent)

The next intent settles the one before, so that a busy feed writes its cell once for each append.

The pipeline trims the log of feeds when records are in their datasets, but not what lies behind an intent (``floor``).

**Marks** are how far, by name: a position of the message log for each subject pattern, an offset for each partition,
a number of records for a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tocsin.model.versions import Document, Foreign
from tocsin.ports import PAYLOAD_MAX_BYTES, TableSpec

FEEDER: Final = "feeder"  # the table's name, after the network's and a hyphen
PREFIX: Final = "feed."  # of the keys of cells
REQUESTS_CELL: Final = f"{PREFIX}http-requests"  # of the HTTP endpoint; no feed can be called so

Marks = dict[str, int]


class Intent(msgspec.Struct, frozen=True):
    """An append that is about to happen, or has."""

    marks: Marks  # how far the feed is then
    id: str  # of its last record
    after: int  # the log's newest position before it


class FeedCell(msgspec.Struct, frozen=True):
    """How far one feed is."""

    version: int  # of the feed's definition; another version is another feed
    marks: Marks
    intent: Intent | None = None


def table_spec(network: str) -> TableSpec:
    return TableSpec(f"{network}-{FEEDER}")


def cell_key(feed: str) -> str:
    return f"{PREFIX}{feed.lower()}"


def status_subject(network: str) -> str:
    """Where the feeder answers how its feeds are."""
    return f"{network}.{FEEDER}.status"


def floor(cells: Iterable[FeedCell], end: int) -> int:
    """The position of the log of feeds before which it may be trimmed: ``end``, or less if a feed needs more."""
    return min((end, *(each.intent.after + 1 for each in cells if each.intent is not None)))


RECORDS: Final = Foreign("records of a feed")  # an entry of the log of feeds
RECORD_MAX_BYTES: Final = PAYLOAD_MAX_BYTES - len(RECORDS.mark)
CELL: Final = Document("how far a feed is", msgspec.json.Decoder(FeedCell))


def encode_cell(cell: FeedCell) -> bytes:
    return CELL.write(cell)


def decode_cell(data: bytes) -> FeedCell:
    """Decode a cell; anything else raises ``Malformed``."""
    return CELL.read(data)
