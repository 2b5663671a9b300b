"""Coordinate spaces: points on a plane (metres) or on the globe (degrees), as columns of datasets have them."""

from __future__ import annotations

from typing import Final, Literal

Space = Literal["plane", "globe"]

PLANE_FIELDS: Final = ("x", "y")
GLOBE_FIELDS: Final = ("lon", "lat")

# Names that may be written for a column's type.
SPATIAL_TYPES: Final = {
    "POINT": "STRUCT<lon: DOUBLE, lat: DOUBLE>",
    "XY": "STRUCT<x: DOUBLE, y: DOUBLE>",
}


def space_of(fields: tuple[str, ...]) -> Space | None:
    """The space of a STRUCT with these fields; more fields (an altitude) do no harm."""
    names = {field.lower() for field in fields}
    if names.issuperset(GLOBE_FIELDS):
        return "globe"
    if names.issuperset(PLANE_FIELDS):
        return "plane"
    return None
