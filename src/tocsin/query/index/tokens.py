"""Tokens: what values and the conditions of queries have in common, so that a table can lead from one to the other.

CloudEvents SQL compares after casts: ``410``, ``"410"`` and ``"0410"`` all satisfy ``Room = 410``. So a value has a
token for each way in which it can be read, and a condition has one for each value that would satisfy it:

| token | a value has it | the condition that wants it |
| --- | --- | --- |
| a string | read as a string | ``= "text"``; an option of ``IN`` |
| a number | read as a number, if it can be | ``= 410``; an option of ``IN`` |
| ``AS_TRUE``, ``AS_FALSE`` | read as a boolean, if it can be | ``= TRUE``; a key that stands alone |
| ``IS_TRUE``, ``IS_FALSE`` | if it is a boolean | an option of ``IN``, which is read as the value's type |
| ``HERE`` | always | any that fails when the key is missing |
| ``Beginning`` | its first characters | ``LIKE "text%"``, ``=~ "^text"`` |

A condition with one of these forms is true only if it shares a token with the value of its key. Between two values
with the same ``form`` its outcome (true, false or failed) differs only if a token of the condition belongs to one of
them alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from tocsin.query.values import (
    Failure,
    Kind,
    Metadata,
    Number,
    Value,
    kind_of,
    to_boolean,
    to_number,
    to_string,
)


class Beginning(NamedTuple):
    """The first characters of a string."""

    text: str


Token: TypeAlias = str | int | float | bytes | Beginning

# Bytes, because no string and no number is equal to them.
AS_TRUE: Final = b"as true"
AS_FALSE: Final = b"as false"
IS_TRUE: Final = b"is true"
IS_FALSE: Final = b"is false"
HERE: Final = b"here"


class Reading:
    """A value, read in every way."""

    __slots__ = ("form", "number", "text", "tokens")

    def __init__(self, value: Value) -> None:
        number, boolean = to_number(value), to_boolean(value)
        self.text = to_string(value)
        self.number: Number | None = None if isinstance(number, Failure) else number
        self.form: tuple[Kind, bool, bool] = (
            kind_of(value),
            self.number is not None,
            not isinstance(boolean, Failure),
        )
        tokens: list[Token] = [self.text, HERE]
        if self.number is not None:
            tokens.append(self.number)
        if not isinstance(boolean, Failure):
            tokens.append(AS_TRUE if boolean else AS_FALSE)
        if isinstance(value, bool):
            tokens.append(IS_TRUE if value else IS_FALSE)
        self.tokens = tuple(tokens)


class View:
    """Metadata, each value read once, when it is first asked for."""

    __slots__ = ("_readings", "metadata")

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self._readings: dict[str, Reading | None] = {}

    def read(self, key: str) -> Reading | None:
        """The key's value, or None where it is missing."""
        if key in self._readings:
            return self._readings[key]
        value = self.metadata.get(key)
        reading = self._readings[key] = None if value is None else Reading(value)
        return reading


def token_equal_to(literal: Value) -> Token:
    """The tokens of a value with ``value = literal``, where the literal's type decides."""
    if isinstance(literal, bool):
        return AS_TRUE if literal else AS_FALSE
    return literal


def tokens_of_option(literal: Value) -> tuple[Token, ...]:
    """The tokens of which a value has one if it is equal to the literal, read as the value's own type."""
    tokens: list[Token] = [to_string(literal)]
    number, boolean = to_number(literal), to_boolean(literal)
    if not isinstance(number, Failure):
        tokens.append(number)
    if not isinstance(boolean, Failure):
        tokens.append(IS_TRUE if boolean else IS_FALSE)
    return tuple(tokens)
