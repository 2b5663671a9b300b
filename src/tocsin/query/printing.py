"""Expressions as text that the parser reads back as the same expression, with no bracket that is not needed."""

from __future__ import annotations

import re
from typing import Final

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
from tocsin.query.lexer import NUMBER, WORD
from tocsin.query.values import Value

# How tightly an operator binds; the parser goes by the same table.
OR, XOR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN, ATOM = range(1, 10)
ARITHMETIC: Final = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}
RESERVED: Final = frozenset({"AND", "OR", "XOR", "NOT", "LIKE", "IN", "EXISTS", "TRUE", "FALSE"})

_BACKSLASH: Final = re.compile(r"""\\(?=[\\'"]|\Z)""")


def print_expression(expression: Expression, least: int = OR) -> str:
    """The text; in brackets if it binds less tightly than ``least``."""
    text, binding = _print(expression)
    return text if binding >= least else f"({text})"


def print_key(name: str) -> str:
    """A key as it must be written: bare where the lexer takes it for one word and the parser for no keyword."""
    if WORD.fullmatch(name) and not NUMBER.match(name) and name.upper() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def print_value(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return print_string(value)
    return repr(value)


def print_string(text: str) -> str:
    """In single quotes; a backslash is doubled only where it would otherwise escape something."""
    return "'" + _BACKSLASH.sub(r"\\\\", text).replace("'", r"\'") + "'"


def _print(expression: Expression) -> tuple[str, int]:
    match expression:
        case Literal(value):
            return print_value(value), ATOM
        case Key(name):
            return print_key(name), ATOM
        case Has(name):
            return f"EXISTS {print_key(name)}", ATOM
        case Compare(op, left, right):
            return f"{print_expression(left, COMPARISON)} {op} {print_expression(right, SUM)}", COMPARISON
        case Like() | Match() | In():
            return _print_test(expression, negated=False), COMPARISON
        case Not(Like() | Match() | In() as test):
            return _print_test(test, negated=True), COMPARISON
        case Not(of):
            return f"NOT {print_expression(of, NOT)}", NOT
        case And(parts):
            return " AND ".join(print_expression(part, NOT) for part in parts), AND
        case Xor(parts):
            return " XOR ".join(print_expression(part, AND) for part in parts), XOR
        case Or(parts):
            return " OR ".join(print_expression(part, XOR) for part in parts), OR
        case Arithmetic(op, left, right):
            binding = ARITHMETIC[op]
            return f"{print_expression(left, binding)} {op} {print_expression(right, binding + 1)}", binding
        case Negate(Literal(int() | float() as number)) if not isinstance(number, bool) and not _signed(
            number
        ):
            return f"-({print_value(number)})", SIGN
        case Negate(of):
            return f"-{print_expression(of, SIGN)}", SIGN
        case Call(name, args):
            return f"{name}({', '.join(map(print_expression, args))})", ATOM


def _print_test(test: Like | Match | In, *, negated: bool) -> str:
    subject = print_expression(test.subject, COMPARISON)
    word = "NOT " if negated else ""
    match test:
        case Like(_, pattern):
            return f"{subject} {word}LIKE {print_string(pattern)}"
        case Match(_, regex):
            return f"{subject} {'!~' if negated else '=~'} {print_string(regex)}"
        case In(_, options):
            return f"{subject} {word}IN ({', '.join(map(print_expression, options))})"


def _signed(number: float) -> bool:
    return print_value(number).startswith("-")
