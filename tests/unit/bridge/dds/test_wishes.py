"""Wishes: which partitions have one in common."""

from __future__ import annotations

import pytest

from tocsin.bridge.dds.wishes import overlap


@pytest.mark.parametrize(
    ("some", "others", "common"),
    [
        ((), (), True),
        (("a",), (), False),
        (("a", "b"), ("b",), True),
        (("hall-*",), ("hall-1",), True),
        (("hall-1",), ("hall-*",), True),
        (("h*",), ("ha*",), False),
        (("*",), (), True),
    ],
)
def test_partitions_overlap_as_dds_has_it(
    some: tuple[str, ...], others: tuple[str, ...], common: bool
) -> None:
    assert overlap(some, others) is common
