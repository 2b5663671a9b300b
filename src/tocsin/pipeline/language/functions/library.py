"""The standard library: what its functions mean, as expressions of Spark's SQL.

``expand_early`` runs on a tree as it was read: what is only another way to write something is written out.
``note_spaces`` runs when types are known: whether points are on the plane or on the globe is decided once, here, and
noted. The predicates that an equi-join can help with (``WITHIN``, ``CONTAINS``, ``MATCHES``) stay as they are until
``spatial_join_keys`` has seen them; ``expand_late`` then writes out what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import sqlglot
from sqlglot import exp

from tocsin.pipeline.language.functions import geometry
from tocsin.pipeline.language.functions.patterns import pattern_problem
from tocsin.pipeline.language.functions.spaces import GLOBE_FIELDS, PLANE_FIELDS, Space, space_of
from tocsin.pipeline.language.tree.query import DIALECT, Text

_ARGUMENTS: Final = {
    "point": "(lon, lat)",
    "xy": "(x, y)",
    "distance": "(a, b)",
    "within": "(a, b, metres)",
    "circle": "(center, metres)",
    "polygon": "('GeoJSON')",
    "contains": "(area, point)",
    "now": "()",
    "since": "(time, INTERVAL '10' MINUTES)",
    "tumble": "(time, INTERVAL '10' MINUTES)",
    "matches": "(text, words)",
}
_UNIT_US: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_SPLIT: Final = r"'[^\\p{L}\\p{N}]+'"  # what is between words, in a string of SQL


def sql_of(node: exp.Expr) -> str:
    """An expression as Spark reads it; ``$`` as its code, for Spark puts variables in place of ``${…}``."""
    return node.sql(dialect=DIALECT).replace("$", "\\u0024")


def parsed(sql: str) -> exp.Expr:
    """An expression of ours."""
    return sqlglot.parse_one(sql, dialect=DIALECT)


def calls(tree: exp.Expr, *names: str) -> Iterator[exp.Anonymous]:
    """Calls of these functions of the library, innermost last."""
    for node in list(tree.find_all(exp.Anonymous)):
        if node.name.lower() in names:
            yield node


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name.upper(), expressions=list(arguments))


# ── as it was read ───────────────────────────────────────────────────────────────────────────────────────────


def expand_early(text: Text, tree: exp.Query) -> None:
    """Write out POINT, XY, CIRCLE, POLYGON, SINCE and TUMBLE; check how the library is called, and patterns."""
    for contains in list(tree.find_all(exp.Contains)):
        made = call("contains", *(each for each in (contains.this, contains.expression) if each is not None))
        made.meta.update(contains.meta)
        contains.replace(made)
    for node in reversed(list(calls(tree, *_ARGUMENTS))):
        name = node.name.lower()
        wanted = 0 if name == "now" else _ARGUMENTS[name].count(",") + 1
        if len(node.expressions) != wanted:
            raise text.wrong_at(
                node, f"{name.upper()} takes {wanted} arguments", f"write {name.upper()}{_ARGUMENTS[name]}"
            )
    for node in reversed(list(calls(tree, "point", "xy", "since", "tumble", "polygon", "contains"))):
        _EARLY[node.name.lower()](text, node)
    for node in calls(tree, "circle"):
        raise text.wrong_at(
            node, "a circle is only good for CONTAINS", "write CONTAINS(CIRCLE(center, metres), point)"
        )
    _check_patterns(text, tree)


def _struct(node: exp.Anonymous, fields: tuple[str, str]) -> None:
    parts = [
        exp.PropertyEQ(
            this=exp.to_identifier(field), expression=exp.cast(part.copy(), "double", dialect=DIALECT)
        )
        for field, part in zip(fields, node.expressions, strict=True)
    ]
    made = exp.Struct(expressions=parts)
    made.meta.update(node.meta)
    node.replace(made)


def _point(text: Text, node: exp.Anonymous) -> None:
    _struct(node, GLOBE_FIELDS)


def _xy(text: Text, node: exp.Anonymous) -> None:
    _struct(node, PLANE_FIELDS)


def _since(text: Text, node: exp.Anonymous) -> None:
    time, interval = node.expressions
    if not isinstance(interval, exp.Interval):
        raise text.wrong_at(node, "SINCE takes an interval", "write SINCE(time, INTERVAL '10' MINUTES)")
    node.replace(
        exp.paren(exp.GT(this=time.copy(), expression=exp.Sub(this=call("now"), expression=interval.copy())))
    )


def _tumble(text: Text, node: exp.Anonymous) -> None:
    time, interval = node.expressions
    width_us = interval_us(interval)
    if width_us is None:
        raise text.wrong_at(
            node, "TUMBLE takes an interval of fixed length", "write TUMBLE(time, INTERVAL '10' MINUTES)"
        )
    micros = f"UNIX_MICROS(CAST({sql_of(time)} AS TIMESTAMP))"
    node.replace(parsed(f"TIMESTAMP_MICROS({micros} - PMOD({micros}, {width_us}L))"))


def interval_us(node: exp.Expr) -> int | None:
    """The length of an interval that is written out, if it has one."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit = str(node.args.get("unit") or "").upper().removesuffix("S")
    said = node.this.name.strip()
    if unit not in _UNIT_US or not said.isdigit() or not 0 < int(said) < 10**6:
        return None
    return int(said) * _UNIT_US[unit]


