"""Each role does its own and is refused the rest, by a real server and at once."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.store.secured import NETWORK, SecuredServers
from tocsin.config import Nats
from tocsin.core.coordination.names import StoreNames
from tocsin.errors import Forbidden, NoResponder, OperatorError, Refused, StoreUnavailable
from tocsin.model import feeding
from tocsin.model.channel_names import ChannelNames
from tocsin.model.subjects import messages_log
from tocsin.ports import BusMessage, LogSpec, Record, TableSpec
from tocsin.runtime.network.store_access import add_user, security
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.nats.connection import Connection
from tocsin.store.nats.login import Login, login_of
from tocsin.store.servers.embedded import wait_ready
from tocsin.store.servers.roles import LOGS, ROLES, TABLE, TABLES, Role, permissions

PLACES, CHANNELS = StoreNames(NETWORK), ChannelNames(NETWORK)
MESSAGES = messages_log(NETWORK, 3_600, 1 << 30)
SPECS: dict[str, LogSpec | TableSpec] = {
    "commands": PLACES.commands,
    "snapshots": PLACES.snapshots,
    "messages": MESSAGES,
    "notices": CHANNELS.notices,
    "feeds": CHANNELS.feeds,
    "coordination": PLACES.table,
    "catalogue": CHANNELS.catalogue,
    "channel-subscriptions": CHANNELS.subscriptions,
    "pipeline": CHANNELS.progress,
    "feeder": feeding.table_spec(NETWORK),
    **{
        name: TableSpec(f"{NETWORK}-{name}")
        for name in ("network", "retained", "sessions", "groups", "accounts")
    },
}
SUBJECTS = {
    "commands": "tocsin.c",
    "snapshots": "tocsin.s.a",
    "messages": "tocsin.m.a",
    "notices": "tocsin.notices",
    "feeds": "tocsin.feeds.a",
}
NOT_OPERATOR: tuple[Role, ...] = tuple(role for role in ROLES if role != "operator")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServers]:
    with SecuredServers(tmp_path_factory.mktemp("secured")) as running:

        async def prepare() -> None:
            store = await running.store("operator")
            for name, spec in SPECS.items():
                if isinstance(spec, LogSpec):
                    log = await store.log(spec)
                    await log.append([Record(SUBJECTS[name], b"kept", f"first {name}")])
                else:
                    await (await store.table(spec)).put("key", b"kept")
            await store.close()

        asyncio.run(prepare())
        yield running


@asynccontextmanager
async def as_role(servers: SecuredServers, role: Role) -> AsyncIterator[JetStreamStore]:
    store = await servers.store(role)
    try:
        yield store
    finally:
        await store.close()


async def allowed(action: Awaitable[object]) -> bool:
    """Whether the server let it happen; a time-out is neither."""
    began = time.monotonic()
    try:
        await action
    except Forbidden as error:
        assert time.monotonic() - began < 5, "a refusal is no time-out"
        assert "tocsin store accounts" in str(error)
        return False
    return True


def test_the_table_names_every_log_and_table_of_a_network() -> None:
    assert set(SPECS) == {*LOGS, *TABLES}
    for name, spec in SPECS.items():
        assert spec.name == f"{NETWORK}-{name}"
        if isinstance(spec, LogSpec):
            assert set(spec.subjects) == {NETWORK + each[1:] for each in LOGS[name]}
    for row in TABLE.values():
        assert set(row.streams) <= {*LOGS, *TABLES}


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_reads_and_writes_what_its_row_says_and_nothing_else(
    servers: SecuredServers, role: Role
) -> None:
    async with as_role(servers, role) as store:
        for name, spec in SPECS.items():
            verbs = TABLE[role].streams.get(name, frozenset())
            everything = role == "operator"
            if not everything and not verbs:
                assert not await allowed(_opened(store, spec)), f"{role} opens {name}"
                continue
            if isinstance(spec, LogSpec):
                log = await store.log(spec)
                read = log.read(SUBJECTS[name], 0, limit=1)
                write = log.append([Record(SUBJECTS[name], b"x", f"{role} {name}")])
            else:
                table = await store.table(spec)
                read = table.get("key")  # type: ignore[assignment]
                write = table.put(role, b"x")  # type: ignore[assignment]
            assert await allowed(read) == (everything or "read" in verbs), f"{role} reads {name}"
            assert await allowed(write) == (everything or "write" in verbs), f"{role} writes {name}"


async def _opened(store: JetStreamStore, spec: LogSpec | TableSpec) -> None:
    await (store.log(spec) if isinstance(spec, LogSpec) else store.table(spec))


@pytest.mark.parametrize("role", NOT_OPERATOR)
async def test_nobody_purges_shrinks_or_deletes_what_is_not_theirs(
    servers: SecuredServers, role: Role
) -> None:
    async with as_role(servers, role) as store:

        def request(verb: str, stream: str) -> Awaitable[object]:
            return store._connection.ask(f"$JS.API.{verb}.{stream}", b"{}", 3)

        for name in (*LOGS, *TABLES):
            verbs = TABLE[role].streams.get(name, frozenset())
            stream = f"{NETWORK}-{name}" if name in LOGS else f"KV_{NETWORK}-{name}"
            for verb in ("STREAM.DELETE", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.LEADER.STEPDOWN"):
                assert not await allowed(request(verb, stream)), f"{role} {verb} {name}"
            if "trim" not in verbs:
                assert not await allowed(request("STREAM.PURGE", stream)), f"{role} purges {name}"
            for verb in ("STREAM.CREATE", "STREAM.UPDATE"):  # by either, a stream can be told to copy another
                assert not await allowed(request(verb, stream)), f"{role} {verb} {name}"
            assert not await allowed(request("DIRECT.GET", stream)), (
                f"{role} gets from {name}, beside the others"
            )
            if "read" not in verbs:
                assert not await allowed(request("CONSUMER.CREATE", f"{stream}.spy")), (
                    f"{role} follows {name}"
                )
                assert not await allowed(_direct_get(store, stream)), f"{role} gets from {name}"
        assert not await allowed(request("STREAM.CREATE", "mine"))
        assert not await allowed(store._connection.ask("$JS.API.STREAM.NAMES", b"", 3))
        assert not await allowed(store._connection.ask("$JS.API.ACCOUNT.PURGE.x", b"", 3))


async def _direct_get(store: JetStreamStore, stream: str) -> None:
    await (store._stream(stream, 1)).first_since("look", datetime.now(UTC))


async def test_a_broker_cannot_purge_the_messages_and_the_feeder_cannot_read_sessions(
    servers: SecuredServers,
) -> None:
    """What the table says in rows, said once more in words."""
    async with as_role(servers, "broker") as broker, as_role(servers, "feeder") as feeder:
        messages = await broker.log(MESSAGES)
        with pytest.raises(Forbidden, match=r"the role broker .*tocsin store accounts"):
            await messages.trim(before=2)
        with pytest.raises(Forbidden, match=r"publish on tocsin\.c"):
            await (await broker.log(PLACES.commands)).append([Record("tocsin.c", b"forged", "forged")])
        assert (await messages.read("tocsin.m.a", 0, limit=1)).entries[0].payload == b"kept"
        with pytest.raises(Forbidden, match="the role feeder"):
            await feeder.table(TableSpec(f"{NETWORK}-sessions"))


@pytest.mark.parametrize("role", NOT_OPERATOR)
async def test_nobody_hears_anothers_answers(servers: SecuredServers, role: Role) -> None:
    async with as_role(servers, role) as store:
        for subject in (">", "_INBOX.>", "_INBOX.*.>", "$JS.>", "$KV.>", f"{NETWORK}.>", "$SYS.>"):
            with pytest.raises(Forbidden, match="subscribe to"):
                await store._connection.listen(subject, "", lambda message: None)
        for other in ROLES:
            listening = store._connection.listen(f"_INBOX.{other}.>", "", lambda message: None)
            assert await allowed(listening) == (other == role)


SAYS: list[tuple[Role, str, bool]] = [
    ("broker", "tocsin.to.coordinator", True),
    ("broker", "tocsin.to.broker.north-2", False),  # only coordinators tell brokers what to do
    ("broker", "tocsin.replication.north-2", True),
    ("broker", "tocsin.pipeline.results", True),
    ("broker", "tocsin.pipeline.sql.operator", False),
    ("broker", "tocsin.summary.north-2", False),
    ("coordinator", "tocsin.to.broker.north-1", True),
    ("coordinator", "tocsin.summary.north-1", True),
    ("coordinator", "tocsin.pipeline.sql.operator", False),
    ("pipeline", "tocsin.to.coordinator", False),
    ("pipeline", "tocsin.arrivals", False),
    ("feeder", "tocsin.arrivals", False),
    ("feeder", "tocsin.pipeline.sql.operator", False),
    ("feeder", "tocsin.session.north-1", False),
    ("operator", "tocsin.pipeline.sql.operator", True),
]


@pytest.mark.parametrize(("role", "subject", "granted"), SAYS)
async def test_the_bus_has_its_own_speakers(
    servers: SecuredServers, role: Role, subject: str, granted: bool
) -> None:
    async with as_role(servers, role) as store:

        async def ask() -> None:
            with contextlib.suppress(NoResponder):  # it was let through, and nobody serves there
                await store.bus.request(subject, b"x", deadline_s=3)

        assert await allowed(ask()) == granted


async def test_requests_are_answered_across_roles(servers: SecuredServers) -> None:
    async def answer(delivery: BusMessage) -> bytes:
        return delivery.payload.upper()

    async with (
        as_role(servers, "pipeline") as pipeline,
        as_role(servers, "broker") as broker,
        as_role(servers, "operator") as operator,
        pipeline.bus.serve(f"{NETWORK}.pipeline.results", answer),
    ):
        for asker in (broker, operator):
            assert await asker.bus.request(f"{NETWORK}.pipeline.results", b"rows", deadline_s=5) == b"ROWS"


async def test_without_a_key_or_with_another_networks_nobody_gets_in(
    servers: SecuredServers, tmp_path: Path
) -> None:
    stranger = SecuredServers(tmp_path)  # not started: its keys and its authority
    own, theirs = servers.nats, stranger.nats
    with pytest.raises(Refused, match=r"asks for a log-in"):
        await _connect(msgspec.structs.replace(own, credentials=""))
    with pytest.raises(Refused, match="does not know the key of the role broker"):
        await _connect(msgspec.structs.replace(own, credentials=theirs.credentials))
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
        await _connect(msgspec.structs.replace(own, ca=theirs.ca))
    with pytest.raises(StoreUnavailable):
        await _connect(Nats(urls=tuple(url.replace("tls:", "nats:") for url in own.urls), token="guess"))
    with pytest.raises(OperatorError, match="there is no such file"):
        await _connect(msgspec.structs.replace(own, credentials=str(tmp_path / "{role}.none")))


async def _connect(nats: Nats) -> None:
    await (await JetStreamStore.open(nats, "broker", name="stranger", deadline_s=2)).close()


async def test_a_process_that_requires_tls_refuses_a_plain_server(
    servers: SecuredServers,
) -> None:
    """Somebody else who listens on the port of a server that is down: what it says is not taken for the store's."""
    heard: list[bytes] = []
    posing = await _pose(heard)
    url = f"tls://127.0.0.1:{posing.sockets[0].getsockname()[1]}"
    own = msgspec.structs.replace(servers.nats, urls=(url,))
    for nats in (
        own,
        msgspec.structs.replace(own, tls_handshake="upgrade"),
        msgspec.structs.replace(own, tls_handshake="upgrade", urls=(url.replace("tls:", "nats:"),)),
        Nats(urls=(url,), token="secret"),
    ):
        with pytest.raises(
            StoreUnavailable, match="does not speak TLS" if nats.tls_handshake == "upgrade" else None
        ):
            await JetStreamStore.open(nats, "broker", name="x", deadline_s=2)
        assert not any(b"CONNECT" in each or b"secret" in each for each in heard)
    posing.close()


