"""Places as Spark expressions: distance, points in polygons, and the cells of a grid. Everything here is text in,
text out.

On the **plane** a point is (x, y) in metres. On the **globe** it is (lon, lat) in degrees; distance is along a great
circle of a sphere of ``RADIUS_M``, and the grid is one of cubes around the centre of the earth, which has no poles
and no date line. Lines between a polygon's corners are straight in its coordinates, also on the globe, as GeoJSON
(RFC 7946) has it.

A **cell** is one number: the level, then the cell's whole coordinates. Cells of level l have edges of ``EDGE_M << l``
metres. ``WORLD`` is the level of shapes that are larger than all. A box of half-width h, covered at a level with edges
of at least h / ``SPREAD``, has a bounded number of different cells, and a point is in exactly one cell of each level;
so an equi-join on cells finds every pair at most once.

Variables of lambdas begin with ``_``, which names in queries do not: a table may be called as it likes.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Final

from tocsin.pipeline.language.functions.spaces import Space
from tocsin.pipeline.language.limits import VERTICES_MAX

RADIUS_M: Final = 6_371_008.8  # the mean radius of the earth (IUGG)
DEGREE_M: Final = 111_195.08  # of a great circle
EDGE_M: Final = 32
WORLD: Final = 21  # edges of level 20 are longer than the earth is thick
STEP: Final = (
    2  # where the level is a row's own, only every second is used: the other side has a cell of each
)
LEVELS: Final = (*range(0, WORLD, STEP), WORLD)
SPREAD: Final[dict[Space, int]] = {"plane": 2, "globe": 1}  # at most 6 × 6, or 3 × 3 × 3 cells
_ENDLESS: Final = "1E300D"
_BITS: Final[dict[Space, int]] = {"plane": 29, "globe": 19}
_LEVEL_BIT: Final = 58

PARTS: Final[dict[Space, tuple[str, str]]] = {"plane": ("x", "y"), "globe": ("lon", "lat")}


Point = tuple[str, str]  # (x, y) or (lon, lat): expressions


def distance(space: Space, a: Point, b: Point) -> str:
    """Metres between two points."""
    if space == "plane":
        across, up = f"({a[0]} - {b[0]})", f"({a[1]} - {b[1]})"
        return f"SQRT({across} * {across} + {up} * {up})"
    half_lat, half_lon = f"SIN(RADIANS({a[1]} - {b[1]}) / 2)", f"SIN(RADIANS({a[0]} - {b[0]}) / 2)"
    inside = (
        f"{half_lat} * {half_lat} + COS(RADIANS({a[1]})) * COS(RADIANS({b[1]})) * {half_lon} * {half_lon}"
    )
    return f"({2 * RADIUS_M!r}D * ASIN(SQRT(LEAST(1.0D, {inside}))))"


def axes(space: Space, point: Point) -> tuple[str, ...]:
    """The coordinates of a point in metres, in which the grid is: two on the plane, three on the globe."""
    if space == "plane":
        return point
    lon, lat = f"RADIANS({point[0]})", f"RADIANS({point[1]})"
    radius = f"{RADIUS_M!r}D"
    return (
        f"({radius} * COS({lat}) * COS({lon}))",
        f"({radius} * COS({lat}) * SIN({lon}))",
        f"({radius} * SIN({lat}))",
    )


def flat_axes(space: Space, point: Point) -> tuple[str, ...]:
    """The coordinates in which polygons are: degrees stand for metres of a great circle."""
    if space == "plane":
        return point
    return f"({point[0]} * {DEGREE_M!r}D)", f"({point[1]} * {DEGREE_M!r}D)"


def level_of(half_m: float, step: int = STEP) -> int:
    """The least level, a multiple of ``step``, whose edges are at least this long."""
    level = 0
    while level < WORLD and (EDGE_M << level) < half_m:
        level += step
    return min(level, WORLD)


def level(half: str) -> str:
    """The same, of an expression; one of ``LEVELS``."""
    return f"CAST(LEAST({WORLD}, GREATEST(0, CEIL(LOG2({half} / {EDGE_M}) / {STEP}) * {STEP})) AS INT)"


def edge(level: str | int) -> str:
    """The length of a level's edges; in the world's cells everything is."""
    if isinstance(level, int):
        return _ENDLESS if level >= WORLD else f"{EDGE_M << level}.0D"
    return f"IF({level} >= {WORLD}, {_ENDLESS}, SHIFTLEFT({EDGE_M}, {level}))"


def bounded(half: str) -> str:
    """A half-width that is neither negative nor endless, a little larger: rounding must not lose a pair."""
    return f"(LEAST(GREATEST({half}, 0), {_ENDLESS}) * 1.000001D + 0.001D)"


def cell(level: str | int, edge: str, axes: tuple[str, ...]) -> str:
    """The cell of a point at a level."""
    return _packed(level, [f"FLOOR({axis} / {edge})" for axis in axes])


def cells(level: str | int, edge: str, bounds: list[tuple[str, str]]) -> str:
    """The cells of a box, given by its least and greatest coordinate on each axis."""
    names = ["_i", "_j", "_h"][: len(bounds)]
    inner = _packed(level, names)
    for name, (least, most) in reversed(list(zip(names, bounds, strict=True))):
        inner = f"TRANSFORM(SEQUENCE(FLOOR({least} / {edge}), FLOOR({most} / {edge})), {name} -> {inner})"
    for _ in bounds[1:]:
        inner = f"FLATTEN({inner})"
    return inner


def around(axes: tuple[str, ...], half: str) -> list[tuple[str, str]]:
    """The box with this half-width around a point."""
    return [(f"({axis} - {half})", f"({axis} + {half})") for axis in axes]


def _packed(level: str | int, parts: list[str]) -> str:
    """Coordinates beyond their bits wrap around: neighbours stay different, and the exact check finds the rest."""
    bits = _BITS["plane" if len(parts) == 2 else "globe"]
    mask = (1 << bits) - 1
    if isinstance(level, int):
        terms = [f"{level << _LEVEL_BIT}L"]
    else:
        terms = [f"SHIFTLEFT(CAST({level} AS BIGINT), {_LEVEL_BIT})"]
    for index, part in enumerate(parts):
        shift = bits * (len(parts) - 1 - index)
        masked = f"({part} & {mask}L)"
        terms.append(f"SHIFTLEFT({masked}, {shift})" if shift else masked)
    return "(" + " | ".join(terms) + ")"


# ── polygons ─────────────────────────────────────────────────────────────────────────────────────────────────


def rings(geojson: str) -> str:
    """The rings of a polygon or of several, also inside a feature; NULL if the text is none."""
    plain, inside = (
        f"GET_JSON_OBJECT({geojson}, '{path}')" for path in ("$.coordinates", "$.geometry.coordinates")
    )
    coordinates = f"COALESCE({plain}, {inside})"
    kind = f"COALESCE(GET_JSON_OBJECT({geojson}, '$.geometry.type'), GET_JSON_OBJECT({geojson}, '$.type'))"
    one = f"FROM_JSON({coordinates}, 'ARRAY<ARRAY<ARRAY<DOUBLE>>>')"
    several = f"FLATTEN(FROM_JSON({coordinates}, 'ARRAY<ARRAY<ARRAY<ARRAY<DOUBLE>>>>'))"
    return f"(CASE {kind} WHEN 'Polygon' THEN {one} WHEN 'MultiPolygon' THEN {several} END)"


def box(rings: str, space: Space) -> tuple[str, str, str, str]:
    """The least and greatest coordinates, in metres."""
    scale = "" if space == "plane" else f" * {DEGREE_M!r}D"
    points = f"FLATTEN({rings})"
    found = [
        f"({function}(TRANSFORM({points}, _corner -> _corner[{index}])){scale})"
        for function in ("ARRAY_MIN", "ARRAY_MAX")
        for index in (0, 1)
    ]
    return found[0], found[1], found[2], found[3]


def contains(rings: str, x: str, y: str) -> str:
    """Whether a point is inside: a ray from it crosses an odd number of edges. Holes are rings like others."""
    before, after = "_ring[_n - 1]", "_ring[_n]"
    sides = f"({before}[1] > {y}) <> ({after}[1] > {y})"
    reach = (
        f"{x} < ({after}[0] - {before}[0]) * ({y} - {before}[1]) / ({after}[1] - {before}[1]) + {before}[0]"
    )
    crossings = f"AGGREGATE(SEQUENCE(1, SIZE(_ring) - 1), FALSE, (_odd, _n) -> _odd <> ({sides} AND {reach}))"
    sound = f"FILTER({rings}, _ring -> SIZE(_ring) >= 4)"
    return f"COALESCE(AGGREGATE({sound}, FALSE, (_inside, _ring) -> _inside <> {crossings}), FALSE)"


class NoPolygon(ValueError):
    """A text that is not the GeoJSON of a polygon; says why."""


def canonical_polygon(text: str) -> str:
    """A polygon that is written out in a query, checked, in the one way in which we write it. Raises ``NoPolygon``."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise NoPolygon("this is no JSON") from None
    if isinstance(found, dict) and found.get("type") == "Feature":
        found = found.get("geometry")
    kind = found.get("type") if isinstance(found, dict) else None
    if kind not in ("Polygon", "MultiPolygon"):
        raise NoPolygon(f"its type is {kind!r}, not Polygon or MultiPolygon")
    coordinates = found.get("coordinates")
    polygons = [coordinates] if kind == "Polygon" else coordinates
    if not isinstance(polygons, list) or not polygons:
        raise NoPolygon("it has no coordinates")
    clean = [[_ring(ring) for ring in _listed(polygon)] for polygon in polygons]
    if sum(len(ring) for polygon in clean for ring in polygon) > VERTICES_MAX:
        raise NoPolygon(f"it has more than {VERTICES_MAX} corners")
    value = clean[0] if kind == "Polygon" else clean
    return json.dumps({"type": kind, "coordinates": value}, separators=(",", ":"))


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise NoPolygon("its coordinates are not lists of rings")
    return value


def _ring(value: Any) -> list[list[float]]:
    ring: list[list[float]] = []
    for corner in _listed(value):
        if not isinstance(corner, list) or len(corner) < 2:
            raise NoPolygon("a corner is not [x, y]")
        if not all(type(part) in (int, float) and abs(part) < 1e15 for part in corner[:2]):
            raise NoPolygon("a corner is not two numbers")
        ring.append([float(corner[0]), float(corner[1])])
    if len(ring) < 4 or ring[0] != ring[-1]:
        raise NoPolygon("a ring has at least four corners, of which the last is the first again")
    return ring


def crosses_date_line(text: str) -> bool:
    """Whether a canonical polygon's edge is longer than half the globe, so that it was meant the other way around."""
    found = json.loads(text)
    polygons = [found["coordinates"]] if found["type"] == "Polygon" else found["coordinates"]
    return any(
        abs(before[0] - after[0]) > 180
        for polygon in polygons
        for ring in polygon
        for before, after in pairwise(ring)
    )
