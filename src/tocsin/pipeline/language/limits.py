"""The bounds of a statement. Statements come from outside; everything about one is bounded before it is worked on."""

from __future__ import annotations

from typing import Final

SCRIPT_MAX_BYTES: Final = 1 << 20
STATEMENTS_MAX: Final = 1_000  # of a script
TOKENS_MAX: Final = 8_000  # of a statement
BRACKETS_MAX: Final = 32  # one inside the other
DEPTH_MAX: Final = 100  # of a query's tree; also bounds the recursion of everything that walks it
NODES_MAX: Final = 20_000  # of a query's tree
JOINS_MAX: Final = 16  # of a query, subqueries included
BLOCKS_MAX: Final = 24  # SELECTs of a query
CONSTANTS_MAX: Final = 64  # that become columns; those beyond stay in the text
PATTERN_MAX: Final = 256  # characters of a regular expression
WILDCARDS_MAX: Final = (
    3  # % in a LIKE pattern that comes from a parameter: matching takes length ** this at worst
)
VERTICES_MAX: Final = 2_000  # of a polygon that is written out
EVERY_MIN_S: Final = 1.0  # what must be quicker is CONTINUOUS
EVERY_MAX_S: Final = 366 * 86_400.0
KEEP_MAX_S: Final = 100 * 366 * 86_400.0