async def _pose(heard: list[bytes], port: int = 0) -> asyncio.Server:
    """A server that knows no TLS, and takes whatever it is told."""

    async def pose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = b'{"server_id":"x","version":"2.15.1","max_payload":1048576,"headers":true,"nonce":"abc"}'
        writer.write(b"INFO " + info + b"\r\n")
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4_096):
                heard.append(data)
                if b"PING" in data:
                    writer.write(b"PONG\r\n")
        writer.close()

    return await asyncio.start_server(pose, "127.0.0.1", port)


@pytest.mark.parametrize("handshake", ["first", "upgrade"])
async def test_who_comes_back_says_nothing_to_a_server_without_tls(tmp_path: Path, handshake: str) -> None:
    """A server with TLS is gone, and somebody else has its port: the connection dials again by itself."""
    heard: list[bytes] = []
    made = SecuredServers(tmp_path)
    if handshake == "upgrade":
        for plan in made.plans:
            text = plan.config.read_text()
            assert "handshake_first" in text
            plan.config.write_text(re.sub(r"handshake_first: \S+", "handshake_first: false", text))
    with made:
        nats = msgspec.structs.replace(made.nats, tls_handshake=handshake)
        store = await JetStreamStore.open(nats, "broker", name="x", deadline_s=20)
    posing = await _pose(heard, int(made.urls[0].rsplit(":", 1)[1]))
    try:
        async with asyncio.timeout(20):
            while len(heard) < (handshake == "first") or store.connection.connected:
                await asyncio.sleep(0.05)
        await asyncio.sleep(2.0)  # for several attempts
        assert not any(b"CONNECT" in each or b"PING" in each for each in heard)
    finally:
        await store.close()
        posing.close()


