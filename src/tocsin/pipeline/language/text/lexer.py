"""A script's text as tokens, each with the character at which it begins.

    word       SELECT, kind, Reports     a keyword or a name: the parser knows which
    name       `kind`                    a name in backticks
    string     'text' or "text"          a backslash escapes, as in Spark; so does doubling the quote
    number     410, 3.5, 1e-3
    parameter  :user                     only where no word, bracket or string ends right before the colon
    symbol     everything else

Comments (``-- …`` and ``/* … */``) are blank. The text that sqlglot reads is made from these tokens, with blanks for
comments, so that both see the same statement, and positions in one are positions in the other.
"""

from __future__ import annotations

import re
from typing import Final
from typing import Literal as OneOf

import msgspec

from tocsin.errors import SqlInvalid
from tocsin.pipeline.language.limits import SCRIPT_MAX_BYTES

TokenKind = OneOf["word", "name", "string", "number", "parameter", "symbol", "end"]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|--[^\n]*|/\*(?!\+).*?\*/)*", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))
    |(?P<word>[^\W\d]\w*)
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<name>`[^`]*`)
    |(?P<parameter>(?<![\w)\]'"`:]):[A-Za-z_][A-Za-z0-9_]*)
    |(?P<symbol><=>|<=|>=|<>|!=|==|=~|!~|\|\||->|::|[=<>+\-*/%(),.;:!\[\]~&|^])""",
    re.VERBOSE | re.DOTALL,
)
_UNSPEAKABLE: Final = re.compile("[\0\ud800-\udfff]")
_PREFIXES: Final = ("R", "X", "B", "N", "E", "U", "F", "RB", "BR")
_OPENED: Final = {"'": "string", '"': "string", "`": "name"}


class Token(msgspec.Struct, frozen=True, gc=False):
    """A piece of the text, and where it begins."""

    kind: TokenKind
    text: str
    at: int

    @property
    def end(self) -> int:
        return self.at + len(self.text)

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols

    def shown(self) -> str:
        """The token in an error."""
        if self.kind == "end":
            return "the end"
        return self.text if len(self.text) <= 40 else f"{self.text[:40]}…"


def tokens(text: str) -> list[Token]:
    """The tokens of a text, and one for its end. Raises ``SqlInvalid``."""
    if len(text) > SCRIPT_MAX_BYTES or len(text.encode(errors="replace")) > SCRIPT_MAX_BYTES:
        raise SqlInvalid(
            text[:200],
            0,
            f"a script of more than {SCRIPT_MAX_BYTES} bytes is too long",
            "run it in several pieces",
        )
    if bad := _UNSPEAKABLE.search(text):
        raise SqlInvalid(
            text, bad.start(), f"the character U+{ord(bad[0]):04X} is not allowed", "leave it out"
        )
    found: list[Token] = []
    at = _blank(text, 0)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or text.startswith("/*", at):
            raise _stray(text, at)
        token = Token(match.lastgroup, match[0], at)  # type: ignore[arg-type]
        if token.kind == "string" and found and found[-1].end == at and found[-1].is_word(*_PREFIXES):
            raise SqlInvalid(
                text, found[-1].at, f"strings with a prefix ({found[-1].text}'…') are not read", "write '…'"
            )
        found.append(token)
        at = _blank(text, match.end())
    found.append(Token("end", "", len(text)))
    return found


def _blank(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]


def _stray(text: str, at: int) -> SqlInvalid:
    if text.startswith("/*+", at):
        return SqlInvalid(text, at, "hints are not allowed", "leave it out: the plan is chosen for you")
    if text.startswith("/*", at):
        return SqlInvalid(text, at, "this comment is not closed", "end it with */")
    character = text[at]
    if character in _OPENED:
        return SqlInvalid(
            text, at, f"this {_OPENED[character]} is not closed", f"end it with another {character}"
        )
    if character in "$@{?":
        return SqlInvalid(
            text, at, f"{character} has no meaning here; there are no variables", "write a parameter as :name"
        )
    if character.isdigit():
        return SqlInvalid(
            text, at, "this number has a letter in it", "write 10, 2.5 or 1e-3, and CAST(… AS …)"
        )
    return SqlInvalid(text, at, f"the character {character!r} has no meaning here", "put text in quotes")


def blanked(text: str, pieces: list[Token], hidden: set[int]) -> str:
    """The text of these tokens where they are, and blanks for all else: comments, and the tokens at ``hidden``.

    The first character is that of the first token.
    """
    start = pieces[0].at
    parts: list[str] = []
    at = start
    for token in pieces:
        parts.append(_space(text[at : token.at]))
        parts.append(_space(token.text) if token.at in hidden else token.text)
        at = token.end
    return "".join(parts)


def _space(text: str) -> str:
    return "".join("\n" if character == "\n" else " " for character in text)
