"""A follower against a server that the test plays: whatever goes wrong, the next consumer begins at the right place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from tocsin.errors import StoreUnavailable, Trimmed
from tocsin.ports import Begun, Reached
from tocsin.store.jetstream import follower as follower_module
from tocsin.store.jetstream.follower import LOOK_EVERY, WINDOW, Follower, Idle, meaning
from tocsin.store.jetstream.stream import Bounds, JetStream, Stored
from tocsin.store.nats.connection import NotSent
from tocsin.store.nats.protocol import Incoming


class FakeListener:
    async def stop(self) -> None:
        return


class FakeServer:
    """The connection and the stream of a follower; notes what is asked and says what the test wants said."""

    def __init__(self) -> None:
        self.lost: set[Callable[[], None]] = set()
        self.name = "s"
        self.connection = self
        self.oldest = 1
        self.newest = 10
        self.pending = 0
        self.replicas = 1
        self.alone = False
        self.next: int | None = None  # the position of what the leader has for the follower
        self.looks: list[int] = []  # positions from which the leader was asked for it
        self.closed = False
        self.created: list[dict[str, Any]] = []  # configurations of the consumers, in order
        self.asked: list[int] = []  # how many messages were asked for, request by request
        self.pulls: list[dict[str, int]] = []  # the requests
        self.removed = 0
        self.say: Callable[[Incoming], None] = lambda message: None
        self.requested = asyncio.Event()

    def check_open(self, operation: str) -> None:
        if self.closed:
            raise StoreUnavailable(operation, "this store was closed")

    async def bounds(self, operation: str) -> Bounds:
        return Bounds(self.oldest, self.newest, 0, datetime.now(UTC))

    async def next_for(self, operation: str, pattern: str, start: int) -> Stored | None:
        self.looks.append(start)
        return None if self.next is None else Stored(self.next, "s.a", b"", {}, 0)

    def new_inbox(self) -> str:
        return "_INBOX.test"

    async def listen(self, subject: str, group: str, take: Callable[[Incoming], None]) -> FakeListener:
        if self.closed:
            raise NotSent("closed")
        self.say = take
        return FakeListener()

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> Incoming:
        self.created.append(msgspec.json.decode(payload)["config"])
        return Incoming("", "", msgspec.json.encode({"num_pending": self.pending}), {})

    async def send(self, frames: bytes) -> None:
        if b"CONSUMER.DELETE" in frames:
            self.removed += 1
            return
        self.pulls.append(msgspec.json.decode(frames.split(b"\r\n")[1]))
        self.asked.append(self.pulls[-1]["batch"])
        self.requested.set()

    def deliver(self, number: int, position: int, pending: int = 0, consumer: str | None = None) -> None:
        name = consumer if consumer is not None else self.created[-1]["name"]
        reply = f"$JS.ACK.s.{name}.1.{position}.{number}.5000.{pending}"
        self.say(Incoming("s.a", reply, str(position).encode(), {}))

    def status(self, code: str, words: str = "", **headers: str) -> None:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.say(Incoming("inbox", "", b"", {"Status": code, "Description": words, **given}))

    @property
    def starts(self) -> list[int]:
        return [config["opt_start_seq"] for config in self.created]


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "PAUSE_S", 0.0)


def open_follower(server: FakeServer, start: int = 0, **options: Any) -> Follower:
    return Follower(cast("JetStream", server), "follow", ("s.>",), start, **options)


async def take(messages: AsyncIterator[Stored | Begun | Idle | Reached], count: int) -> list[int | str]:
    """Positions, and the names of what is no message."""
    taken: list[int | str] = []
    async with asyncio.timeout(10):
        while len(taken) < count:
            message = await anext(messages)
            taken.append(message.position if isinstance(message, Stored) else type(message).__name__)
    return taken


async def begun(
    server: FakeServer, messages: AsyncIterator[Stored | Begun | Idle | Reached]
) -> asyncio.Task[list[int | str]]:
    """Take ``Begun``, ask for the next, and wait until the server was asked for messages."""
    assert await take(messages, 1) == ["Begun"]
    server.requested.clear()
    waiting = asyncio.create_task(take(messages, 1))
    await server.requested.wait()
    return waiting


@pytest.mark.parametrize(
    "trouble",
    [
        lambda server: server.deliver(3, 9),  # number 2 is missing
        lambda server: server.deliver(2, 9, consumer="another"),
        lambda server: server.say(Incoming("s.a", "no reply subject of a consumer", b"", {})),
        lambda server: server.status("409", "Consumer Deleted"),
        lambda server: server.status("409", "Leadership Change"),
        lambda server: [lose() for lose in server.lost],
    ],
)
async def test_trouble_makes_a_new_consumer_behind_the_last_message(
    server: FakeServer, trouble: Callable[[FakeServer], object]
) -> None:
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        server.deliver(1, 6)
        assert await waiting == [6]
        trouble(server)
        waiting = await begun(server, messages)
        server.deliver(1, 8)
        assert await waiting == [8]
    assert server.starts == [4, 7]
    assert server.removed == 2


async def test_a_silent_server_makes_a_new_consumer(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "SILENCE_S", 0.01)
    async with aclosing(open_follower(server, 4).messages()) as messages:
        assert await take(messages, 3) == ["Begun", "Begun", "Begun"]
    assert server.starts == [4, 4, 4]


async def test_a_feed_of_a_lone_server_rests_without_heartbeats(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "SILENCE_S", 0.01)
    monkeypatch.setattr(follower_module, "HEARTBEAT_S", 0.0)
    server.alone = True
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        await asyncio.sleep(0.05)  # longer than a silence that counts elsewhere
        server.deliver(1, 6)
        assert await waiting == [6]
    assert ["idle_heartbeat" in each for each in server.pulls] == [False]
    assert len(server.created) == 1


async def test_a_selection_of_a_still_log_rests_once_it_knows(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "SILENCE_S", 0.01)
    monkeypatch.setattr(follower_module, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(follower_module, "SELECTION_REST_S", 0.1)
    server.alone = True
    async with aclosing(open_follower(server, 4, tells=True).messages()) as messages:
        waiting = await begun(server, messages)
        for _ in range(2):  # the log ends at 3, and does not grow
            server.status("100", "Idle Heartbeat", Nats_Last_Stream="3", Nats_Last_Consumer="0")
        server.status("408", "Request Timeout", Nats_Pending_Messages="512")
        await asyncio.sleep(0.05)  # longer than a silence that counts elsewhere
        assert ["idle_heartbeat" in each for each in server.pulls] == [True, False]
        server.deliver(1, 6)
        assert await waiting == [6]
    assert len(server.created) == 1


async def test_a_feed_that_expects_more_does_not_rest(server: FakeServer) -> None:
    server.alone, server.pending = True, 5
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        server.deliver(1, 6)
        assert await waiting == [6]
    assert all("idle_heartbeat" in each for each in server.pulls)


async def test_a_feed_of_a_cluster_does_not_rest(server: FakeServer) -> None:
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        server.deliver(1, 6)
        assert await waiting == [6]
    assert all("idle_heartbeat" in each for each in server.pulls)


async def test_a_resting_feed_gives_a_silent_consumer_up(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "SILENCE_S", 0.01)
    monkeypatch.setattr(follower_module, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(follower_module, "REST_S", 0.05)
    server.alone = True
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        assert await waiting == ["Begun"]
    assert ["idle_heartbeat" in each for each in server.pulls] == [False, True]
    assert server.starts == [4, 4]


async def idle(server: FakeServer, beats: int) -> None:
    """So many heartbeats are heard, and acted upon."""
    for _ in range(beats):
        server.status("100", "Idle Heartbeat")
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_consumer_whose_replica_lags_its_leader_is_given_up(
    server: FakeServer,
) -> None:
    server.replicas = 3
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        server.deliver(1, 6)
        assert await waiting == [6]
        server.requested.clear()
        waiting = asyncio.create_task(take(messages, 1))
        server.next = 9
        await idle(server, LOOK_EVERY)
        assert server.looks == [7] and not waiting.done(), "it may be on its way"
        await idle(server, 1)
        assert await waiting == ["Begun"] and server.looks == [7, 7]
        server.requested.clear()
        waiting = asyncio.create_task(take(messages, 1))
        await server.requested.wait()
        await idle(server, 1)
        assert await waiting == ["Begun"], "on the same server: at once"
    assert server.starts == [4, 7, 7]


@pytest.mark.parametrize("answer", ["nothing", "another", "silence"])
async def test_a_consumer_that_has_what_there_is_stays(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Nothing is there; what was there came; the leader does not say."""
    server.replicas = 3
    server.next = 5 if answer == "another" else None
    if answer == "silence":

        async def silent(*_: object) -> None:
            raise StoreUnavailable("look", "no leader")

        monkeypatch.setattr(server, "next_for", silent)
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        await idle(server, LOOK_EVERY)
        if answer == "another":
            server.next = 8
        await idle(server, 2 * LOOK_EVERY - 1 if answer != "another" else 1)
        server.deliver(1, 5)
        assert await waiting == [5]
    assert server.starts == [4]


