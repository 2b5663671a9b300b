"""JSON files that are read as a whole, as records: an array's elements, a GeoJSON collection's features, or one object.

Errors inside a record are left to the pipeline that fits it: it reports them, and goes on with the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin.errors import FileUnreadable

BOM: Final = b"\xef\xbb\xbf"  # before text in UTF-8 as some programs write it
POINTS: Final = (("longitude", "latitude"), ("lon", "lat"))  # columns that are filled from a point
_WRONG: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Collection(msgspec.Struct):
    type: str = ""
    features: list[msgspec.Raw] | None = None


class _Feature(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw(b"null")
    properties: dict[str, msgspec.Raw] | None = None
    geometry: msgspec.Raw = msgspec.Raw(b"null")


class _Point(msgspec.Struct):
    type: str
    coordinates: Any = None


def read_document(path: Path, max_bytes: int) -> tuple[int, Iterator[bytes]]:
    """How many records a file has, and the records, in order. Raises ``FileUnreadable``."""
    size = path.stat().st_size
    if size > max_bytes:
        raise FileUnreadable(
            str(path),
            f"it has {size} bytes, and JSON is read as a whole, up to {max_bytes}",
            "Write it as JSON lines (.jsonl), which has no such bound",
        )
    data = path.read_bytes().removeprefix(BOM).strip()
    try:
        if data[:1] == b"[":
            elements = msgspec.json.decode(data, type=list[msgspec.Raw])
            return len(elements), map(bytes, elements)
        collection = msgspec.json.decode(data, type=_Collection)
    except _WRONG as error:
        raise FileUnreadable(
            str(path),
            f"it is not JSON: {error}",
            "Write one JSON array, one GeoJSON collection, or JSON lines (.jsonl)",
        ) from None
    if collection.type != "FeatureCollection" or collection.features is None:
        return 1, iter((data,))
    return len(collection.features), map(_record, collection.features)


def _record(feature: msgspec.Raw) -> bytes:
    """A feature as a record: its properties; ``geometry``, ``id`` and where a point is, if no property is called so."""
    text = bytes(feature)
    try:
        read = msgspec.json.decode(text, type=_Feature)
        record: dict[str, Any] = dict(read.properties or {})
        if bytes(read.id) != b"null":
            record.setdefault("id", read.id)
        if bytes(read.geometry) != b"null":
            record.setdefault("geometry", read.geometry)
            at = _point(read.geometry)
            for east, north in POINTS if at is not None else ():
                record.setdefault(east, at[0])
                record.setdefault(north, at[1])
        return msgspec.json.encode(record)
    except _WRONG:
        return text


def _point(geometry: msgspec.Raw) -> Any:
    try:
        point = msgspec.json.decode(geometry, type=_Point)
    except _WRONG:
        return None
    place = point.coordinates
    good = point.type == "Point" and isinstance(place, list) and len(place) >= 2
    return place if good else None
