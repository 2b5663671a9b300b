"""Places: what is near or inside is found, on the plane and on the globe, whatever the grid does."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.unit.pipeline.language.oracle import World, channel, datasets_of
from tocsin.errors import SqlInvalid
from tocsin.pipeline.execution.compiled import compile_channel
from tocsin.pipeline.language.functions import geometry
from tocsin.pipeline.language.functions.spaces import Space

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATASETS = datasets_of(
    """CREATE DATASET Alarms (id BIGINT, flat XY, round POINT, radius DOUBLE, area STRING, note STRING);
    CREATE DATASET People (id BIGINT, flat XY, round POINT, words STRING)"""
)
Place = tuple[float, float]
on_spark = pytest.mark.xdist_group("spark")

RADII = [0.0, 5.0, 31.9, 32.0, 100.0, 700.0, 2_000.0, 45_000.0, 3e6, 1.2e7, 1e9, -3.0, math.inf, None]


def flat_distance(a: Place, b: Place) -> float:
    return math.dist(a, b)


def round_distance(a: Place, b: Place) -> float:
    """By vectors, not by the formula that is tested."""

    def vector(place: Place) -> tuple[float, float, float]:
        lon, lat = map(math.radians, place)
        return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)

    first, second = vector(a), vector(b)
    cross = math.hypot(
        first[1] * second[2] - first[2] * second[1],
        first[2] * second[0] - first[0] * second[2],
        first[0] * second[1] - first[1] * second[0],
    )
    return geometry.RADIUS_M * math.atan2(cross, sum(x * y for x, y in zip(first, second, strict=True)))


def flat_place(chance: random.Random) -> Place:
    span = chance.choice([10.0, 300.0, 5_000.0, 1e6])
    return round(chance.uniform(-span, span), 3), round(chance.uniform(-span, span), 3)


def round_place(chance: random.Random) -> Place:
    corner = chance.choice(
        [(0.0, 0.0), (8.5, 47.4), (180.0, 10.0), (-180.0, 10.0), (0.0, 90.0), (40.0, -90.0)]
    )
    span = chance.choice([1e-4, 1e-2, 0.5, 30.0])
    lon = corner[0] + chance.uniform(-span, span)
    lat = max(-90.0, min(90.0, corner[1] + chance.uniform(-span, span)))
    return round((lon + 540) % 360 - 180, 6), round(lat, 6)


def ring(chance: random.Random, middle: Place, size: float) -> list[list[float]]:
    corners = chance.randint(3, 6)
    angles = sorted(chance.uniform(0, 2 * math.pi) for _ in range(corners))
    made = [[middle[0] + size * math.cos(a), middle[1] + size * math.sin(a)] for a in angles]
    return [*made, made[0]]


def inside(rings: list[list[list[float]]], place: Place) -> bool:
    """By winding of angles for each ring, not by crossings."""

    def turns(one: list[list[float]]) -> int:
        total = 0.0
        for (ax, ay), (bx, by) in pairwise(one):
            first = math.atan2(ay - place[1], ax - place[0])
            second = math.atan2(by - place[1], bx - place[0])
            total += (second - first + math.pi) % (2 * math.pi) - math.pi
        return round(total / (2 * math.pi))

    return sum(abs(turns(one)) % 2 for one in rings) % 2 == 1


class Scene:
    """Alarms and people at the same kinds of places, so that many are near each other."""

    def __init__(self, seed: int, alarms: int = 40, people: int = 60) -> None:
        chance = random.Random(seed)
        self.flat = [flat_place(chance) for _ in range(alarms + people)]
        self.round = [round_place(chance) for _ in range(alarms + people)]
        for index in range(0, alarms + people, 7):  # some are at the same place
            self.flat[index], self.round[index] = self.flat[-1 - index], self.round[-1 - index]
        self.alarms, self.people = range(alarms), range(alarms, alarms + people)
        self.radius = [chance.choice(RADII) for _ in self.alarms]
        self.rings = [
            [ring(chance, self.flat[each], size), ring(chance, self.flat[each], size / 3)]
            for each in self.alarms
            for size in [chance.choice([5.0, 200.0, 4_000.0, 1e6])]
        ]
        self.area = [self._geojson(chance, rings) for rings in self.rings]

    def _geojson(self, chance: random.Random, rings: list[list[list[float]]]) -> str:
        polygon = {"type": "Polygon", "coordinates": rings}
        several = {"type": "MultiPolygon", "coordinates": [[rings[0]], [rings[1]]]}
        return json.dumps(chance.choice([polygon, several, {"type": "Feature", "geometry": polygon}]))

    def fill(self, world: World, new: bool = True) -> None:
        alarms = [
            (each, self.flat[each], self.round[each], self.radius[each], self.area[each], "")
            for each in self.alarms
        ]
        world.fill("Alarms", [] if new else alarms, alarms if new else [])
        world.fill("People", [(each, self.flat[each], self.round[each], "") for each in self.people])

    def near(
        self, space: Space, radius: Callable[[int], float | None]
    ) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """The pairs that are near, and those that are so close to the border that either answer is right."""
        places = self.flat if space == "plane" else self.round
        distance = flat_distance if space == "plane" else round_distance
        found, doubtful = set(), set()
        for alarm in self.alarms:
            for person in self.people:
                metres, apart = radius(alarm), distance(places[alarm], places[person])
                if metres is None:
                    continue
                if abs(apart - metres) <= 1e-6 * max(apart, 1e-3):
                    doubtful.add((alarm, person))
                elif apart < metres:
                    found.add((alarm, person))
        return found, doubtful


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> World:
    return World(spark, DATASETS)


def pairs(
    world: World, parameters: str, query: str, *values: float, plain: bool = False
) -> list[tuple[int, int]]:
    """The pairs (alarm, person) that a channel finds for one subscription."""
    compiled = world.compile(channel(parameters, query))
    (found,) = world.run((compiled, [tuple(values)]), plain=plain).values()
    return sorted((row["a"], row["p"]) for row in map(json.loads, found))


def check(found: list[tuple[int, int]], expected: tuple[set[tuple[int, int]], set[tuple[int, int]]]) -> None:
    sure, doubtful = expected
    assert len(found) == len(set(found)), "a pair was found twice"
    assert set(found) - doubtful == sure


@on_spark
@pytest.mark.parametrize("space", ["plane", pytest.param("globe", marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_pairs_within_a_radius_that_is_a_column_are_found_once(world: World, space: Space, seed: int) -> None:
    scene = Scene(seed)
    place = "flat" if space == "plane" else "round"
    for new in (True, False):
        scene.fill(world, new)
        source = "NEW Alarms" if new else "Alarms"
        query = f"SELECT a.id AS a, u.id AS p FROM {source} a JOIN People u ON WITHIN(a.{place}, u.{place}, a.radius)"

        found = pairs(world, "", query)

        check(found, scene.near(space, lambda alarm: scene.radius[alarm]))
        assert found == pairs(world, "", query, plain=True)


@on_spark
@pytest.mark.parametrize("space", [pytest.param("plane", marks=pytest.mark.slow), "globe"])
def test_pairs_within_a_radius_that_is_written_out_are_found_once(world: World, space: Space) -> None:
    scene = Scene(20)
    scene.fill(world)
    place = "flat" if space == "plane" else "round"
    for metres in (40.0, 5_000.0, 1e12):
        near = f"WITHIN(u.{place}, a.{place}, {metres:f})"
        query = f"SELECT a.id AS a, u.id AS p FROM NEW Alarms a, People u WHERE {near}"

        check(pairs(world, "", query), scene.near(space, lambda _, metres=metres: metres))  # type: ignore[misc]


@on_spark
@pytest.mark.parametrize(
    ("space", "point"), [("plane", "XY(:x, :y)"), ("globe", "POINT(:x, :y)")], ids=["plane", "globe"]
)
def test_a_subscription_with_its_own_place_and_radius_finds_what_is_near(
    world: World, space: Space, point: str
) -> None:
    scene = Scene(30)
    scene.fill(world)
    place, places = ("flat", scene.flat) if space == "plane" else ("round", scene.round)
    subscribed = [(*places[person], 10.0 ** (person % 8)) for person in scene.people]
    made = channel(
        "x DOUBLE, y DOUBLE, r DOUBLE",
        f"SELECT a.id AS a FROM NEW Alarms a WHERE CONTAINS(CIRCLE({point}, :r), a.{place})",
    )

    found = world.run((world.compile(made), subscribed))

    for values in subscribed:
        x, y, radius = values
        distance = flat_distance if space == "plane" else round_distance
        apart = {alarm: distance((x, y), places[alarm]) for alarm in scene.alarms}
        sure = [alarm for alarm in scene.alarms if apart[alarm] <= radius]
        assert sorted(json.loads(each)["a"] for each in found[("C", values)]) == sure


@on_spark
def test_a_left_join_keeps_who_has_nothing_near(world: World) -> None:
    scene = Scene(40)
    scene.fill(world)
    query = "SELECT u.id AS p, a.id AS a FROM People u LEFT JOIN Alarms a ON WITHIN(u.flat, a.flat, 100)"

    compiled = world.compile(channel("", query))
    (found,) = world.run((compiled, [()])).values()

    sure, _ = scene.near("plane", lambda _: 100.0)
    met = {person for _, person in sure}
    expected: list[dict[str, int | None]] = [{"p": person, "a": alarm} for alarm, person in sure]
    expected += [{"p": person, "a": None} for person in scene.people if person not in met]
    assert sorted(found) == sorted(json.dumps(each, separators=(",", ":")) for each in expected)
    assert "EXPLODE" in compiled.template.sql


@on_spark
def test_points_inside_polygons_are_found_once(world: World) -> None:
    scene = Scene(50)
    scene.fill(world)
    query = "SELECT a.id AS a, u.id AS p FROM NEW Alarms a JOIN People u ON CONTAINS(a.area, u.flat)"

    found = pairs(world, "", query)

    assert found == sorted(
        (alarm, person)
        for alarm in scene.alarms
        for person in scene.people
        if inside(scene.rings[alarm], scene.flat[person])
    )
    assert found, "nothing was inside anything"
    assert found == pairs(world, "", query, plain=True)


@on_spark
def test_a_polygon_may_be_a_parameter_and_a_bad_one_contains_nothing(world: World) -> None:
    scene = Scene(60)
    scene.fill(world)
    bad = [
        "",
        "{",
        "null",
        '{"type":"Point","coordinates":[1,2]}',
        '{"type":"Polygon","coordinates":[[[1,2]]]}',
    ]
    subscribed = [(area,) for area in (*scene.area[:20], *bad)]
    made = channel("area STRING", "SELECT a.id AS a FROM NEW Alarms a WHERE CONTAINS(:area, a.flat)")

    found = world.run((world.compile(made), subscribed))

    for index, (area,) in enumerate(subscribed):
        expected = (
            [each for each in scene.alarms if inside(scene.rings[index], scene.flat[each])]
            if index < 20
            else []
        )
        assert sorted(json.loads(each)["a"] for each in found[("C", (area,))]) == expected


@on_spark
def test_a_polygon_on_the_globe_is_one_of_degrees(world: World) -> None:
    square = '{"type":"Polygon","coordinates":[[[170,-10],[179,-10],[179,10],[170,10],[170,-10]]]}'
    world.fill(
        "People",
        [(1, None, (175.0, 0.0), ""), (2, None, (-179.0, 0.0), ""), (3, None, (171.0, 9.9), "")],
    )
    made = channel("", f"SELECT id AS p FROM People WHERE CONTAINS(POLYGON('{square}'), round)")

    (found,) = world.run((world.compile(made), [()])).values()

    assert sorted(found) == ['{"p":1}', '{"p":3}']


@on_spark
def test_words_are_found_whatever_their_case_and_order(world: World) -> None:
    notes = [
        "Big FIRE, here!",
        "no fire",
        "bonfire",
        "",
        None,
        "Größe über alles",
        "fire fire big",
        "a-b c_d 10%",
    ]
    world.fill("Alarms", [], [(index, None, None, None, None, note) for index, note in enumerate(notes)])
    wanted = ["fire", "big fire", "FIRE BIG", "größe", "", "  ", ".,", "b", "c_d", "10", "fire' OR '1'='1"]
    made = channel("words STRING", "SELECT id AS a FROM NEW Alarms WHERE MATCHES(note, :words)")
    compiled = world.compile(made)

    found = world.run((compiled, [(each,) for each in wanted]))

    def words(text: str | None) -> set[str]:
        return {w for w in "".join(c if c.isalnum() else " " for c in (text or "").lower()).split() if w}

    for each in wanted:
        expected = [i for i, note in enumerate(notes) if words(each) and words(each) <= words(note)]
        assert sorted(json.loads(row)["a"] for row in found[("C", (each,))]) == expected
    assert "EXPLODE" in compiled.template.sql


@on_spark
def test_windows_of_time_begin_at_whole_multiples(world: World) -> None:
    made = channel(
        "", "SELECT CAST(TUMBLE(TIMESTAMP'2026-03-01 11:59:59', INTERVAL '10' MINUTES) AS STRING) AS t"
    )
    (found,) = world.run((world.compile(made), [()])).values()
    assert found == ['{"t":"2026-03-01 11:50:00"}']


@pytest.mark.parametrize("half", [0.0, 31.0, 32.0, 33.0, 5e5, 1e7, 1e30])
@pytest.mark.parametrize("step", [1, 2])
def test_a_levels_edges_are_at_least_as_long_as_the_radius(half: float, step: int) -> None:
    level = geometry.level_of(half, step)

    assert level == geometry.WORLD or geometry.EDGE_M << level >= half
    assert level == 0 or level == geometry.WORLD or geometry.EDGE_M << (level - step) < half


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "1", '{"type": "Point", "coordinates": [1, 2]}', '{"type": "Polygon"}',
        '{"type": "Polygon", "coordinates": []}', '{"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]]}',
        '{"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1]]]}',
        '{"type": "Polygon", "coordinates": [[[0, "x"], [1, 1], [1, 0], [0, "x"]]]}',
        '{"type": "Polygon", "coordinates": [[[0, 1e99], [1, 1], [1, 0], [0, 1e99]]]}',
        json.dumps({"type": "Polygon", "coordinates": [[[0, 0]] * 3_000]}),
        "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_polygon_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(geometry.NoPolygon, match=r"\w+"):
        geometry.canonical_polygon(text)


def test_a_polygon_across_the_date_line_is_refused() -> None:
    square = '{"type":"Polygon","coordinates":[[[170,-10],[-170,-10],[-170,10],[170,10],[170,-10]]]}'
    made = channel("", f"SELECT id FROM People WHERE CONTAINS(POLYGON('{square}'), round)")

    with pytest.raises(SqlInvalid, match="cut it at the date line"):
        compile_channel(made, DATASETS)
