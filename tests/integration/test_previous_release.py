"""A network of today on the state that release 0.1.0 left: everything is found, and goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.running import up
from tests.integration.stored import Finder, options, unpack
from tocsin.broker.identity import LINK_SECRET
from tocsin.config import Nats
from tocsin.ports import TableSpec
from tocsin.runtime.network.directory import read_network
from tocsin.runtime.network.store_access import embedded
from tocsin.store.jetstream.store import JetStreamStore

pytestmark = pytest.mark.timeout(240)
RELEASES = ("release-0.1.0",)


async def secret_is_gone(state: Path) -> None:
    """What opened every link of release 0.1.0 does not stay in the store."""
    found = read_network(state)
    assert found is not None
    nats = embedded(Nats(urls=found.nats), state)
    store = await JetStreamStore.open(nats, "operator", name="a test")
    try:
        table = await store.table(TableSpec(name=f"{found.network}-network"))
        async with asyncio.timeout(30):
            while await table.get(LINK_SECRET) is not None:
                await asyncio.sleep(0.2)
    finally:
        await store.close()


@pytest.mark.parametrize("release", RELEASES)
async def test_a_network_goes_on_with_the_state_of_an_earlier_release(release: str, tmp_path: Path) -> None:
    expected = unpack(release, tmp_path / "state")
    with up(*options(), state=tmp_path / "state", level="error") as ready:
        await Finder(ready).all(expected)
        await secret_is_gone(tmp_path / "state")


@pytest.mark.slow
@pytest.mark.xdist_group("networks with spark")
@pytest.mark.parametrize("release", RELEASES)
async def test_its_datasets_and_channels_go_on_too(release: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    expected = unpack(release, tmp_path / "state")
    with up(*options(), state=tmp_path / "state", level="error", spark=True) as ready:
        finder = Finder(ready)
        await finder.channel(expected["channel"])
        assert finder.rows() == [{"kind": "flood", "level": expected["channel"]["level"]}]
