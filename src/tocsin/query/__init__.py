"""Predicates over stream metadata: ``Location/Room = '410' AND temperature > 21.5``.

    query = parse("temp > 20 AND NOT type = 'test'")   # QueryInvalid points at what is wrong
    query.text                                         # "temp > 20 AND type != 'test'": canonical
    query.matches({"temp": 21, "type": "office"})      # True

The language is a superset of CloudEvents SQL 1.0; docs/reference/queries.md describes it. Start reading at ``query``:
``lexer`` and ``grammar`` read and write, ``canonical`` makes equal queries one, ``evaluate`` runs them.
``index`` finds the standing queries that a change of metadata turns, and the streams of a new query.
"""

from tocsin.errors import QueryInvalid as QueryInvalid
from tocsin.query.index.index import Change as Change
from tocsin.query.index.index import QueryIndex as QueryIndex
from tocsin.query.index.index import StreamIndex as StreamIndex
from tocsin.query.index.index import changed_keys as changed_keys
from tocsin.query.limits import DEFAULT as DEFAULT
from tocsin.query.limits import QueryLimits as QueryLimits
from tocsin.query.query import Query as Query
from tocsin.query.query import decode_filter as decode_filter
from tocsin.query.query import encode_filter as encode_filter
from tocsin.query.query import parse as parse
from tocsin.query.values import Metadata as Metadata
from tocsin.query.values import Value as Value
from tocsin.query.values import is_value as is_value