async def test_servers_that_take_less_than_the_largest_packet_needs_are_refused(tmp_path: Path) -> None:
    made = SecuredServers(tmp_path)
    for plan in made.plans:
        text = plan.config.read_text()
        plan.config.write_text(re.sub(r"max_payload: \d+", "max_payload: 65536", text))
    with made, pytest.raises(OperatorError, match=r"65,536 bytes \(its max_payload\).*1,048,576") as caught:
        await JetStreamStore.open(made.nats, "broker", name="x", deadline_s=20)
    assert "nats.urls" in str(caught.value)


async def test_a_user_of_sql_asks_under_its_own_name_only(tmp_path: Path) -> None:
    made = SecuredServers(tmp_path)
    seed = add_user(tmp_path, "ann")
    with pytest.raises(OperatorError, match="already"):
        add_user(tmp_path, "ann")
    for bad in ("", "a b", "a.b", "a*", ">", "operator"):
        with pytest.raises(OperatorError):
            add_user(tmp_path, bad)
    from tocsin.store.servers.testing import LocalServers

    with LocalServers(tmp_path / "nats", security=security(made.settings)) as running:
        nats = msgspec.structs.replace(made.nats, urls=running.urls, credentials=str(seed))
        login = msgspec.structs.replace(login_of(nats, "operator"), role="user.ann")
        await wait_ready(running.urls[0], login_of(made.nats, "operator"), 20)
        store = await JetStreamStore.connect(running.urls, login=login, deadline_s=5)
        try:
            with pytest.raises(NoResponder):
                await store.bus.request(f"{NETWORK}.pipeline.sql.ann", b"x", deadline_s=3)
            for subject in ("pipeline.sql.ben", "pipeline.sql", "pipeline.results", "to.coordinator"):
                with pytest.raises(Forbidden):
                    await store.bus.request(f"{NETWORK}.{subject}", b"x", deadline_s=3)
            with pytest.raises(Forbidden):
                await store.log(MESSAGES)
        finally:
            await store.close()