async def test_a_slow_reader_takes_what_is_there_before_it_doubts(server: FakeServer) -> None:
    server.replicas, server.next = 3, 5
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        for _ in range(2 * LOOK_EVERY):
            server.status("100", "Idle Heartbeat")
        server.deliver(1, 5)
        assert await waiting == [5]
    assert server.starts == [4] and not server.looks


async def test_one_server_is_believed(server: FakeServer) -> None:
    server.next = 9
    async with aclosing(open_follower(server, 4).messages()) as messages:
        waiting = await begun(server, messages)
        await idle(server, 3 * LOOK_EVERY)
        assert not waiting.done() and not server.looks
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_rewound_feed_begins_at_the_beginning(server: FakeServer) -> None:
    async with aclosing(open_follower(server, 0, rewind=True).messages()) as messages:
        waiting = await begun(server, messages)
        server.deliver(1, 6)
        assert await waiting == [6]
        server.status("409", "Consumer Deleted")
        assert await take(messages, 1) == ["Begun"]
    assert server.starts == [1, 1]


async def test_more_is_asked_for_when_half_is_used(server: FakeServer) -> None:
    async with aclosing(open_follower(server).messages()) as messages:
        waiting = await begun(server, messages)
        for number in range(1, WINDOW + 1):
            server.deliver(number, number)
        assert await waiting == [1]
        assert await take(messages, WINDOW - 1) == list(range(2, WINDOW + 1))
        assert server.asked[:2] == [WINDOW, WINDOW // 2]


async def test_a_request_that_ran_out_is_made_again(server: FakeServer) -> None:
    async with aclosing(open_follower(server).messages()) as messages:
        waiting = await begun(server, messages)
        server.requested.clear()
        server.status("408", "Request Timeout", Nats_Pending_Messages=str(WINDOW))
        await server.requested.wait()
        server.deliver(1, 5)
        assert await waiting == [5]
    assert server.asked == [WINDOW, WINDOW]
    assert len(server.created) == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("404", "No Messages"),
        ("408", "Request Timeout"),
        ("408", "Interest Expired"),
        ("409", "Batch Completed"),
        ("409", "Message Size Exceeds MaxBytes"),
    ],
)
async def test_the_end_of_a_pull_is_no_loss(server: FakeServer, code: str, words: str) -> None:
    async with aclosing(open_follower(server, rewind=True).messages()) as messages:
        waiting = await begun(server, messages)
        server.deliver(1, 5, pending=3)
        assert await waiting == [5]
        server.requested.clear()
        waiting = asyncio.create_task(take(messages, 1))
        server.status(code, words, Nats_Pending_Messages=str(WINDOW - 1))
        await server.requested.wait()
        server.deliver(2, 6, pending=2)
        assert await waiting == [6]
    assert server.asked == [WINDOW, WINDOW]
    assert len(server.created) == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("400", "Bad Request - x"),
        ("409", "Consumer Deleted"),
        ("409", "Consumer is push based"),
        ("409", "Exceeded MaxRequestBatch of 5"),
        ("409", "Exceeded MaxRequestMaxBytes of 5"),
        ("409", "Exceeded MaxWaiting"),
        ("409", "Leadership Change"),
        ("409", "Server Shutdown"),
        ("409", "what no server says yet"),
        ("412", "Required Api Level"),
        ("423", "Nats-Wrong-Pin-Id"),
        ("499", ""),
    ],
)
def test_what_is_no_end_of_a_pull_is_a_loss(code: str, words: str) -> None:
    assert meaning(code, words) == "lost"


