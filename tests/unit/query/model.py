"""A query language so plain that it can be seen to be right: one walk over the tree, failures as exceptions.

``run`` follows docs/reference/queries.md; with ``strict=True`` AND and OR go from the left, as in CloudEvents SQL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tocsin.query.expression import (
    And,
    Arithmetic,
    Call,
    Compare,
    Expression,
    Has,
    In,
    Key,
    Like,
    Literal,
    Match,
    Negate,
    Not,
    Or,
    Xor,
)
from tocsin.query.values import Metadata, Value


class Failed(Exception):
    """There is no value."""


def run(tree: Expression, metadata: Metadata, *, strict: bool = False) -> Value:
    """The value of an expression; raises ``Failed``."""
    return Walk(metadata, strict).value(tree)


def holds(tree: Expression, metadata: Metadata) -> bool:
    """Whether a query matches."""
    try:
        return boolean(run(tree, metadata))
    except Failed:
        return False


class Walk:
    def __init__(self, metadata: Metadata, strict: bool) -> None:
        self.metadata = metadata
        self.strict = strict

    def value(self, tree: Expression) -> Value:
        match tree:
            case Literal(value):
                return value
            case Key(name):
                if name not in self.metadata:
                    raise Failed
                return self.metadata[name]
            case Has(name):
                return name in self.metadata
            case Compare(op, left, right):
                return compare(op, self.value(left), self.value(right))
            case Like(subject, pattern):
                return like(string(self.value(subject)), list(wildcards(pattern)))
            case Match(subject, regex):
                return re.search(regex, string(self.value(subject))) is not None
            case In(subject, options):
                mine = self.value(subject)
                return self.any([lambda option=option: same(mine, self.value(option)) for option in options])
            case Not(of):
                return not boolean(self.value(of))
            case And(parts):
                return not self.any([lambda part=part: not boolean(self.value(part)) for part in parts])
            case Or(parts):
                return self.any([lambda part=part: boolean(self.value(part)) for part in parts])
            case Xor(parts):
                return sum(boolean(self.value(part)) for part in parts) % 2 == 1
            case Arithmetic(op, left, right):
                return arithmetic(op, number(self.value(left)), number(self.value(right)))
            case Negate(of):
                return in_range(-number(self.value(of)))
            case Call(name, args):
                return call(name, [self.value(arg) for arg in args])

    def any(self, parts: list) -> bool:  # type: ignore[type-arg]
        failed = False
        for part in parts:
            try:
                if part():
                    return True
            except Failed:
                if self.strict:
                    raise
                failed = True
        if failed:
            raise Failed
        return False


def string(value: Value) -> str:
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, float) and value == int(value) and -(2**53) < value < 2**53:
        return str(int(value))
    return str(value)


def number(value: Value) -> int | float:
    if not isinstance(value, str):
        return value + 0 if not isinstance(value, bool) else (1 if value else 0)
    if len(value) > 64 or not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value, re.ASCII):
        raise Failed
    if re.fullmatch(r"[+-]?\d+", value, re.ASCII) and -(2**63) <= int(value) < 2**63:
        return int(value)
    if math.isinf(float(value)):
        raise Failed
    return float(value)


def boolean(value: Value) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise Failed
        return value.lower() == "true"
    return bool(value)


def like_type(value: Value, example: Value) -> Value:
    if isinstance(example, str):
        return string(value)
    return boolean(value) if isinstance(example, bool) else number(value)


def same(mine: Value, option: Value) -> bool:
    return mine == like_type(option, mine)


def compare(op: str, left: Value, right: Value) -> bool:
    if op in ("=", "!="):
        return (like_type(left, right) == right) == (op == "=")
    low, high = number(left), number(right)
    return {"<": low < high, "<=": low <= high, ">": low > high, ">=": low >= high}[op]


def in_range(result: int | float) -> int | float:
    if isinstance(result, float) and (math.isinf(result) or math.isnan(result)):
        raise Failed
    if isinstance(result, int) and not -(2**63) <= result < 2**63:
        raise Failed
    return result


def arithmetic(op: str, left: int | float, right: int | float) -> int | float:
    if op in "/%" and right == 0:
        raise Failed
    whole = isinstance(left, int) and isinstance(right, int)
    if op == "+":
        return in_range(left + right)
    if op == "-":
        return in_range(left - right)
    if op == "*":
        return in_range(left * right)
    if not whole:
        try:
            return in_range(left / right if op == "/" else math.fmod(left, right))
        except OverflowError:
            raise Failed from None
    quotient = int(left) // int(right)
    if quotient < 0 and quotient * right != left:
        quotient += 1
    return in_range(quotient if op == "/" else left - quotient * right)


def wildcards(pattern: str) -> Iterator[tuple[str, bool]]:
    """Characters of a pattern, and whether they stand for themselves."""
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\" and pattern[at + 1 : at + 2] in ("%", "_") and at + 1 < len(pattern):
            yield pattern[at + 1], True
            at += 2
        else:
            yield pattern[at], pattern[at] not in "%_"
            at += 1


def like(text: str, pattern: list[tuple[str, bool]]) -> bool:
    if not pattern:
        return not text
    character, plain = pattern[0]
    if not plain and character == "%":
        return any(like(text[skipped:], pattern[1:]) for skipped in range(len(text) + 1))
    return bool(text) and (not plain or text[0] == character) and like(text[1:], pattern[1:])


def integer(value: Value) -> int:
    if isinstance(value, str) and not (len(value) <= 64 and re.fullmatch(r"[+-]?\d+", value, re.ASCII)):
        raise Failed
    if not -(2**63) <= int(value) < 2**63:
        raise Failed
    return int(value)


def call(name: str, args: list[Value]) -> Value:
    if name == "ABS":
        return in_range(abs(number(args[0])))
    if name == "BOOL":
        return boolean(args[0])
    if name == "FLOAT":
        return float(number(args[0]))
    if name == "INT":
        return integer(args[0])
    if name == "CONCAT":
        return "".join(map(string, args))
    text = string(args[0])
    if name == "CONCAT_WS":
        return text.join(map(string, args[1:]))
    if name in ("LEFT", "RIGHT"):
        count = integer(args[1])
        if count < 0:
            raise Failed
        return text[:count] if name == "LEFT" else text[::-1][:count][::-1]
    if name == "SUBSTRING":
        return substring(text, *map(integer, args[1:]))
    if name == "LENGTH":
        return len(text)
    return {"STRING": text, "LOWER": text.lower(), "UPPER": text.upper(), "TRIM": text.strip()}[name]


def substring(text: str, position: int, length: int = 1 << 62) -> str:
    if not -len(text) <= position <= len(text) or length < 0:
        raise Failed
    if position == 0:
        return ""
    first = position if position > 0 else len(text) + 1 + position
    return "".join(character for at, character in enumerate(text, start=1) if first <= at < first + length)
