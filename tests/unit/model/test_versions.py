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
from tocsin.model.versions import (
    ANY,
    KNOWN,
    LEVEL_0_1_0,
    UNREADABLE,
    Document,
    Foreign,
    Format,
    Levels,
    Packed,
    Stated,
    common,
    fits,
)


class Thing(msgspec.Struct, frozen=True):
    name: str
    count: int = 0


PACKED: Final = Packed("a thing", msgspec.msgpack.Decoder(Thing), 3)
SPOKEN: Final = Packed("a spoken thing", msgspec.msgpack.Decoder(Thing), spoken=True)
DOCUMENT: Final = Document("a document", msgspec.json.Decoder(Thing), 3)
TEXT: Final = Format("a text", 3)
FOREIGN: Final = Foreign("somebody's bytes", 3)
STATED: Final = Stated("a stated thing", 3)
OURS: Final = ("a thing", "a spoken thing", "a document", "a text", "somebody's bytes", "a stated thing")
levels = st.integers(1, 5).flatmap(lambda oldest: st.builds(Levels, st.just(oldest), st.integers(oldest, 6)))
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
        lambda: STATED.check("4"),
        lambda: STATED.check(4),
    ],
)
def test_a_newer_version_is_refused_with_what_to_do(read: object) -> None:
    assert callable(read)
    with pytest.raises(FormatNewer) as caught:
        read()
    assert (caught.value.version, caught.value.newest) == (4, 3)
    assert "Upgrade this process" in str(caught.value)


def test_a_version_in_somebody_elses_envelope_may_be_left_out() -> None:
    for said in (None, STATED.text, 1, "2", 3):
        STATED.check(said)


@pytest.mark.parametrize("said", ["", "x", "-1", "1.0", True, 1.5, [], "٣", "1" * 40])
def test_what_is_no_version_is_refused_with_one_that_is(said: object) -> None:
    with pytest.raises(Malformed, match="write 3"):
        STATED.check(said)


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
    "core/survival/refuges.py",  # a checksum
    "core/coordination/state/snapshot.py",  # items, inside a piece that says its version
    "model/versions.py",
    "wire/internal/commands.py",  # commands, inside a batch
    "wire/internal/notices.py",  # items, inside a notice
}


# Modules whose JSON has no version of ours, and why.
WITHOUT_JSON: Final = {
    "bridge/dds/typed.py": "users' samples, and messages that become samples",
    "broker/channels/pulls.py": "the last message of an answer, which says its version",
    "client/pull.py": "the same, and the question, which says its own",
    "broker/entrance/registrar.py": "the answer about an account, which says its version",
    "client/accounts.py": "the same, and the request, which says its own",
    "core/access/registration.py": "a request about an account, whose version is the key v",
    "coordinator/door/lookup.py": "answers of the door, which say their version",
    "core/channels/pull.py": "a question for results, whose version is the key v",
    "client/channel.py": "a result: a user's own columns; the event around it says the version",
    "client/message.py": "payloads of users' messages",
    "client/stream.py": "$meta, in which a client need not say the version",
    "config/loading.py": "a value of a setting in an environment variable",
    "config/schema.py": "settings, which a format of `runtime.process` carries",
    "core/quality/judging.py": "payloads of users' messages",
    "core/streams/metadata_payload.py": "$meta, whose version is the key $v",
    "core/streams/listing.py": "streams, inside news that say their version",
    "feeds/files.py": "users' records",
    "feeds/filling.py": "users' records",
    "feeds/http/server.py": "the HTTP door's answers, for people and programs of any age",
    "feeds/http/intake.py": "users' records",
    "feeds/packing.py": "users' records",
    "model/catalogue.py": "the decoder of a format below it",
    "model/results.py": "hashed, for a key",
    "model/versions.py": "formats themselves",
    "pipeline/ingest/ingest.py": "users' records",
    "pipeline/language/functions/geometry.py": "GeoJSON",
    "pipeline/storage/tables/delta.py": "Delta's log and its statistics",
    "pipeline/storage/rows/fitting.py": "users' records",
    "pipeline/storage/parts.py": "from a task to its driver, in one run of Spark",
    "pipeline/storage/rows/user_files.py": "users' files",
    "pipeline/storage/rows/values.py": "users' values",
    "pipeline/execution/subscription_tables.py": "a column of a Delta table, whose commits say their version",
    "pipeline/execution/writer.py": "from a task to its driver, in one run of Spark",
    "runtime/documents.py": "users' files",
    "runtime/logs.py": "log lines, for people",
    "runtime/network/child_output.py": "log lines, for people",
    "runtime/process.py": "sealed by a format beside it",
    "store/jetstream/follower.py": "NATS",
    "store/jetstream/store.py": "NATS",
    "store/nats/protocol.py": "NATS",
    "store/servers/embedded.py": "the configuration of a NATS server",
    "store/jetstream/snapshots.py": "NATS",
    "store/jetstream/stream.py": "NATS",
    "store/jetstream/verdict.py": "NATS",
}
PRINTED: Final = ("cli/", "lab/", "sim/")  # output for people, or files of experiments


def modules_with(pattern: str) -> set[str]:
    """The modules that have a line of a pattern which makes no format."""
    source = Path(tocsin.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if any(
            re.search(pattern, line) and not re.search(r"(Document|Packed)\(", line)
            for line in path.read_text().splitlines()
        )
    }
    return {each for each in found if not each.startswith(PRINTED)}


def test_nothing_is_packed_without_a_version() -> None:
    assert modules_with(r"msgpack\.(Encoder|encode|decode)\(") <= WITHOUT


def test_no_json_goes_without_a_version_or_a_reason() -> None:
    assert modules_with(r"\bjson\.(Encoder|Decoder|encode|decode|dumps|loads)\(") == set(WITHOUT_JSON)


def test_every_format_is_in_the_reference() -> None:
    for found in pkgutil.walk_packages(tocsin.__path__, "tocsin."):
        if not found.name.startswith(("tocsin.pipeline", "tocsin.__main__")):
            importlib.import_module(found.name)
    for name in ("tocsin.pipeline.ingest.progress", "tocsin.store.process_lease"):
        importlib.import_module(name)
    page = Path(tocsin.__file__).parents[2] / "docs" / "reference" / "store.md"
    told = dict(
        re.findall(r"^\| ([^|]+?) \| (\d+) \| (?:binary|JSON|foreign|stated)", page.read_text(), re.MULTILINE)
    )
    assert told == {each.name: str(each.newest) for each in KNOWN.values()}


@given(st.lists(levels, max_size=4), levels, st.integers(0, 3))
def test_whoever_fits_leaves_a_level_that_all_speak(
    members: list[Levels], newcomer: Levels, level: int
) -> None:
    network = common(level, members)
    if network.oldest <= network.newest and fits(newcomer, network):
        together = common(level, (*members, newcomer))
        assert level <= together.oldest <= together.newest
        assert all(each.oldest <= together.oldest and together.newest <= each.newest for each in members)


def test_whoever_says_nothing_counts_for_nothing() -> None:
    assert common(2, (LEVEL_0_1_0,)) == Levels(2, ANY)
    assert common(2, ()) == Levels(2, ANY)
