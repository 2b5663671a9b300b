"""Notices: what their items take in the log."""

from __future__ import annotations

from tests.unit.core.coordination.histories import NORTH
from tocsin.model.network import Route, Scope
from tocsin.model.stream import Value
from tocsin.wire.internal import notices
from tocsin.wire.internal.notices import encode_item, told_bytes


def test_estimates_are_near_what_is_written() -> None:
    routes = tuple(Route(Scope.ORIGIN, "south", f"device/{number}") for number in range(100))
    said: dict[str, Value] = {"Room": "410", "floor": 4}
    streams = tuple((f"device/{number}", said) for number in range(100))
    for item in (
        notices.Routes(routes, (), (NORTH,)),
        notices.QuerySet("q" * 16, streams),
        notices.Joined("q" * 16, "device/1", {"Room": "410"}),
        notices.Left("q" * 16, "device/1", {"Room": "410"}, 1 << 40),
        notices.Described("device/1", {"Room": "4" * 1_000}),
        notices.Bypass((("south", ("hub",)),), (), (NORTH,)),
        notices.Backed(NORTH),
    ):
        written = len(memoryview(encode_item(item)))
        assert written / 2 <= told_bytes(item) <= 2 * written + 300, item
