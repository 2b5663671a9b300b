"""Doors in the local network: a coordinator announces its own over multicast DNS, and clients find it."""

from __future__ import annotations

import pytest

from tocsin.config import Door
from tocsin.errors import OperatorError
from tocsin.runtime.machines.clock import token_hex
from tocsin.runtime.network import mdns
from tocsin.runtime.network.mdns import Announcement, find, is_wanted

LOCAL = "127.0.0.1"


async def test_announced_door_is_found_by_its_network() -> None:
    network = f"test-{token_hex(4)}"
    door = Door(host=LOCAL, port=21_882, tls_port=21_883, mdns="always")
    announcement = Announcement(network, "coordinator-1", door)
    await announcement.open()
    try:
        found = await find(network, interface=LOCAL, deadline_s=20, enough=2)
        assert sorted(found) == [("mqtt", LOCAL, 21_882), ("mqtts", LOCAL, 21_883)]
    finally:
        await announcement.close()


async def test_network_that_nobody_announces_is_not_found() -> None:
    assert await find("nobody", interface=LOCAL, deadline_s=0.2) == []


@pytest.mark.parametrize(
    ("door", "installed", "wanted"),
    [
        (Door(), True, False),
        (Door(host="0.0.0.0"), True, True),
        (Door(host="0.0.0.0"), False, False),
        (Door(host="0.0.0.0", mdns="never"), True, False),
        (Door(host="0.0.0.0", port=-1), True, False),
        (Door(mdns="always"), True, True),
    ],
)
def test_door_is_announced_where_others_can_reach_it(
    door: Door, installed: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mdns, "is_installed", lambda: installed)
    assert is_wanted(door) is wanted


def test_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mdns, "is_installed", lambda: False)
    with pytest.raises(OperatorError, match=r"tocsin\[mdns\]"):
        is_wanted(Door(mdns="always"))
