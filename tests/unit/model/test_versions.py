"""Versions of what is stored and said: each value says its own, and a newer one is never taken for another."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tocsin
from tocsin.errors import FormatNewer, Malformed
from tocsin.model.versions import KNOWN, UNREADABLE, Document, Foreign, Format, Packed


class Thing(msgspec.Struct, frozen=True):
    name: str
    count: int = 0


PACKED: Final = Packed("a thing", msgspec.msgpack.Decoder(Thing), 3)
SPOKEN: Final = Packed("a spoken thing", msgspec.msgpack.Decoder(Thing), spoken=True)
DOCUMENT: Final = Document("a document", msgspec.json.Decoder(Thing), 3)
TEXT: Final = Format("a text", 3)
FOREIGN: Final = Foreign("somebody's bytes", 3)
OURS: Final = ("a thing", "a spoken thing", "a document", "a text", "somebody's bytes")
for _name in OURS:
    del KNOWN[_name]


def test_a_value_is_read_as_it_was_written_and_says_its_version() -> None:
    thing = Thing("x", 7)
    assert PACKED.read(PACKED.write(thing)) == DOCUMENT.read(DOCUMENT.write(thing)) == thing
    assert PACKED.write(thing)[0] == 3
    assert msgspec.json.decode(DOCUMENT.write(thing)) == {"v": 3, "name": "x", "count": 7}
    assert TEXT.open(TEXT.seal(b"text")) == b"text"


def test_what_release_0_1_0_stored_is_read() -> None:
    thing = Thing("x", 7)
    assert PACKED.read(msgspec.msgpack.encode(thing)) == thing
    assert DOCUMENT.read(msgspec.json.encode(thing)) == thing
    assert TEXT.open(b"text") == b"text"
    assert FOREIGN.open(b"\n{}") == b"\n{}"


def test_what_a_process_of_0_1_0_says_is_refused_in_words() -> None:
    with pytest.raises(Malformed, match="stop the process of release"):
        SPOKEN.read(msgspec.msgpack.encode(Thing("x")))


@pytest.mark.parametrize(
    "read",
    [
        lambda: PACKED.read(b"\x04" + msgspec.msgpack.encode(Thing("x"))),
        lambda: DOCUMENT.read(b'{"v":4,"name":"x"}'),
        lambda: TEXT.open(b"\x04text"),
        lambda: FOREIGN.open(b"\x00\x04text"),
    ],
)
def test_a_newer_version_is_refused_with_what_to_do(read: object) -> None:
    assert callable(read)
    with pytest.raises(FormatNewer) as caught:
        read()
    assert (caught.value.version, caught.value.newest) == (4, 3)
    assert "Upgrade this process" in str(caught.value)


def test_a_document_without_fields_is_still_one() -> None:
    assert DOCUMENT.seal(b"{}") == b'{"v":3}'


@given(st.binary())
def test_somebodys_bytes_come_back_whatever_they_are(data: bytes) -> None:
    assert FOREIGN.open(FOREIGN.seal(data)) == data


@given(st.binary(max_size=60))
def test_reading_raises_nothing_else(data: bytes) -> None:
    for known in (PACKED, SPOKEN, DOCUMENT):
        try:
            known.read(data)
        except UNREADABLE:
            continue


# ── that nothing goes without ───────────────────────────────────────────────────────────────────────────────

# Modules whose MessagePack is of no value that is stored or said by itself.
WITHOUT: Final = {
    "core/refuge.py",  # a checksum
    "core/coordination/snapshot.py",  # items, inside a piece that says its version
    "model/versions.py",
    "wire/commands.py",  # commands, inside a batch
    "wire/notices.py",  # items, inside a notice
}


def test_nothing_is_packed_without_a_version() -> None:
    source = Path(tocsin.__file__).parent
    naked = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"msgpack\.(Encoder\(|encode\(|decode\()", path.read_text())
    }
    assert {each for each in naked if not each.startswith(("lab/", "sim/"))} <= WITHOUT


def test_every_format_is_in_the_reference() -> None:
    for found in pkgutil.walk_packages(tocsin.__path__, "tocsin."):
        if not found.name.startswith(("tocsin.pipeline", "tocsin.lab", "tocsin.__main__")):
            importlib.import_module(found.name)
    for name in ("tocsin.pipeline.progress", "tocsin.pipeline.lease"):
        importlib.import_module(name)
    page = Path(tocsin.__file__).parents[2] / "docs" / "reference" / "store.md"
    told = dict(
        re.findall(r"^\| ([^|]+?) \| (\d+) \| (?:binary|JSON|foreign)", page.read_text(), re.MULTILINE)
    )
    assert told == {each.name: str(each.newest) for each in KNOWN.values()}
