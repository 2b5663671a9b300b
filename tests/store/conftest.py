"""Stores to test: the twin in memory, and JetStream on one server that each test process starts for itself."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from tocsin.ports import Log, LogSpec, Store, Table, TableSpec
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.store.servers.testing import LocalServers

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServers]:
    """A server for the tests of this process that do it no harm."""
    with LocalServers(tmp_path_factory.mktemp("nats")) as started:
        yield started


@pytest.fixture(params=["memory", "jetstream"])
async def opener(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[], Awaitable[Store]]]:
    """Opens further clients of one store; all are closed at the end."""
    opened: list[Store] = []
    memory = MemoryServer()
    started: LocalServers | None = None
    if request.param == "jetstream":
        started = request.getfixturevalue("servers")

    async def open_one() -> Store:
        store: Store = MemoryStore(memory)
        if started is not None:
            store = await JetStreamStore.connect(started.urls, token=started.token, deadline_s=10)
        opened.append(store)
        return store

    yield open_one
    for each in opened:
        await each.close()


@pytest.fixture
async def store(opener: Callable[[], Awaitable[Store]]) -> Store:
    return await opener()


@pytest.fixture
def log_spec() -> Callable[..., LogSpec]:
    """Specifications of logs that no other test uses."""

    def make(**bounds: Any) -> LogSpec:
        name = f"log{next(_numbers)}"
        return LogSpec(name, (f"{name}.>",), **bounds)

    return make


@pytest.fixture
def table_spec() -> Callable[..., TableSpec]:
    """Specifications of tables that no other test uses."""

    def make(**bounds: Any) -> TableSpec:
        return TableSpec(f"table{next(_numbers)}", **bounds)

    return make


@pytest.fixture
def spec(log_spec: Callable[..., LogSpec]) -> LogSpec:
    return log_spec()


@pytest.fixture
async def log(store: Store, spec: LogSpec) -> Log:
    return await store.log(spec)


@pytest.fixture
def subject(spec: LogSpec) -> Callable[[str], str]:
    """A subject of the log."""
    return lambda rest: f"{spec.name}.{rest}"


@pytest.fixture
async def table(store: Store, table_spec: Callable[..., TableSpec]) -> Table:
    return await store.table(table_spec())
