"""Fixtures that several of the integration tests use.

``connect`` is of the network that the test's own module starts, in its fixture ``ready``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.feeder import Town
from tests.integration.peers import Connect, Peers
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one test process: many share a network, which is started once then."""
    for item in items:
        here = item.path.parent == Path(__file__).parent
        if here and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LocalServers]:
    """A store of the test's own."""
    with LocalServers(tmp_path / "nats") as started:
        yield started


@pytest.fixture
async def town(servers: LocalServers) -> AsyncIterator[Town]:
    store = await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=10)
    made = Town(store)
    await made.open()
    yield made
    await store.close()


@pytest.fixture
async def connect(ready: dict[str, Any]) -> AsyncIterator[Connect]:
    """Connects a client to a broker, tried until it is there."""
    peers = Peers({each["id"]: (each["host"], each["port"]) for each in ready["brokers"]})
    yield peers.connect
    await peers.close()
