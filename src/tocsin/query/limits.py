"""The bounds of a query. Queries come from clients; everything about one is bounded before it is worked on."""

from __future__ import annotations

from typing import Final

import msgspec


class QueryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one query, as it is written and in canonical form.

    ``depth`` also bounds recursion: reading and compiling a query take at most ten frames for each level.
    """

    length: int = 4_096  # characters of the text
    depth: int = 32  # operators, functions and NOTs one inside the other
    terms: int = 1_024  # keys, values and operators
    options: int = 512  # values of an IN list, or arguments of a function
    string_length: int = 1_024  # characters of a string in it
    key_length: int = 256  # characters of a key
    regex_length: int = 256  # characters of a regular expression


DEFAULT: Final = QueryLimits()
