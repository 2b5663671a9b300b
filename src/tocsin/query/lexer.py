"""A query's text as tokens.

    word     Location/Room, type, AND   a key, a keyword or the name of a function: the parser knows which
    key      `any key at all`           two backticks stand for one
    string   'text' or "text"           \\' \\" \\\\ are ' " \\, as are doubled quotes; other backslashes are kept
    number   410, 3.5, 1e-3             without a sign
    symbol   = != <> < <= > >= =~ !~ + - * / % ( ) ,

A slash between letters or digits belongs to a word that has begun (``Location/Room``, ``a/2``); with a space on either
side, or after a number, it divides. Every character is looked at once.
"""

from __future__ import annotations

import re
import sys
from typing import Final
from typing import Literal as OneOf

import msgspec

from tocsin.errors import QueryInvalid
from tocsin.query.limits import QueryLimits

TokenKind = OneOf["word", "key", "string", "number", "symbol", "end"]

_SEGMENT: Final = r"\w+(?:[.:]\w+)*"
WORD: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?!\w)")

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_TOKEN: Final = re.compile(
    rf"""(?P<number>{NUMBER.pattern})
    |(?P<word>{WORD.pattern})
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<key>`(?:[^`]|``)*`)
    |(?P<symbol><=|>=|<>|!=|=~|!~|==|&&|\|\||[=<>+\-*/%(),!])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = {
    "'": re.compile(r"""\\([\\'"])|'(')"""),
    '"': re.compile(r"""\\([\\'"])|"(")"""),
}
_OPENED: Final = {"'": "string", '"': "string", "`": "key"}
# Symbols of other languages that people write.
_INSTEAD: Final = {"==": "=", "&&": "AND", "||": "OR", "!": "NOT"}
_UNSPEAKABLE: Final = re.compile("[\0\ud800-\udfff]")


class Token(msgspec.Struct, frozen=True, gc=False):
    """A piece of the text, where it begins, and (of strings and keys) what it says."""

    kind: TokenKind
    text: str
    at: int
    says: str = ""

    def shown(self) -> str:
        """The token in an error."""
        if self.kind == "end":
            return "the end"
        return self.text if len(self.text) <= 40 else f"{self.text[:40]}…"


def tokens(text: str, limits: QueryLimits) -> list[Token]:
    """The tokens of a text, and one for its end."""
    if len(text) > limits.length:
        raise QueryInvalid(
            text,
            limits.length,
            f"a query of {len(text)} characters is too long; at most {limits.length} are allowed",
        )
    if bad := _UNSPEAKABLE.search(text):
        raise QueryInvalid(text, bad.start(), f"the character U+{ord(bad[0]):04X} is not allowed in a query")
    found: list[Token] = []
    at = _SPACE.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise QueryInvalid(text, at, _stray(text[at]))
        found.append(_token(match, text, limits))
        at = _SPACE.match(text, match.end()).end()  # type: ignore[union-attr]
    found.append(Token("end", "", len(text)))
    return found


def _token(match: re.Match[str], text: str, limits: QueryLimits) -> Token:
    raw, at = match[0], match.start()
    match match.lastgroup:
        case "word":
            return Token("word", sys.intern(_bounded(raw, "key", limits.key_length, text, at)), at)
        case "string":
            says = _ESCAPED[raw[0]].sub(lambda escape: escape[1] or escape[2], raw[1:-1])
            return Token("string", raw, at, _bounded(says, "string", limits.string_length, text, at))
        case "key":
            says = sys.intern(raw[1:-1].replace("``", "`"))
            if not says:
                raise QueryInvalid(text, at, "a key cannot be empty; write its name between the backticks")
            return Token("key", raw, at, _bounded(says, "key", limits.key_length, text, at))
        case "number":
            return Token("number", raw, at)
        case _:
            if raw in _INSTEAD:
                raise QueryInvalid(text, at, f"{raw} is not an operator here; write {_INSTEAD[raw]}")
            return Token("symbol", raw, at)


def _bounded(says: str, what: str, most: int, text: str, at: int) -> str:
    if len(says) > most:
        raise QueryInvalid(
            text, at, f"a {what} of {len(says)} characters is too long; at most {most} are allowed"
        )
    return says


def _stray(character: str) -> str:
    if character in _OPENED:
        return f"this {_OPENED[character]} is not closed; end it with another {character}"
    return f"the character {character!r} has no meaning here; put strings in quotes, and unusual keys in backticks"
