"""Predicates over stream metadata: ``Location/Room = '410' AND temperature > 21.5``.

    query = parse("temp > 20 AND NOT type = 'test'")   # QueryInvalid points at what is wrong
    query.text                                         # "temp > 20 AND type != 'test'": canonical
    query.matches({"temp": 21, "type": "office"})      # True

The language is a superset of CloudEvents SQL 1.0; docs/reference/queries.md describes it. Start reading at ``query``:
``grammar`` reads and writes, ``canonical`` makes equal queries one, ``evaluate`` runs them.
``index`` finds the standing queries that a change of metadata turns, and the streams of a new query.
"""

from tocsin.errors import QueryInvalid
from tocsin.query.index.index import Change, QueryIndex, StreamIndex, changed_keys
from tocsin.query.limits import DEFAULT, QueryLimits
from tocsin.query.query import Query, decode_filter, encode_filter, parse
from tocsin.query.values import Metadata, Value, is_value

__all__ = [
    "DEFAULT",
    "Change",
    "Metadata",
    "Query",
    "QueryIndex",
    "QueryInvalid",
    "QueryLimits",
    "StreamIndex",
    "Value",
    "changed_keys",
    "decode_filter",
    "encode_filter",
    "is_value",
    "parse",
]