def _polygon(text: Text, node: exp.Anonymous) -> None:
    area = node.expressions[0]
    if isinstance(area, exp.Literal) and area.is_string:
        _check_polygon(text, area)
    node.replace(area.copy())


def _check_polygon(text: Text, area: exp.Literal) -> None:
    try:
        canonical = geometry.canonical_polygon(area.name)
    except geometry.NoPolygon as error:
        raise text.wrong_at(
            area,
            f"no polygon: {error}",
            """write GeoJSON, as '{"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}'""",
        ) from None
    area.set("this", canonical)


def _contains(text: Text, node: exp.Anonymous) -> None:
    area, point = node.expressions
    if isinstance(area, exp.Anonymous) and area.name.lower() == "circle":
        center, metres = area.expressions
        made = call("within", center.copy(), point.copy(), metres.copy())
        made.meta.update(node.meta)
        node.replace(made)
    elif isinstance(area, exp.Literal) and area.is_string:
        _check_polygon(text, area)


_EARLY: Final = {
    "point": _point,
    "xy": _xy,
    "since": _since,
    "tumble": _tumble,
    "polygon": _polygon,
    "contains": _contains,
}


def _check_patterns(text: Text, tree: exp.Query) -> None:
    for node in tree.find_all(exp.RegexpLike, exp.RegexpSplit):
        pattern = node.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise text.wrong_at(
                node,
                "a regular expression must be written out, as it could take forever",
                "use LIKE or MATCHES with parameters and columns",
            )
        if problem := pattern_problem(pattern.name):
            raise text.wrong_at(pattern, problem, "make the pattern simpler, or use LIKE or MATCHES")


# ── when types are known ─────────────────────────────────────────────────────────────────────────────────────


def note_spaces(text: Text, tree: exp.Query) -> None:
    """Decide for each call whether it is about the plane or the globe; refuse what is about neither, or both."""
    for node in calls(tree, "distance", "within"):
        first, second = node.expressions[:2]
        spaces = [_space(text, node, first), _space(text, node, second)]
        if spaces[0] != spaces[1]:
            raise text.wrong_at(
                node,
                f"{node.name.upper()} of a point on the plane and one on the globe",
                "use two of POINT(lon, lat), or two of XY(x, y)",
            )
        node.meta["space"] = spaces[0]
        if node.name.lower() == "within":
            _expect_number(text, node, node.expressions[2])
        else:
            node.type = exp.DataType.build("double")
    for node in calls(tree, "contains"):
        area, point = node.expressions
        space = _space(text, node, point)
        node.meta["space"] = space
        if _is_known(area) and not area.is_type(*exp.DataType.TEXT_TYPES):
            raise text.wrong_at(
                node, "the area is no text", "use POLYGON('…'), CIRCLE(…), or a column of GeoJSON"
            )
        if space == "globe" and isinstance(area, exp.Literal) and geometry.crosses_date_line(area.name):
            raise text.wrong_at(
                area,
                "an edge of this polygon is longer than half the globe",
                "cut it at the date line, into a MultiPolygon",
            )
    for node in calls(tree, "matches"):
        for part in node.expressions:
            if _is_known(part) and not part.is_type(*exp.DataType.TEXT_TYPES):
                raise text.wrong_at(node, "MATCHES compares text with words", "write CAST(… AS STRING)")


