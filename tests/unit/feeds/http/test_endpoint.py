"""The HTTP door, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.certificates import Authority
from tests.unit.feeds.desk import PLACES, Desk, HandClock
from tocsin.config import Access, Feeds, Settings, Tls
from tocsin.errors import OperatorError, OutcomeUnknown, PortTaken, StoreFull, StoreUnavailable
from tocsin.feeds.agents.agent import Work
from tocsin.feeds.http import server as http
from tocsin.feeds.http.endpoint import HttpEndpoint
from tocsin.feeds.http.keys import sender_of
from tocsin.model.catalogue import HttpSource, TopicSource
from tocsin.ports import Record
from tocsin.runtime.security.files import Guard
from tocsin.runtime.security.users import set_password

DEADLINE_S = 20.0


class Reply(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: Any


class Caller:
    """One connection to a door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def post(
        self, body: object, *, path: str = "/feeds/Reports", method: str = "POST", **headers: str
    ) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: here", f"Content-Length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        return await self.reply()

    async def reply(self) -> Reply:
        async with asyncio.timeout(DEADLINE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            found = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(found.get("content-length", 0)))
        return Reply(int(head[0].split()[1]), found, json.loads(body) if body else None)


class House:
    """A door with a feed behind it."""

    def __init__(self, desk: Desk, door: HttpEndpoint, works: dict[str, Work]) -> None:
        self.desk, self.door, self.works = desk, door, works
        self.port = int(door.addresses[0].rpartition(":")[2])

    @asynccontextmanager
    async def call(self, port: int | None = None, **more: Any) -> AsyncIterator[Caller]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port, **more)
        try:
            yield Caller(reader, writer)
        finally:
            writer.close()

    async def post(self, body: object, **more: str) -> Reply:
        async with self.call() as caller:
            return await caller.post(body, **more)


@asynccontextmanager
async def house(
    settings: Settings | None = None, *, log: Any = None, clock: HandClock | None = None, **chosen: Any
) -> AsyncIterator[House]:
    settings = settings or Settings()
    guard = Guard(settings)
    desk = await Desk.open(clock)
    works = {"reports": desk.work(HttpSource()), "other": desk.work(TopicSource("a"), name="Other")}
    feeds = Feeds(**{"http_port": 0, "http_host": "127.0.0.1", **chosen})
    door = HttpEndpoint(
        feeds, guard, PLACES, log or desk.feeds, desk.cells, lambda name: works.get(name.lower())
    )
    await door.open()
    try:
        yield House(desk, door, works)
    finally:
        await door.close()
        guard.close()


async def test_records_are_in_the_log_when_they_are_acknowledged() -> None:
    async with house() as home, home.call() as caller:
        one = await caller.post({"n": 1}, path="/feeds/reports")
        assert (one.status, one.body) == (202, {"feed": "Reports", "records": 1})
        assert await home.desk.records() == [{"n": 1}]
        several = await caller.post([{"n": 2}, {"n": 3}])  # on the same connection
        lines = await caller.post(b'{"n": 4}\n{"n": 5}\n')
        assert (several.body["records"], lines.body["records"]) == (2, 2)
        assert [each["n"] for each in await home.desk.records()] == [1, 2, 3, 4, 5]
        assert home.works["reports"].counts.records == 5


async def test_a_keyed_request_is_taken_once_unless_its_body_differs() -> None:
    async with house() as home:
        for body in ({"n": 1}, {"n": 1}, {"n": 2}):
            assert (await home.post(body, Idempotency_Key="k-1")).status == 202
        for _ in range(2):  # without a key each is new
            assert (await home.post({"n": 3})).status == 202
        assert [each["n"] for each in await home.desk.records()] == [1, 2, 3, 3]


