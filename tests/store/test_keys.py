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
from tocsin.errors import Forbidden, NoResponder, OperatorError, Refused, StoreUnavailable, TocsinError
from tocsin.model.subjects import messages_log
from tocsin.ports import Record
from tocsin.runtime.network.store_access import (
    access,
    add_key,
    add_user,
    key_files,
    public_keys,
    remove_key,
    remove_user,
    rotate_key,
)
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.nats.login import Login, login_of
from tocsin.store.nats.nkeys import make_seed
from tocsin.store.servers.embedded import wait_ready, write_access
from tocsin.store.servers.roles import READS

DEADLINE_S = 30.0
MESSAGES = messages_log(NETWORK, 3_600, 1 << 30)


def tell(servers: SecuredServers) -> None:
    """As ``tocsin up`` does when a key has changed."""
    for plan in servers.plans:
        write_access(plan.config.parent, access(servers.settings))
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
        await servers.prepare()
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
        await servers.prepare()
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
        await servers.prepare()
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
                    page = await log.read(
                        f"{NETWORK}.m.a", 0
                    )  # by the second key, which was replaced as well
                except TocsinError:
                    return False
                return len(page.entries) == number + 1

            await until(appended)
        assert await log.last() == 3
        await broker.close()


async def test_a_key_whose_seed_is_elsewhere_has_two_public_keys(tmp_path: Path) -> None:
    elsewhere = tmp_path / "south.nk"
    elsewhere.write_text(make_seed() + "\n")
    both = ",".join(public_keys(elsewhere))
    with pytest.raises(OperatorError, match="tocsin store key public FILE"):
        add_key(tmp_path, "broker", "south", both.partition(",")[0])
    with pytest.raises(OperatorError, match="not the public key"):
        add_key(tmp_path, "broker", "south", "x,y")
    add_key(tmp_path, "broker", "south", both)
    with SecuredServers(tmp_path) as servers:
        await servers.prepare()
        south = await let_in(servers, elsewhere, "broker")
        assert south is not None
        assert (await (await south.log(MESSAGES)).read(f"{NETWORK}.m.a", 0)).entries == ()
        assert south._reads.connection is not south.connection
        await south.close()


async def test_a_key_of_before_with_one_public_key_goes_on(tmp_path: Path) -> None:
    elsewhere = tmp_path / "south.nk"
    elsewhere.write_text(make_seed() + "\n")
    made = SecuredServers(tmp_path)
    (tmp_path / "nats" / "keys" / "broker@south.pub").write_text(public_keys(elsewhere)[0] + "\n")
    with made as servers:
        await servers.prepare()
        tell(servers)
        south: list[JetStreamStore] = []

        async def inside() -> bool:
            south.extend(each for each in [await let_in(servers, elsewhere, "broker")] if each is not None)
            return bool(south)

        await until(inside)
        assert (await (await south[0].log(MESSAGES)).read(f"{NETWORK}.m.a", 0)).entries == ()
        assert south[0]._reads.connection is south[0].connection
        await south[0].close()


async def test_direct_gets_find_their_account_despite_a_late_server(
    tmp_path: Path,
) -> None:
    with SecuredServers(tmp_path) as servers:
        await servers.prepare()
        known = access(servers.settings)
        late = msgspec.structs.replace(
            known, users=tuple(each for each in known.users if (each.name, each.account) != ("broker", READS))
        )
        home = servers.plans[0].config.parent
        write_access(home, late)
        os.kill(servers.pid(servers.plans[0].name), signal.SIGHUP)

        async def unknown() -> bool:
            store = await servers.store("broker")
            if store._reads.connection is store.connection:
                found.append(store)
            else:
                await store.close()
            return bool(found)

        found: list[JetStreamStore] = []
        await until(unknown)
        log = await found[0].log(MESSAGES)
        with pytest.raises(Forbidden):
            await log.read(f"{NETWORK}.m.a", 0)
        tell(servers)

        async def reads() -> bool:
            try:
                return (await log.read(f"{NETWORK}.m.a", 0)).entries == ()
            except Forbidden:
                return False

        await until(reads)
        assert found[0]._reads.connection is not found[0].connection
        await found[0].close()


async def test_a_process_says_what_to_do_if_a_stream_is_missing(tmp_path: Path) -> None:
    with SecuredServers(tmp_path) as servers:
        await wait_ready(servers.urls[0], login_of(servers.nats, "operator"), DEADLINE_S)
        broker = await servers.store("broker", deadline_s=2)
        with pytest.raises(
            StoreUnavailable, match=r"no stream tocsin-messages.*tocsin up.*tocsin store prepare"
        ):
            await broker.log(MESSAGES)
        await servers.prepare()
        await broker.log(MESSAGES)
        await broker.close()


async def test_the_operator_applies_the_settings_bounds_to_streams_and_removes_copies(
    tmp_path: Path,
) -> None:
    with SecuredServers(tmp_path) as servers:
        await servers.prepare()
        operator = await servers.store("operator")
        stream = await operator.stream(MESSAGES.name)
        config = (await stream.api("look", "STREAM.INFO", {}))["config"]
        assert config["max_age"] == servers.settings.messages.keep_s * 1_000_000_000
        copying = {**config, "sources": [{"name": f"KV_{NETWORK}-sessions"}], "allow_rollup_hdrs": True}
        await stream.api("change", "STREAM.UPDATE", copying)
        shorter = msgspec.structs.replace(servers.settings.messages, keep_s=600)
        servers.settings = msgspec.structs.replace(servers.settings, messages=shorter)
        await servers.prepare()
        config = (await stream.api("look", "STREAM.INFO", {}))["config"]
        assert config["max_age"] == 600_000_000_000 and not config.get("sources")
        assert not config["allow_rollup_hdrs"]
        await operator.close()


def test_every_key_is_watched(tmp_path: Path) -> None:
    made = SecuredServers(tmp_path)
    add_key(tmp_path, "broker", "a")
    add_user(tmp_path, "ann")
    names = {path.name for path in key_files(tmp_path)}
    assert {"broker.nk", "broker@a.nk", "user-ann.nk", "operator.nk"} <= names
    told = [each.name for each in access(made.settings).users]
    assert "broker a" in told and "user ann" in told and "broker" in told
