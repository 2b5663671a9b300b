"""What names of targets stand for."""

from __future__ import annotations

import pytest

from tocsin.chaos.targets import Part, candidates, resolve, sides
from tocsin.errors import OperatorError

PARTS = (
    Part("store-1", "store", address=("127.0.0.1", 4222)),
    Part("coordinator-1", "coordinator"),
    Part("coordinator-2", "coordinator"),
    Part("broker/north-1", "broker", "north", "edge", ("127.0.0.1", 1883)),
    Part("broker/north-hub", "broker", "north", "routing", ("127.0.0.1", 1884)),
    Part("broker/south-1", "broker", "south", "edge", ("127.0.0.1", 1885)),
    Part("pipeline", "pipeline"),
)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("broker/north-1", ("broker/north-1",)),
        ("north-1", ("broker/north-1",)),
        ("coordinator-2", ("coordinator-2",)),
        ("pipeline", ("pipeline",)),
        ("cluster/north", ("broker/north-1", "broker/north-hub")),
        ("role/edge", ("broker/north-1", "broker/south-1")),
        ("role/broker", ("broker/north-1", "broker/north-hub", "broker/south-1")),
        ("role/leader", ("coordinator-1", "coordinator-2")),
        ("role/store", ("store-1",)),
        ("south-1+store-1", ("broker/south-1", "store-1")),
        (
            "cluster/north+north-1+role/leader",
            ("broker/north-1", "broker/north-hub", "coordinator-1", "coordinator-2"),
        ),
    ],
)
def test_a_target_stands_for_parts(target: str, parts: tuple[str, ...]) -> None:
    assert resolve(target, PARTS) == parts


def test_an_unknown_target_is_refused_with_those_there_are() -> None:
    with pytest.raises(OperatorError) as refused:
        resolve("cluster/west", PARTS)
    assert "there is no 'cluster/west'" in str(refused.value)
    for name in ("broker/north-1", "cluster/south", "role/leader", "store-1"):
        assert name in refused.value.remedy
    with pytest.raises(OperatorError, match="there is no 'west-1'"):
        resolve("north-1+west-1", PARTS)


def test_chance_breaks_what_the_load_needs_and_clusters_as_a_whole() -> None:
    found = {each.target: each for each in candidates((), PARTS, partitions=True)}
    assert set(found) == {part.name for part in PARTS[:-1]} | {"cluster/north", "cluster/south"}
    assert "partition" not in found["store-1"].kinds, "it is no process of ours"
    assert found["coordinator-1"].others == ("", "store"), "it has no other connections"
    assert found["cluster/north"].others == ("", "store", "broker/south-1")


def test_without_consent_there_are_no_partitions() -> None:
    assert all("partition" not in each.kinds for each in candidates((), PARTS, partitions=False))


def test_a_role_expands_to_its_parts_and_a_cluster_stays_one_target() -> None:
    found = candidates(["role/edge", "cluster/north", "role/leader", "north-1"], PARTS, partitions=False)
    assert [each.target for each in found] == [
        "broker/north-1",
        "broker/south-1",
        "cluster/north",
        "role/leader",
        "north-1",
    ]


def test_what_is_joined_is_broken_together_by_chance_too() -> None:
    (found,) = candidates(["role/edge+store-1"], PARTS, partitions=False)
    assert found.target == "role/edge+store-1"


STORE, NORTH, HUB, SOUTH = (("127.0.0.1", port) for port in (4222, 1883, 1884, 1885))


@pytest.mark.parametrize(
    ("names", "others", "expected"),
    [
        (["broker/north-1"], "store", {"broker/north-1": {STORE}}),
        (["coordinator-1"], "", {"coordinator-1": {STORE}}),
        (["coordinator-1"], "broker/north-1", {}),
        (["broker/north-1"], "south-1", {"broker/north-1": {SOUTH}, "broker/south-1": {NORTH}}),
        (
            ["broker/north-1", "broker/north-hub"],
            "cluster/south",
            {
                "broker/north-1": {SOUTH},
                "broker/north-hub": {SOUTH},
                "broker/south-1": {NORTH, HUB},
            },
        ),
        (
            ["broker/north-1"],
            "",
            {
                "broker/north-1": {STORE, HUB, SOUTH},
                "broker/north-hub": {NORTH},
                "broker/south-1": {NORTH},
            },
        ),
        (["broker/north-1"], "role/store", {"broker/north-1": {STORE}}),
        (["store-1"], "broker/north-1", {"broker/north-1": {STORE}}),
        (
            ["broker/north-1"],
            "store+south-1",
            {"broker/north-1": {STORE, SOUTH}, "broker/south-1": {NORTH}},
        ),
        (
            ["broker/north-1", "broker/south-1"],
            "north-hub+south-1",
            {"broker/north-1": {HUB}, "broker/south-1": {HUB}, "broker/north-hub": {NORTH, SOUTH}},
        ),
    ],
)
def test_both_sides_of_a_partition_cut_what_they_dial(
    names: list[str], others: str, expected: dict[str, set[tuple[str, int]]]
) -> None:
    found = sides(names, others, PARTS, [STORE])
    assert {name: set(addresses) for name, addresses in found.items()} == expected


def test_a_store_that_is_not_ours_to_start_can_be_cut_off() -> None:
    elsewhere = ("nats.example", 4222)
    assert sides(["coordinator-1"], "store", PARTS[1:], [elsewhere]) == {"coordinator-1": (elsewhere,)}