async def test_three_servers_speak_tls_among_themselves_and_know_roles(tmp_path: Path) -> None:
    with SecuredServers(tmp_path, servers=3) as servers:
        await servers.prepare()
        configured = servers.plans[0].config.read_text()
        cluster = configured[configured.index("cluster {") :]
        assert "cert_file" in cluster and 'min_version: "1.3"' in cluster
        store = await servers.store("broker", deadline_s=30)
        try:
            log = await store.log(MESSAGES)
            await log.append([Record("tocsin.m.a", b"x", "one")])
            assert (await store.stream(MESSAGES.name)).replicas == 3
            for (
                url
            ) in servers.urls:  # each of them, also those that do not lead, brings answers to direct gets
                await _reads_all(msgspec.structs.replace(servers.nats, urls=(url,)))
        finally:
            await store.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", servers.plans[0].cluster_port)
        said = await reader.readline()
        assert not said or b'"tls_required":true' in said
        writer.close()


async def _reads_all(nats: Nats) -> None:
    store = await JetStreamStore.open(nats, "broker", name="reader", deadline_s=30)
    try:
        stream = await store.stream(MESSAGES.name)
        assert stream._reads.connection is not store.connection
        log, sessions = await store.log(MESSAGES), await store.table(TableSpec(f"{NETWORK}-sessions"))
        for fresh in (False, True):
            assert [each.payload for each in (await log.read("tocsin.m.a", 0, fresh=fresh)).entries] == [b"x"]
            assert await log.last("tocsin.m.a", fresh=fresh) == 1
            assert await sessions.get("nobody", fresh=fresh) is None
    finally:
        await store.close()