def _is_known(node: exp.Expr) -> bool:
    return node.type is not None and not node.is_type(exp.DType.UNKNOWN, exp.DType.NULL)


def _expect_number(text: Text, node: exp.Expr, metres: exp.Expr) -> None:
    if _is_known(metres) and not metres.is_type(*exp.DataType.NUMERIC_TYPES):
        raise text.wrong_at(node, "the distance is no number", "write it in metres")


def _space(text: Text, node: exp.Anonymous, point: exp.Expr) -> Space:
    fields = point.type.expressions if point.type is not None and point.is_type(exp.DType.STRUCT) else []
    found = space_of(tuple(field.name for field in fields))
    if found is None:
        raise text.wrong_at(
            point if _has_position(point) else node,
            f"{node.name.upper()} needs points, and this is {_type_text(point)}",
            "use a column of type POINT or XY, or write POINT(lon, lat) or XY(x, y)",
        )
    return found


def _has_position(node: exp.Expr) -> bool:
    return any("start" in each.meta for each in node.walk())


def _type_text(node: exp.Expr) -> str:
    return sql_of(node.type) if _is_known(node) and node.type is not None else "of unknown type"


# ── at the end ───────────────────────────────────────────────────────────────────────────────────────────────


def expand_late(tree: exp.Expr) -> exp.Expr:
    """Write out DISTANCE, WITHIN, CONTAINS and MATCHES."""
    root = exp.paren(tree) if isinstance(tree, exp.Anonymous) else tree
    for node in reversed(list(calls(root, "distance", "within", "contains", "matches"))):
        node.replace(parsed(_LATE[node.name.lower()](node)))
    return root


def coordinates(space: Space, point: exp.Expr) -> geometry.Point:
    """The two numbers of a point."""
    if isinstance(point, exp.Struct):
        parts = {each.name.lower(): f"({sql_of(each.expression)})" for each in point.expressions}
        first, second = (parts[name] for name in geometry.PARTS[space])
        return first, second
    sql = sql_of(point) if isinstance(point, exp.Column | exp.Dot) else f"({sql_of(point)})"
    first, second = (f"{sql}.{name}" for name in geometry.PARTS[space])
    return first, second


def space_noted(node: exp.Expr) -> Space:
    return cast(Space, node.meta["space"])


def _distance_sql(node: exp.Anonymous) -> str:
    space = space_noted(node)
    first, second = (coordinates(space, point) for point in node.expressions[:2])
    return geometry.distance(space, first, second)


def _within_sql(node: exp.Anonymous) -> str:
    return f"({_distance_sql(node)} <= {sql_of(node.expressions[2])})"


def _contains_sql(node: exp.Anonymous) -> str:
    area, point = node.expressions
    rings = sql_of(area) if node.meta.get("rings") else geometry.rings(sql_of(area))
    return geometry.contains(rings, *coordinates(space_noted(node), point))


def words(text: str) -> str:
    """The different words of a text, in small letters."""
    return f"ARRAY_DISTINCT(FILTER(SPLIT(LOWER({text}), {_SPLIT}), _word -> _word <> ''))"


def longest_word(text: str) -> str:
    """The word by which a search is found: most others lack it."""
    return (
        f"AGGREGATE({words(text)}, CAST(NULL AS STRING), "
        "(_best, _word) -> IF(_best IS NULL OR LENGTH(_word) > LENGTH(_best), _word, _best))"
    )


def _matches_sql(node: exp.Anonymous) -> str:
    text, wanted = (sql_of(each) for each in node.expressions)
    missing = f"ARRAY_EXCEPT({words(wanted)}, {words(text)})"
    return f"(SIZE({missing}) = 0 AND SIZE({words(wanted)}) > 0)"


_LATE: Final = {
    "distance": _distance_sql,
    "within": _within_sql,
    "contains": _contains_sql,
    "matches": _matches_sql,
}