async def test_a_keyed_request_is_taken_once_beyond_the_duplicate_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = HandClock()
    async with house(clock=clock) as home:
        real = home.desk.feeds.append

        async def unanswered(records: Sequence[Record], *, expected: int | None = None) -> tuple[int, ...]:
            await real(records, expected=expected)
            raise OutcomeUnknown("append", 5.0)

        with monkeypatch.context() as trouble:
            trouble.setattr(home.desk.feeds, "append", unanswered)
            assert (await home.post({"n": 1}, Idempotency_Key="k-1")).status == 503
        for _ in range(3):
            clock.us += int(3_600e6)
            assert (await home.post({"n": 1}, Idempotency_Key="k-1")).status == 202
        assert [each["n"] for each in await home.desk.records()] == [1]


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"path": "/feeds/nothing"}, 404, "no such feed"),
        ({"path": "/feeds/Other"}, 404, "no such feed"),  # it is not from HTTP
        ({"path": "/feeds/../etc"}, 404, "no such feed"),
        ({"path": "/"}, 404, "no such feed"),
        ({"path": "//["}, 404, "no such feed"),
        ({"method": "GET"}, 405, "use POST"),
        ({"Origin": "http://evil.example"}, 403, "web pages"),
        ({"Content_Encoding": "gzip"}, 415, "compressed"),
        ({"Idempotency_Key": "k" * 256}, 400, "Idempotency-Key"),
    ],
)
async def test_a_request_that_is_not_for_here_is_refused_in_words(
    asked: dict[str, str], status: int, words: str
) -> None:
    async with house() as home:
        reply = await home.post({"n": 1}, **asked)
        assert reply.status == status
        assert words in reply.body["error"]
        assert await home.desk.entries() == []


async def test_a_body_that_is_not_records_is_refused_whole() -> None:
    async with house() as home:
        reply = await home.post(b'{"n": 1}\nno JSON\n')
        assert (reply.status, reply.body) == (400, {"error": "line 2 is no JSON object: no JSON"})
        assert await home.desk.entries() == []


async def test_an_oversized_body_is_refused_with_or_without_a_stated_length() -> None:
    async with house(body_max_bytes=1_024) as home:
        assert (await home.post(b"x" * 1_025)).status == 413
        async with home.call() as caller:
            caller.writer.write(
                b"POST /feeds/reports HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                + b"401\r\n" + b"x" * 0x401 + b"\r\n"
            )  # fmt: skip
            assert (await caller.reply()).status == 413


async def test_a_chunked_body_and_an_expect_continue_body_are_taken() -> None:
    async with house() as home, home.call() as caller:
        caller.writer.write(
            b"POST /feeds/reports HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            b'3\r\n{"n\r\n5\r\n": 1}\r\n0\r\n\r\n'
        )
        assert (await caller.reply()).status == 202
        caller.writer.write(
            b"POST /feeds/reports HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n"
        )
        assert (await caller.reply()).status == 100
        caller.writer.write(b'{"n": 2}')
        assert (await caller.reply()).status == 202
        assert await home.desk.records() == [{"n": 1}, {"n": 2}]


