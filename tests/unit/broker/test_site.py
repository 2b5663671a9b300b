"""Where a broker is: names that resolve anew, the way to the store, and a settings file that changes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tocsin.broker.site import Configured
from tocsin.config import Broker, Settings
from tocsin.errors import OperatorError

HERE = Broker(id="north-1", cluster="north", host="127.0.0.1")


class Names:
    """A resolver whose answers a test gives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known = {"edge.lan": ["127.0.0.2"]}
        real = socket.getaddrinfo

        def resolve(host: str, port: Any, **how: Any) -> Any:
            if host not in self.known:
                return real(host, port, **how)
            if not self.known[host]:
                raise socket.gaierror(-3, "try again")
            return [(socket.AF_INET, 1, 6, "", (each, 0)) for each in self.known[host]]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


@pytest.fixture
def sites() -> Iterator[list[Configured]]:
    made: list[Configured] = []
    yield made
    for each in made:
        for listening in each.begin().values():
            listening.close()


def hosts(site: Configured) -> set[str]:
    return {host for host, _ in site.addresses.listening.values()}


async def test_a_site_with_literal_addresses_never_changes(sites: list[Configured]) -> None:
    site = Configured(Settings(), HERE)
    sites.append(site)
    assert site.is_fixed and await site.look() == site.addresses
    assert site.addresses.info.port == site.addresses.listening["link_port"][1] > 0


async def test_a_name_that_resolves_anew_is_another_place_to_listen(
    names: Names, sites: list[Configured]
) -> None:
    site = Configured(Settings(), msgspec.structs.replace(HERE, host="edge.lan"))
    sites.append(site)
    assert not site.is_fixed and hosts(site) == {"127.0.0.2"}
    names.known["edge.lan"] = ["127.0.0.3"]
    found = await site.look()
    assert {host for host, _ in found.listening.values()} == {"127.0.0.3"}
    assert found.info == site.addresses.info and found.info.host == "edge.lan", "others go by the name"


async def test_the_order_of_a_names_addresses_does_not_matter(names: Names, sites: list[Configured]) -> None:
    names.known["edge.lan"] = ["127.0.0.3", "127.0.0.2"]
    site = Configured(Settings(), msgspec.structs.replace(HERE, host="edge.lan"))
    sites.append(site)
    names.known["edge.lan"].reverse()
    assert await site.look() == site.addresses


async def test_a_name_that_does_not_resolve_is_said(names: Names, sites: list[Configured]) -> None:
    site = Configured(Settings(), msgspec.structs.replace(HERE, host="edge.lan"))
    sites.append(site)
    names.known["edge.lan"] = []
    with pytest.raises(OperatorError, match=r"'edge\.lan' does not resolve"):
        await site.look()


async def test_auto_is_the_address_on_the_way_to_the_store(sites: list[Configured]) -> None:
    configured = msgspec.structs.replace(HERE, host="0.0.0.0", advertise="auto", port=1_883)
    assert configured.reachable_at() == "127.0.0.1", "as programs on this machine find it"
    site = Configured(Settings(), msgspec.structs.replace(configured, port=0))
    sites.append(site)
    assert not site.is_fixed and site.addresses.info.host == "127.0.0.1"
    (entrance,) = site.addresses.info.entrances
    assert entrance.address == f"127.0.0.1:{site.addresses.listening['port'][1]}"


async def test_changed_settings_count_for_the_address_and_keep_chosen_ports(sites: list[Configured]) -> None:
    changed: list[Settings] = []
    site = Configured(Settings(), HERE, lambda: changed.pop() if changed else None)
    sites.append(site)
    assert not site.is_fixed and await site.look() == site.addresses
    ports = {port for _, port in site.addresses.listening.values()}
    changed.append(Settings(brokers=(msgspec.structs.replace(HERE, host="127.0.0.3"),)))
    found = await site.look()
    assert set(found.listening.values()) == {("127.0.0.3", port) for port in ports}
    assert found.info.host == "127.0.0.3" and await site.look() == found


async def test_a_broker_that_leaves_the_settings_stays_where_it_is(sites: list[Configured]) -> None:
    site = Configured(Settings(), HERE, lambda: Settings())
    sites.append(site)
    assert await site.look() == site.addresses


def test_of_several_sockets_none_stays_open_if_one_cannot_listen(sites: list[Configured]) -> None:
    site = Configured(Settings(), HERE)
    sites.append(site)
    taken = site.addresses.listening["link_port"]
    free = ("127.0.0.3", taken[1])
    with pytest.raises(OperatorError):
        site.listen({"port": free, "link_port": taken})
    with site.listen({"port": free})["port"] as again:
        assert again.getsockname() == free
