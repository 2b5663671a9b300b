"""Keys that come, go and are replaced while a real server runs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from tests.store.secured import NETWORK, SecuredServers
from tocsin.errors import NoResponder, Refused, TocsinError
from tocsin.model.subjects import messages_log
from tocsin.ports import Record
from tocsin.runtime.store_access import (
    add_key,
    add_user,
    key_files,
    remove_key,
    remove_user,
    rotate_key,
    users,
)
from tocsin.store.jetstream import JetStreamStore
from tocsin.store.login import Login, login_of
from tocsin.store.server import wait_ready, write_users

DEADLINE_S = 30.0
MESSAGES = messages_log(NETWORK, 3_600, 1 << 30)


def tell(servers: SecuredServers) -> None:
    """As ``tocsin up`` does when a key has changed."""
    for plan in servers.plans:
        write_users(plan.config.parent, users(servers.settings))
        os.kill(servers.pid(plan.name), signal.SIGHUP)


def login(servers: SecuredServers, seed: Path, role: str) -> Login:
    nats = msgspec.structs.replace(servers.nats, credentials=str(seed))
    return msgspec.structs.replace(login_of(nats, "operator"), role=role)


async def let_in(servers: SecuredServers, seed: Path, role: str) -> JetStreamStore | None:
    try:
        return await JetStreamStore.connect(servers.urls, login=login(servers, seed, role), deadline_s=2)
    except Refused:
        return None


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():
            await asyncio.sleep(0.1)


async def asks(store: JetStreamStore, user: str) -> bool:
    """Whether the server carries a question of that user."""
    try:
        await store.bus.request(f"{NETWORK}.pipeline.sql.{user}", b"x", deadline_s=2)
    except NoResponder:
        return True
    except TocsinError:
        return False
    return True


async def test_users_of_sql_come_and_go_while_the_server_runs(tmp_path: Path) -> None:
    with SecuredServers(tmp_path) as servers:
        await wait_ready(servers.urls[0], login_of(servers.nats, "operator"), DEADLINE_S)
        broker = await servers.store("broker")
        log = await broker.log(MESSAGES)
        seed = add_user(tmp_path, "ann")
        kept = tmp_path / "ann.nk"
        kept.write_text(seed.read_text())
        assert await let_in(servers, kept, "user.ann") is None
        tell(servers)
        ann: list[JetStreamStore] = []

        async def inside() -> bool:
            ann.extend(each for each in [await let_in(servers, kept, "user.ann")] if each is not None)
            return bool(ann)

        await until(inside)
        assert await asks(ann[0], "ann")
        remove_user(tmp_path, "ann")
        tell(servers)

        async def outside() -> bool:
            return not await asks(ann[0], "ann")

        await until(outside)
        assert await let_in(servers, kept, "user.ann") is None
        await log.append([Record(f"{NETWORK}.m.a", b"x", "one")])
        assert broker._connection.losses == 0, "others do not notice"
        await ann[0].close()
        await broker.close()


async def test_a_key_of_a_process_elsewhere_is_taken_back_by_itself(tmp_path: Path) -> None:
    with SecuredServers(tmp_path) as servers:
        await wait_ready(servers.urls[0], login_of(servers.nats, "operator"), DEADLINE_S)
        here = await servers.store("broker")
        await here.log(MESSAGES)
        seed = add_key(tmp_path, "broker", "south-1")
        kept = tmp_path / "south-1.nk"
        kept.write_text(seed.read_text())
        tell(servers)
        south: list[JetStreamStore] = []

        async def inside() -> bool:
            south.extend(each for each in [await let_in(servers, kept, "broker")] if each is not None)
            return bool(south)

        await until(inside)
        log = await south[0].log(MESSAGES)
        await log.append([Record(f"{NETWORK}.m.a", b"x", "one")])
        remove_key(tmp_path, "broker", "south-1")
        tell(servers)

        async def cut() -> bool:
            return not south[0]._connection.connected

        await until(cut)
        with pytest.raises(TocsinError):
            await log.append([Record(f"{NETWORK}.m.a", b"x", "two")])
        assert await let_in(servers, kept, "broker") is None
        assert here._connection.losses == 0
        assert (await (await here.log(MESSAGES)).last()) == 1
        await south[0].close()
        await here.close()


async def test_a_key_is_replaced_under_a_process_that_goes_on(tmp_path: Path) -> None:
    with SecuredServers(tmp_path) as servers:
        await wait_ready(servers.urls[0], login_of(servers.nats, "operator"), DEADLINE_S)
        broker = await servers.store("broker")
        log = await broker.log(MESSAGES)
        stolen = tmp_path / "stolen.nk"
        stolen.write_text((tmp_path / "nats" / "keys" / "broker.nk").read_text())
        for number in range(3):
            rotate_key(tmp_path, "broker")
            tell(servers)

            async def refused() -> bool:
                thief = await let_in(servers, stolen, "broker")
                if thief is not None:
                    await thief.close()
                return thief is None

            await until(refused)

            async def appended(number: int = number) -> bool:
                try:
                    await log.append([Record(f"{NETWORK}.m.a", b"x", f"r{number}")])
                except TocsinError:
                    return False
                return True

            await until(appended)
        assert await log.last() == 3
        await broker.close()


def test_every_key_is_watched(tmp_path: Path) -> None:
    made = SecuredServers(tmp_path)
    add_key(tmp_path, "broker", "a")
    add_user(tmp_path, "ann")
    names = {path.name for path in key_files(tmp_path)}
    assert {"broker.nk", "broker@a.nk", "user-ann.nk", "operator.nk"} <= names
    told = [each.name for each in users(made.settings)]
    assert "broker a" in told and "user ann" in told and "broker" in told