class Slow:
    """A log that takes its time."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self.error: Exception | None = None

    async def append(self, records: object) -> tuple[int, ...]:
        self.entered.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return (1,)


async def test_a_request_over_the_queues_bound_is_told_to_retry() -> None:
    log = Slow()
    async with house(log=log, body_max_bytes=1 << 20, waiting_max_bytes=1 << 20) as home:
        body = {"text": "x" * 900_000}
        first = asyncio.create_task(home.post(body))
        async with asyncio.timeout(DEADLINE_S):
            await log.entered.wait()
        second = await home.post(body)
        assert second.status == 503
        assert second.headers["retry-after"] == "1"
        log.go_on.set()
        assert (await first).status == 202
        assert (await home.post(body)).status == 202


async def test_a_store_that_is_away_is_said_and_is_no_acknowledgement() -> None:
    log = Slow()
    log.go_on.set()
    log.error = StoreUnavailable("append", "no server")
    async with house(log=log) as home:
        reply = await home.post({"n": 1})
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "no server" in home.works["reports"].counts.error


async def test_a_full_store_and_an_absent_store_are_reported_differently() -> None:
    log = Slow()
    log.go_on.set()
    log.error = StoreFull("append", "maximum bytes exceeded")
    async with house(log=log) as home:
        reply = await home.post({"n": 1})
        assert (reply.status, reply.headers["retry-after"]) == (507, "1")
        assert "maximum bytes exceeded" in reply.body["error"]


async def test_of_too_many_connections_the_longest_silent_one_is_closed() -> None:
    async with house(connections_max=2) as home, home.call() as first, home.call() as second:
        assert (await second.post({"n": 1})).status == 202
        assert (await first.post({"n": 2})).status == 202
        assert (await home.post({"n": 3})).status == 202
        async with asyncio.timeout(DEADLINE_S):
            assert await second.reader.read() == b"", "it spoke before the first one did"
        assert (await first.post({"n": 4})).status == 202


async def test_silent_connections_keep_nobody_out() -> None:
    async with house(connections_max=20) as home, AsyncExitStack() as stack:
        for _ in range(30):
            await stack.enter_async_context(home.call())
        assert (await home.post({"n": 1})).status == 202


async def test_bodies_that_only_say_how_long_they_are_keep_nobody_out() -> None:
    async with house(body_max_bytes=4 << 20, waiting_max_bytes=8 << 20) as home, AsyncExitStack() as stack:
        head = f"POST /feeds/reports HTTP/1.1\r\nHost: h\r\nContent-Length: {4 << 20}\r\n\r\n{{"
        for _ in range(17):
            slow = await stack.enter_async_context(home.call())
            slow.writer.write(head.encode())
            await slow.writer.drain()
        assert (await home.post({"n": 1})).status == 202


async def test_a_request_whose_body_finds_no_room_is_told_to_retry() -> None:
    async with house(body_max_bytes=1 << 20, waiting_max_bytes=1 << 20) as home, home.call() as large:
        head = f"POST /feeds/reports HTTP/1.1\r\nHost: h\r\nContent-Length: {1 << 20}\r\n\r\n"
        large.writer.write(head.encode() + b"[" + b" " * ((1 << 20) - 2))
        await large.writer.drain()
        async with asyncio.timeout(DEADLINE_S):
            while (await home.post(b"[" + b" " * 65_536 + b"]")).status != 503:
                await asyncio.sleep(0.01)
        large.writer.write(b"]")
        assert (await large.reply()).status in (202, 400)
        assert (await home.post({"n": 1})).status == 202


async def test_one_address_has_a_share_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "is_loopback", lambda address: False)  # as if it came from elsewhere
    async with house(connections_per_address=2) as home, home.call() as first, home.call() as second:
        assert (await first.post({"n": 1})).status == (await second.post({"n": 2})).status == 202
        assert (await home.post({"n": 3})).status == 503
        second.writer.close()
        await second.writer.wait_closed()
        async with asyncio.timeout(DEADLINE_S):
            while (await home.post({"n": 4})).status != 202:
                await asyncio.sleep(0.01)


async def test_who_says_nothing_or_not_all_of_it_is_not_waited_for() -> None:
    async with house(request_deadline_s=1.0) as home:
        async with home.call() as silent, asyncio.timeout(DEADLINE_S):
            assert await silent.reader.read() == b""
        async with home.call() as slow:
            slow.writer.write(b"POST /feeds/reports HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n{")
            assert (await slow.reply()).status == 408
        assert await home.desk.entries() == []


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x00\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"A" * 40_000])
async def test_what_is_no_http_is_answered_and_closed(garbage: bytes) -> None:
    async with house() as home:
        async with home.call() as caller, asyncio.timeout(DEADLINE_S):
            caller.writer.write(garbage)
            assert (await caller.reply()).status in (400, 431, 505)
            assert await caller.reader.read() == b""
        assert (await home.post({"n": 1})).status == 202


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    set_password(tmp_path / "users", "alice", b"wonder")
    set_password(tmp_path / "users", "bob", b"builder")
    return tmp_path / "users"


async def test_users_prove_their_names_and_strangers_stay_out(users: Path) -> None:
    settings = Settings(access=Access(users=str(users), anonymous="never"))
    async with house(settings) as home:
        assert (await home.post({"n": 1}, Authorization=basic("alice", "wonder"))).status == 202
        for given in ({}, {"Authorization": basic("alice", "wrong")}, {"Authorization": "Basic ?"},
                      {"Authorization": "Bearer x"}, {"Authorization": basic("nobody", "x")}):  # fmt: skip
            reply = await home.post({"n": 2}, **given)
            assert reply.status == 401
            assert "www-authenticate" in reply.headers
        assert await home.desk.records() == [{"n": 1}]


async def test_an_anonymous_local_request_passes_unless_its_password_is_wrong(users: Path) -> None:
    async with house(Settings(access=Access(users=str(users)))) as home:
        assert (await home.post({"n": 1})).status == 202
        assert (await home.post({"n": 2}, Authorization=basic("alice", "wrong"))).status == 401


async def test_rules_say_who_may_write_to_a_feed(users: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rules]]\nallow = "publish"\ntopics = ["$feeds/reports"]\nusers = ["alice"]\n'
        '[[rules]]\nallow = "publish"\ntopics = ["#"]\n'
    )
    async with house(Settings(access=Access(users=str(users), rules=str(rules)))) as home:
        assert (await home.post({"n": 1}, Authorization=basic("alice", "wonder"))).status == 202
        reply = await home.post({"n": 2}, Authorization=basic("bob", "builder"))
        assert reply.status == 403
        assert "bob may not publish to $feeds/reports" in reply.body["error"]
        assert (await home.post({"n": 3})).status == 403
        # Whether there is such a feed is only for those who may write to it.
        nothing = await home.post({"n": 2}, path="/feeds/nothing", Authorization=basic("bob", "builder"))
        assert (nothing.status, nothing.body["error"]) == (
            403,
            reply.body["error"].replace("reports", "nothing"),
        )


async def test_strangers_are_not_told_which_feeds_there_are(users: Path) -> None:
    settings = Settings(access=Access(users=str(users), anonymous="never"))
    async with house(settings) as home:
        replies = [await home.post({"n": 1}, path=f"/feeds/{name}") for name in ("reports", "nothing")]
        assert [each.status for each in replies] == [401, 401]


async def test_an_unproven_name_is_no_sender(users: Path) -> None:
    async with house() as home:  # nobody can prove a name here
        for name in ("alice", "bob"):
            given = {"Authorization": basic(name, "x"), "Idempotency_Key": "k"}
            assert (await home.post({"n": 1}, **given)).status == 202
        ids = [entry.id for entry in (await home.desk.feeds.read(">", 0)).entries]
        assert len(ids) == 2 and len({sender_of(each.rpartition(".")[0]) for each in ids}) == 1
    async with house(Settings(access=Access(users=str(users)))) as home:
        for name, password in (("alice", "wonder"), ("bob", "builder")):
            given = {"Authorization": basic(name, password), "Idempotency_Key": "k"}
            assert (await home.post({"n": 1}, **given)).status == 202
        ids = [entry.id for entry in (await home.desk.feeds.read(">", 0)).entries]
        assert len({sender_of(each.rpartition(".")[0]) for each in ids}) == 2


async def test_the_door_speaks_tls_and_believes_client_certificates(
    tmp_path: Path, debian_program: Callable[[str, str], str]
) -> None:
    authority = Authority(debian_program("openssl", "openssl"), tmp_path)
    own, press = authority.sign("localhost"), authority.sign("press-1")
    tls = Tls(
        certificate=str(own.certificate),
        key=str(own.key),
        client_ca=str(authority.certificate),
        client_certificates="optional",
    )
    async with house(Settings(tls=tls, access=Access(anonymous="never")), https_port=0) as home:
        port = int(home.door.addresses[1].rpartition(":")[2])
        context = ssl.create_default_context(cafile=str(authority.certificate))
        async with home.call(port, ssl=context, server_hostname="localhost") as stranger:
            assert (await stranger.post({"n": 1})).status == 401
        context.load_cert_chain(press.certificate, press.key)
        async with home.call(port, ssl=context, server_hostname="localhost") as machine:
            assert (await machine.post({"n": 2})).status == 202


async def test_handshakes_that_never_end_are_bounded_and_keep_nobody_out(
    tmp_path: Path, debian_program: Callable[[str, str], str]
) -> None:
    authority = Authority(debian_program("openssl", "openssl"), tmp_path)
    own = authority.sign("localhost")
    tls = Tls(certificate=str(own.certificate), key=str(own.key))
    async with (
        house(Settings(tls=tls), https_port=0, connections_max=5) as home,
        AsyncExitStack() as stack,
    ):
        port = int(home.door.addresses[1].rpartition(":")[2])
        silent = [await stack.enter_async_context(home.call(port)) for _ in range(12)]
        context = ssl.create_default_context(cafile=str(authority.certificate))
        async with home.call(port, ssl=context, server_hostname="localhost") as sender:
            assert (await sender.post({"n": 1})).status == 202
        async with asyncio.timeout(DEADLINE_S):
            for each in silent[:5]:
                assert await each.reader.read() == b"", "the oldest had to go"


async def test_one_address_has_a_share_of_the_handshakes(
    tmp_path: Path, debian_program: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "is_loopback", lambda address: False)  # as if it came from elsewhere
    authority = Authority(debian_program("openssl", "openssl"), tmp_path)
    own = authority.sign("localhost")
    tls = Tls(certificate=str(own.certificate), key=str(own.key))
    async with house(Settings(tls=tls), https_port=0, connections_per_address=2) as home:
        port = int(home.door.addresses[1].rpartition(":")[2])
        async with home.call(port), home.call(port), home.call(port) as third:
            async with asyncio.timeout(DEADLINE_S):
                assert await third.reader.read() == b""


async def test_a_port_that_is_taken_is_said_with_its_setting() -> None:
    async with house() as home:
        with pytest.raises(PortTaken, match=r"feeds\.http_port"):
            async with house(http_port=home.port):
                pass
    with pytest.raises(OperatorError, match=r"tls\.certificate"):
        async with house(https_port=0):
            pass
