"""From text to expression and back. First a text becomes tokens:

    word     Location/Room, type, AND   a key, a keyword or the name of a function: the parser knows which
    key      `any key at all`           two backticks stand for one
    string   'text' or "text"           \\' \\" \\\\ are ' " \\, as are doubled quotes; other backslashes are kept
    number   410, 3.5, 1e-3             without a sign
    symbol   = != <> < <= > >= =~ !~ + - * / % ( ) ,

A slash between letters or digits belongs to a word that has begun (``Location/Room``, ``a/2``); with a space on either
side, or after a number, it divides. Every character is looked at once.

Tokens become a tree by binding power (Pratt), tightest first:

    - x · * / % · + - · comparisons, LIKE, IN, =~ · NOT · AND · XOR · OR

Operators of one row group to the left. Every error is a ``QueryInvalid`` that points at the character and says what was
expected there. Time is linear in the text. The height of the tree is counted while it grows, also where it does so
without brackets (``a - b - c``), and so is recursion, also where no node comes of it (``((a))``).

What is printed is read back as the same expression, and has no bracket that is not needed.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Final, NamedTuple, NoReturn, cast
from typing import Literal as OneOf

import msgspec

from tocsin.errors import QueryInvalid
from tocsin.query.expression import (
    And,
    Arithmetic,
    Call,
    Compare,
    Comparison,
    Expression,
    Has,
    In,
    Key,
    Like,
    Literal,
    Match,
    Negate,
    Not,
    Operator,
    Or,
    Xor,
)
from tocsin.query.functions import FUNCTIONS
from tocsin.query.limits import QueryLimits
from tocsin.query.patterns import RegexInvalid, compile_regex
from tocsin.query.values import INTEGER_MAX, Number, Value

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

# How tightly an operator binds, for reading and for printing.
OR, XOR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN, ATOM = range(1, 10)
ARITHMETIC: Final = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}
RESERVED: Final = frozenset({"AND", "OR", "XOR", "NOT", "LIKE", "IN", "EXISTS", "TRUE", "FALSE"})

_LOGIC: Final[dict[str, tuple[int, type[And | Or | Xor]]]] = {
    "AND": (AND, And),
    "XOR": (XOR, Xor),
    "OR": (OR, Or),
}
_COMPARISONS: Final = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TESTS: Final = {"LIKE", "IN", "=~", "!~"}
_BACKSLASH: Final = re.compile(r"""\\(?=[\\'"]|\Z)""")


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


class _Tree(NamedTuple):
    """An expression and how high it is."""

    node: Expression
    height: int


def read(text: str, limits: QueryLimits) -> Expression:
    """The expression that a text says, as it is written. Raises ``QueryInvalid``."""
    parser = _Parser(text, limits)
    tree = parser.expression(OR)
    parser.expect_end()
    return tree.node


class _Parser:
    def __init__(self, text: str, limits: QueryLimits) -> None:
        self._text = text
        self._limits = limits
        self._tokens = tokens(text, limits)
        self._index = 0
        self._terms = 0
        self._recursion = 0

    # ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _next(self) -> Token:
        token = self._token
        self._index += 1
        return token

    def _word(self, ahead: int = 0) -> str:
        """The text of a keyword or symbol, in capitals; empty for keys, strings and numbers."""
        if self._index + ahead >= len(self._tokens):
            return ""
        token = self._tokens[self._index + ahead]
        return token.text.upper() if token.kind in ("word", "symbol") else ""

    def _take(self, word: str) -> bool:
        if self._word() != word:
            return False
        self._index += 1
        return True

    def _expect(self, word: str, why: str) -> None:
        if not self._take(word):
            self._wanted(f"{word} {why}")

    def expect_end(self) -> None:
        if self._token.kind != "end":
            self._wanted("an operator (such as AND) or the end")

    def _wanted(self, what: str) -> NoReturn:
        self._refuse(self._token.at, f"expected {what}, found {self._token.shown()}")

    def _refuse(self, at: int, problem: str) -> NoReturn:
        raise QueryInvalid(self._text, at, problem)

    def _grow(self, node: Expression, at: int, *below: int) -> _Tree:
        """A node above others of these heights, if the limits have room for it."""
        height = 1 + max(below, default=0)
        if height > self._limits.depth:
            self._too_deep(at)
        self._terms += 1
        if self._terms > self._limits.terms:
            self._refuse(
                at, f"the query has more than {self._limits.terms} terms; split it into several queries"
            )
        return _Tree(node, height)

    def _too_deep(self, at: int) -> NoReturn:
        self._refuse(at, f"the query is nested more than {self._limits.depth} deep; write it flatter")

    # ── expressions ──────────────────────────────────────────────────────────────────────────────────────────

    def expression(self, least: int) -> _Tree:
        """The longest expression from here on whose operators bind at least this tightly."""
        self._recursion += 1
        # An operand and its brackets: two levels of recursion at most for one of the tree, in what we print.
        if self._recursion > 2 * self._limits.depth + 1:
            self._too_deep(self._token.at)
        left = self._operand()
        while True:
            at, word = self._token.at, self._word()
            if word in _LOGIC and least <= _LOGIC[word][0]:
                left = self._logic(left, word)
            elif word in _COMPARISONS and least <= COMPARISON:
                self._index += 1
                right = self.expression(SUM)
                op = cast(Comparison, _COMPARISONS[word])
                left = self._grow(Compare(op, left.node, right.node), at, left.height, right.height)
            elif word in ARITHMETIC and least <= ARITHMETIC[word]:
                self._index += 1
                right = self.expression(ARITHMETIC[word] + 1)
                operator = cast(Operator, word)
                left = self._grow(Arithmetic(operator, left.node, right.node), at, left.height, right.height)
            elif (word in _TESTS or word == "NOT") and least <= COMPARISON:
                left = self._test(left)
            else:
                self._recursion -= 1
                return left

    def _logic(self, first: _Tree, word: str) -> _Tree:
        """All operands of one operator, in one node; also those in brackets."""
        binding, kind = _LOGIC[word]
        at = self._token.at
        trees = [first]
        while self._take(word):
            trees.append(self.expression(binding + 1))
        parts: list[Expression] = []
        for tree in trees:
            parts.extend(tree.node.parts if isinstance(tree.node, kind) else (tree.node,))
        return self._grow(kind(tuple(parts)), at, *(tree.height for tree in trees))

    def _test(self, subject: _Tree) -> _Tree:
        """``LIKE``, ``IN``, ``=~`` and their negations, which follow their subject."""
        at = self._token.at
        negated = self._take("NOT")
        if negated and self._word() not in ("LIKE", "IN"):
            self._wanted("LIKE or IN after NOT")
        word = self._next().text.upper()
        if word == "IN":
            self._expect("(", "before the values of IN")
            options = self._list("a value")
            tree = self._grow(
                In(subject.node, tuple(option.node for option in options)),
                at,
                subject.height,
                *(option.height for option in options),
            )
        elif word == "LIKE":
            tree = self._grow(
                Like(subject.node, self._string("the pattern of LIKE").says), at, subject.height
            )
        else:
            negated = word == "!~"
            tree = self._grow(Match(subject.node, self._regex()), at, subject.height)
        return self._grow(Not(tree.node), at, tree.height) if negated else tree

    def _operand(self) -> _Tree:
        token = self._token
        if token.kind == "number":
            return self._grow(Literal(self._number(sign="")), token.at)
        if token.kind == "string":
            self._index += 1
            return self._grow(Literal(token.says), token.at)
        word = self._word()
        if word == "NOT":
            self._index += 1
            of = self.expression(NOT)
            return self._grow(Not(of.node), token.at, of.height)
        if word in ("-", "+"):
            return self._signed()
        if word == "(":
            self._index += 1
            inner = self.expression(OR)
            self._expect(")", f"to close the bracket at character {token.at + 1}")
            return inner
        if word in ("TRUE", "FALSE"):
            self._index += 1
            return self._grow(Literal(word == "TRUE"), token.at)
        if word == "EXISTS" or (word == "HAS" and self._key_follows()):
            self._index += 1
            return self._grow(Has(self._bracketed_key()), token.at)
        if token.kind == "word" and self._word(1) == "(":
            return self._call()
        return self._grow(Key(self._key("a value, a key or NOT")), token.at)

    def _signed(self) -> _Tree:
        token = self._next()
        if self._token.kind == "number":
            return self._grow(Literal(self._number(sign=token.text)), token.at)
        if token.text == "+":
            self._wanted("a number after the sign +")
        of = self.expression(SIGN)
        return self._grow(Negate(of.node), token.at, of.height)

    def _call(self) -> _Tree:
        token = self._next()
        name = token.text.upper()
        function = FUNCTIONS.get(name)
        if function is None:
            self._refuse(token.at, f"there is no function {token.shown()}; there are {', '.join(FUNCTIONS)}")
        self._index += 1
        args = [] if self._take(")") else self._list("an argument")
        if not function.takes(len(args)):
            self._refuse(token.at, f"{name} takes {function.arity()} arguments, not {len(args)}")
        call = Call(name, tuple(arg.node for arg in args))
        return self._grow(call, token.at, *(arg.height for arg in args))

    def _list(self, what: str) -> list[_Tree]:
        """Expressions between commas, up to the closing bracket."""
        found: list[_Tree] = []
        while True:
            if self._word() in (")", ","):
                self._wanted(what)
            if len(found) == self._limits.options:
                self._refuse(
                    self._token.at, f"the list has more than {self._limits.options} values; make it shorter"
                )
            found.append(self.expression(OR))
            if self._take(")"):
                return found
            if not self._take(","):
                self._wanted(", or ) in the list")

    # ── leaves ───────────────────────────────────────────────────────────────────────────────────────────────

    def _number(self, sign: str) -> Number:
        token = self._next()
        if token.text.isdigit():
            digits = token.text.lstrip("0")[:20] or "0"  # twenty are too many already
            integer = int(digits)
            if integer > INTEGER_MAX + (sign == "-"):
                self._refuse(
                    token.at, "whole numbers have 64 bits; write a decimal, such as 1e20, for a larger one"
                )
            return -integer if sign == "-" else integer
        number = float(token.text)
        if not math.isfinite(number):
            self._refuse(token.at, "the number is too large; the largest is about 1.8e308")
        return -number if sign == "-" else number

    def _string(self, what: str) -> Token:
        if self._token.kind != "string":
            self._wanted(f"{what}, in quotes")
        return self._next()

    def _regex(self) -> str:
        token = self._string("a regular expression")
        if len(token.says) > self._limits.regex_length:
            self._refuse(
                token.at,
                f"a regular expression of {len(token.says)} characters is too long; "
                f"at most {self._limits.regex_length} are allowed",
            )
        try:
            compile_regex(token.says)
        except RegexInvalid as error:
            self._refuse(token.at, f"not a regular expression that RE2 takes: {error}")
        return token.says

    def _key(self, what: str) -> str:
        token = self._token
        if token.kind == "key":
            return self._next().says
        if token.kind != "word":
            self._wanted(what)
        if token.text.upper() in RESERVED:
            self._refuse(
                token.at, f"expected {what}, found {token.text}; a key of that name is written `{token.text}`"
            )
        return self._next().text

    def _bracketed_key(self) -> str:
        bracket = self._take("(")
        name = self._key("a key")
        if bracket:
            self._expect(")", "after the key")
        return name

    def _key_follows(self) -> bool:
        """Whether ``has`` is the operator: it is no keyword of CloudEvents SQL, and a key may have its name."""
        after = self._tokens[self._index + 1]
        return (
            after.kind == "key"
            or self._word(1) == "("
            or (after.kind == "word" and self._word(1) not in RESERVED)
        )


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