def test_permissions_never_hold_a_wildcard_over_everything() -> None:
    for role in NOT_OPERATOR:
        found = permissions(role, NETWORK)
        for subject in (*found.publish, *found.subscribe):
            assert not subject.startswith((">", "*", "$SYS", "_INBOX.>", "_INBOX.*")), (role, subject)
            assert subject not in ("$JS.API.>", "$KV.>", f"{NETWORK}.>")
            assert ".*." not in subject or subject.endswith(".*.$mark")


async def test_a_connection_says_what_it_may_not_only_to_whom_it_concerns(servers: SecuredServers) -> None:
    connection = Connection(servers.urls, login_of(servers.nats, "feeder"), "test")
    await connection.open(5)
    try:
        denied, fine = await asyncio.gather(
            connection.ask("$JS.API.STREAM.PURGE.tocsin-feeds", b"{}", 5),
            connection.ask("$JS.API.STREAM.INFO.tocsin-feeds", b"{}", 5),
            return_exceptions=True,
        )
        assert isinstance(denied, Forbidden) and not isinstance(fine, BaseException)
    finally:
        await connection.close()


def test_a_login_without_files_asks_for_no_tls() -> None:
    assert Login(token="x").context() is None


def test_every_subject_of_the_bus_is_in_the_table() -> None:
    """Whoever adds a subject adds it to a row: without that, a real server refuses it."""
    known = {each.split(".")[1] for row in TABLE.values() for each in (*row.says, *row.hears) if "." in each}
    logs = {each.split(".")[1] for subjects in LOGS.values() for each in subjects}
    source = Path(__file__).parents[2] / "src" / "tocsin"
    for package in ("broker", "coordinator", "pipeline", "feeds", "wire", "model", "core", "runtime"):
        for path in source.joinpath(package).rglob("*.py"):
            for word in re.findall(r'f"\{(?:self\.)?_?network\}\.([a-z_]+)', path.read_text()):
                assert word in known | logs, f"{path.name}: {word}"


def test_every_table_of_the_source_is_in_the_table() -> None:
    source = Path(__file__).parents[2] / "src" / "tocsin"
    for path in source.rglob("*.py"):
        if "sim" in path.parts:
            continue
        for name in re.findall(r'(?:TableSpec|LogSpec)\([^)]*?network\}-([a-z-]+)"', path.read_text()):
            assert name in {*LOGS, *TABLES}, f"{path.name}: {name}"


async def test_servers_that_ask_for_a_certificate_are_shown_one(tmp_path: Path) -> None:
    made = SecuredServers(tmp_path)
    config = made.plans[0].config
    config.write_text(
        config.read_text().replace("  handshake_first: true", "  handshake_first: true\n  verify: true")
    )
    with made as servers:
        shown = msgspec.structs.replace(
            servers.nats, certificate=str(tmp_path / "certs" / "{role}-operator.pem")
        )
        login = login_of(shown, "operator")
        await wait_ready(servers.urls[0], login, 20)
        with pytest.raises(StoreUnavailable):
            await JetStreamStore.open(servers.nats, "operator", name="none shown", deadline_s=2)
