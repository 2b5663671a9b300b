"""Fills the columns of a record that come from its message.

The record is the message's payload. If the dataset has columns of these names and types, and a record has no value of
its own there, they are filled:

    topic     STRING                      the message's topic
    at        TIMESTAMP                   when the network took the message
    metadata  MAP<STRING, STRING>, STRING what was said of its stream, if that is known

A payload that is no JSON object (nor an array of objects) stays as it is.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import msgspec

from tocsin.model.catalogue import Dataset
from tocsin.model.stream import Metadata

_TYPES: Final = {
    "topic": ("STRING",),
    "at": ("TIMESTAMP",),
    "metadata": ("MAP<STRING,STRING>", "STRING"),
}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_one = msgspec.json.Decoder(dict[str, msgspec.Raw])
_several = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class Filling:
    """Which columns of a dataset are filled."""

    def __init__(self, dataset: Dataset | None) -> None:
        self._columns: dict[str, str] = {}  # what → the column, as it is written
        for column in dataset.columns if dataset is not None else ():
            kinds = _TYPES.get(column.name.lower(), ())
            if column.type.replace(" ", "") in kinds:
                self._columns[column.name.lower()] = column.name

    @property
    def wants_metadata(self) -> bool:
        return "metadata" in self._columns

    def record(self, payload: bytes, topic: str, at_us: int, metadata: Metadata | None) -> bytes:
        """The record of a message."""
        if not self._columns:
            return payload
        try:
            if payload.lstrip()[:1] == b"[":
                found: Any = _several.decode(payload)
            else:
                found = _one.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return payload
        values = self._values(topic, at_us, metadata)
        if isinstance(found, list):
            return msgspec.json.encode([values | each for each in found])
        return msgspec.json.encode(values | found)

    def _values(self, topic: str, at_us: int, metadata: Metadata | None) -> dict[str, Any]:
        said: dict[str, Any] = {
            "topic": topic,
            "at": (_EPOCH + datetime.timedelta(microseconds=at_us)).isoformat(),
            "metadata": None if metadata is None else {key: _text(value) for key, value in metadata.items()},
        }
        return {column: said[what] for what, column in self._columns.items() if said[what] is not None}


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
