"""Tokens lie where they were written, and comments are blank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import SqlInvalid
from tocsin.pipeline.language.text.lexer import blanked, tokens


def test_a_text_is_taken_apart() -> None:
    found = [
        (token.kind, token.text) for token in tokens("SELECT a.`b`, :p, 'x''y' -- c\n/* d */ <=> 1.5e3::INT")
    ]

    assert found == [
        ("word", "SELECT"),
        ("word", "a"),
        ("symbol", "."),
        ("name", "`b`"),
        ("symbol", ","),
        ("parameter", ":p"),
        ("symbol", ","),
        ("string", "'x''y'"),
        ("symbol", "<=>"),
        ("number", "1.5e3"),
        ("symbol", "::"),
        ("word", "INT"),
        ("end", ""),
    ]


@given(st.text(alphabet="ab'\"`\\ \n-/*+:;,.()<=>%1$é", max_size=60))
def test_every_text_is_read_or_refused_and_positions_are_true(text: str) -> None:
    try:
        found = tokens(text)
    except SqlInvalid as error:
        assert 0 <= error.at <= len(text)
        return
    for token in found:
        assert text[token.at : token.end] == token.text
    if len(found) > 1:
        rebuilt = " " * found[0].at + blanked(text, found[:-1], set())
        assert [(token.kind, token.text, token.at) for token in tokens(rebuilt)[:-1]] == [
            (token.kind, token.text, token.at) for token in found[:-1]
        ]


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("a 'b", 3, "string is not closed; end it with another '"),
        ("a `b", 3, "name is not closed"),
        ("a /* b", 3, "comment is not closed"),
        ("a /*+ b */", 3, "hints are not allowed"),
        ("a ? b", 3, "write a parameter as :name"),
        ("a 1x", 3, "number has a letter in it"),
        ("a \0", 3, "U+0000 is not allowed"),
        ("a € b", 3, "has no meaning here"),
        ("a r'b'", 3, "strings with a prefix"),
        ("x" * (1 << 20) + "x", 1, "too long"),
    ],
)
def test_what_cannot_be_read_is_pointed_at(text: str, column: int, said: str) -> None:
    with pytest.raises(SqlInvalid) as caught:
        tokens(text)

    assert caught.value.column == column
    assert said in str(caught.value)
