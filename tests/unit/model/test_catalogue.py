"""Definitions and their cells."""

from __future__ import annotations

import pytest

from tocsin.errors import Malformed
from tocsin.model.catalogue import (
    Channel,
    Column,
    Dataset,
    Definition,
    Feed,
    FolderSource,
    HttpSource,
    KafkaSource,
    Parameter,
    StreamSource,
    TopicSource,
    decode_definition,
    encode_definition,
    is_name,
    key_of,
)

CHANNEL = Channel(
    "NearMe",
    (Parameter("user", "STRING"), Parameter("radius", "DOUBLE")),
    (Column("kind", "STRING"),),
    "SELECT kind FROM Emergencies",
    every_s=10,
)


@pytest.mark.parametrize(
    "definition",
    [
        CHANNEL,
        Dataset("Emergencies", (Column("kind", "STRING", False),), key=("kind",), keep_s=60),
        *(
            Feed("in", "Emergencies", source)
            for source in (
                StreamSource('type = "quake"'),
                TopicSource("quakes/#"),
                HttpSource(),
                FolderSource("/in"),
                KafkaSource("localhost:9092", "quakes"),
            )
        ),
    ],
)
def test_a_definition_is_what_was_written(definition: Definition) -> None:
    assert decode_definition(encode_definition(definition)) == definition


def test_keys_tell_kinds_apart_and_not_the_case_of_names() -> None:
    assert key_of(CHANNEL) == "channel.nearme"
    assert key_of(Dataset("NearMe", ())) == "dataset.nearme"


def test_a_channel_says_how_it_is_called() -> None:
    assert CHANNEL.signature == "NearMe(user STRING, radius DOUBLE)"


@pytest.mark.parametrize(
    "garbage", [b"", b"{}", b'{"kind": "river"}', b'{"kind": "channel", "name": 3}', b"\xff"]
)
def test_garbage_is_malformed(garbage: bytes) -> None:
    with pytest.raises(Malformed):
        decode_definition(garbage)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("Near_Me2", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("2near", False),
        ("né", False),
        ("a.b", False),
    ],
)
def test_names_are_short_words(text: str, good: bool) -> None:
    assert is_name(text) is good