async def test_a_message_larger_than_every_pull_is_fetched_alone(server: FakeServer) -> None:
    async with aclosing(open_follower(server).messages()) as messages:
        waiting = await begun(server, messages)
        for _ in range(2):
            server.requested.clear()
            server.status("409", "Message Size Exceeds MaxBytes", Nats_Pending_Messages=str(WINDOW))
            await server.requested.wait()
        server.deliver(1, 5)
        assert await waiting == [5]
    assert server.asked == [WINDOW, WINDOW, 1]
    assert len(server.created) == 1


async def test_a_pull_that_ends_without_a_word_is_made_again(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the server does when its bytes are used up to the last one."""
    monkeypatch.setattr(follower_module, "SILENCE_S", 0.01)
    async with aclosing(open_follower(server, rewind=True).messages()) as messages:
        waiting = await begun(server, messages)
        monkeypatch.setattr(follower_module, "SILENCE_S", 10.0)
        while len(server.asked) < 2:
            await asyncio.sleep(0)
        server.deliver(1, 5)
        assert await waiting == [5]
    assert server.asked == [WINDOW, WINDOW]
    assert len(server.created) == 1


async def test_a_feed_that_rewinds_again_and_again_pauses_longer_and_says_so(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await real_sleep(0)

    structlog.reset_defaults()  # another test may have had warnings left out
    monkeypatch.setattr(follower_module, "PAUSE_S", 0.5)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    server.pending = 9
    with capture_logs() as logs:
        async with aclosing(open_follower(server, rewind=True).messages()) as messages:
            for _ in range(8):
                waiting = await begun(server, messages)
                server.deliver(1, 5, pending=8)
                assert await waiting == [5]
                server.status("409", "Consumer Deleted")
            waiting = await begun(server, messages)
            server.deliver(1, 5, pending=0)
            assert await waiting == [5], "it is through"
            server.status("409", "Consumer Deleted")
            assert await take(messages, 1) == ["Begun"]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 0.5]
    said = [line for line in logs if line["log_level"] == "warning"]
    assert [line["losses"] for line in said] == [2, 3, 4, 5, 6, 7, 8]
    assert said[0]["problem"] == "409 Consumer Deleted" and said[0]["position"] == 6


async def test_a_consumer_that_is_not_known_everywhere_yet_is_asked_again(server: FakeServer) -> None:
    async with aclosing(open_follower(server).messages()) as messages:
        waiting = await begun(server, messages)
        server.requested.clear()
        server.status("503")
        await server.requested.wait()
        server.deliver(1, 5)
        assert await waiting == [5]
    assert len(server.created) == 1


async def test_a_heartbeat_tells_that_what_was_expected_will_not_come(server: FakeServer) -> None:
    server.pending = 3
    async with aclosing(open_follower(server).messages()) as messages:
        waiting = await begun(server, messages)
        server.deliver(1, 5, pending=2)
        assert await waiting == [5]
        server.status("100", "Idle Heartbeat")
        assert await take(messages, 1) == ["Idle"]
        server.status("100", "Idle Heartbeat")
        server.deliver(2, 6)
        assert await take(messages, 1) == [6], "it is said once"


async def test_a_feed_that_fell_behind_what_is_kept_says_so(server: FakeServer) -> None:
    def check(start: int, oldest: int) -> None:
        if start < oldest:
            raise Trimmed("s", start, oldest)

    async with aclosing(open_follower(server, 1, check=check).messages()) as messages:
        waiting = await begun(server, messages)
        server.deliver(1, 1)
        assert await waiting == [1]
        server.oldest = 50
        server.status("408", "Request Timeout", Nats_Pending_Messages=str(WINDOW))
        with pytest.raises(Trimmed):
            await take(messages, 1)


async def test_a_closed_store_ends_a_feed(server: FakeServer) -> None:
    async with aclosing(open_follower(server).messages()) as messages:
        waiting = await begun(server, messages)
        server.closed = True
        for lose in tuple(server.lost):
            lose()
        with pytest.raises(StoreUnavailable):
            await waiting
    assert not server.lost
