"""`tocsin pub`, `sub` and `streams`: what they are given, and what they show."""

from __future__ import annotations

import pytest

from tocsin.cli.main import main
from tocsin.cli.verbs.publish import _pair
from tocsin.cli.verbs.streams import _line, _object, _table
from tocsin.cli.verbs.subscribe import _line as message_line
from tocsin.client import Changed, Joined, Left, Message, Set
from tocsin.errors import OperatorError
from tocsin.model.stream import Metadata


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Room=410", ("Room", "410")),
        ("Location/Room=a=b", ("Location/Room", "a=b")),
        ("empty=", ("empty", "")),
        ("floor:=4", ("floor", 4)),
        ("on:=true", ("on", True)),
        ("old:=null", ("old", None)),
        ('name:="x"', ("name", "x")),
    ],
)
def test_metadata_is_text_or_json(text: str, meant: tuple[str, object]) -> None:
    assert _pair(text) == meant


@pytest.mark.parametrize("bad", ["Room", "=410", ":=1", "floor:=four", "list:=[1]", "floor:="])
def test_metadata_that_cannot_be_read_is_refused_with_an_example(bad: str) -> None:
    with pytest.raises(OperatorError, match="floor:=4 or old:=null"):
        _pair(bad)


@pytest.mark.parametrize("bad", ["high", "10", "-1", ""])
def test_a_priority_that_is_none_is_refused_in_words(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pub", "a", "b", f"--priority={bad}", "--at", "127.0.0.1:1"]) == 2
    assert "Give 0 to 9, or critical" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sub"], "nothing to subscribe to"),
        (["sub", "a", "--query", "b = 1"], "topic filters and a query"),
    ],
)
def test_filters_or_a_query_are_needed(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--at", "127.0.0.1:1"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["sub", "--query", "Room = "], ["streams", "Room = "]])
def test_a_query_that_cannot_be_read_is_shown_with_a_mark(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--at", "127.0.0.1:1"]) == 1
    shown = capsys.readouterr().err
    assert "query, character" in shown and shown.rstrip().endswith("^")


def test_changes_are_lines_with_a_sign() -> None:
    metadata: Metadata = {"topic": "a", "Room": "410", "floor": 4}
    lines = [_line(each).plain for each in (Joined("a", metadata), Changed("a", {}), Left("a", {}))]
    assert [line.rstrip() for line in lines] == ['+ a   Room="410"  floor=4', "~ a", "- a"]
    assert _table(Set({"a": {}, "b": {}})).row_count == 2


def test_changes_are_json_objects_as_the_broker_writes_them() -> None:
    assert _object(Set({"a": {"n": 1}})) == '{"streams":[{"topic":"a","metadata":{"n":1}}]}'
    assert _object(Left("a", {})) == '{"left":{"topic":"a","metadata":{}}}'


def test_a_message_is_a_line_or_a_json_object() -> None:
    assert message_line(Message("a", b"x"), json=False) == "a x\n"
    assert message_line(Message("a", b"x"), json=True) == '{"topic":"a","payload":"x"}\n'
    known = Message("a", b"x", metadata={"n": 1})
    assert message_line(known, json=True) == '{"topic":"a","payload":"x","metadata":{"n":1}}\n'
