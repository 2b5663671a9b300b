"""Connections that are cut pass nothing, lose nothing, and are dialled again only when the cut is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tocsin.runtime.faults import partition_socket as cut_socket
from tocsin.runtime.faults.partition import CuttableLoop, Valve
from tocsin.runtime.faults.partition_socket import CutRefused, ask, serving, socket_path
from tocsin.runtime.faults.weather import CALM, HELD_HIGH_BYTES, Weather

LONG_S = 500.0
DEADLINE_S = 20.0


class Peer(asyncio.Protocol):
    """What one side of a connection hears."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.heard = b""
        self.over = False
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, error: Exception | None) -> None:
        self.over = True

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


class Pair:
    """A client behind a valve, and the server's side of it."""

    def __init__(self, loop: CuttableLoop) -> None:
        self.loop = loop
        self.client = Peer()
        self.accepted: list[Peer] = []
        self.address = ("127.0.0.1", 0)
        self.listening: Any = None  # uvloop's server is none of asyncio's by type

    @property
    def server(self) -> Peer:
        return self.accepted[-1]

    async def open(self) -> None:
        def accept() -> Peer:
            self.accepted.append(Peer())
            return self.accepted[-1]

        self.listening = await self.loop.create_server(accept, "127.0.0.1", 0)
        self.address = ("127.0.0.1", self.listening.sockets[0].getsockname()[1])
        transport, protocol = await self.dial()
        assert isinstance(transport, Valve) and protocol is self.client
        await until(lambda: bool(self.accepted) and self.server.transport is not None)

    async def close(self) -> None:
        """A loop that is closed with connections on it hangs where warnings are errors."""
        self.loop.cuts.heal()
        self.listening.close()
        for peer in (self.client, *self.accepted):
            peer.transport.abort()
        await until(lambda: all(peer.over for peer in (self.client, *self.accepted)))

    async def dial(self) -> tuple[Any, Any]:
        return await self.loop.create_connection(lambda: self.client, *self.address)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def pass_some_time() -> None:
    """Enough for anything on loopback to arrive that is going to."""
    await asyncio.sleep(0.05)


def later(seconds: float = LONG_S) -> float:
    return time.monotonic() + seconds


def run(story: Callable[[Pair], Awaitable[None]]) -> None:
    async def told() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CuttableLoop)
        pair = Pair(loop)
        await pair.open()
        try:
            await story(pair)
        finally:
            await pair.close()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=CuttableLoop) as runner:
        runner.run(told())


def test_data_written_under_a_cut_arrives_in_order_when_healed() -> None:
    async def story(pair: Pair) -> None:
        pair.client.transport.write(b"1")
        await until(lambda: pair.server.heard == b"1")
        assert pair.loop.cuts.cut([pair.address], LONG_S) == 1
        pair.client.transport.write(b"2")
        pair.client.transport.writelines([b"3", b"4"])
        await pass_some_time()
        assert pair.server.heard == b"1" and pair.client.transport.get_write_buffer_size() == 3
        pair.loop.cuts.heal()
        pair.client.transport.write(b"5")
        await until(lambda: pair.server.heard == b"12345")

    run(story)


def test_data_the_peer_sends_under_a_cut_is_read_when_healed() -> None:
    async def story(pair: Pair) -> None:
        pair.loop.cuts.cut([pair.address], LONG_S)
        pair.server.transport.write(b"news")
        pair.client.transport.resume_reading()  # as a program does that has caught up
        await pass_some_time()
        assert pair.client.heard == b""
        pair.loop.cuts.heal(pair.address)
        await until(lambda: pair.client.heard == b"news")

    run(story)


def test_a_reader_that_had_paused_is_not_woken_by_the_healing() -> None:
    async def story(pair: Pair) -> None:
        pair.client.transport.pause_reading()
        pair.loop.cuts.cut([pair.address], LONG_S)
        pair.server.transport.write(b"news")
        pair.loop.cuts.heal()
        await pass_some_time()
        assert pair.client.heard == b"" and not pair.client.transport.is_reading()
        pair.client.transport.resume_reading()
        await until(lambda: pair.client.heard == b"news")

    run(story)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_connection_closed_under_a_cut_ends_here_first(how: str) -> None:
    async def story(pair: Pair) -> None:
        pair.loop.cuts.cut([pair.address], LONG_S)
        pair.client.transport.write(b"last words")
        getattr(pair.client.transport, how)()
        await until(lambda: pair.client.over)
        assert pair.client.transport.is_closing()
        await pass_some_time()
        assert not pair.server.over
        pair.loop.cuts.heal()
        await until(lambda: pair.server.over)
        assert pair.server.heard == (b"last words" if how == "close" else b"")

    run(story)


def test_whoever_dials_under_a_cut_waits() -> None:
    async def story(pair: Pair) -> None:
        pair.loop.cuts.cut([pair.address], LONG_S)
        first = pair.client
        pair.client = Peer()
        dialling = asyncio.create_task(pair.dial())
        await pass_some_time()
        assert not dialling.done() and len(pair.accepted) == 1
        pair.loop.cuts.heal()
        async with asyncio.timeout(DEADLINE_S):
            await dialling
        await until(lambda: len(pair.accepted) == 2)
        first.transport.abort()

    run(story)


def test_a_cut_ends_by_itself_and_the_longer_one_counts() -> None:
    async def story(pair: Pair) -> None:
        cuts = pair.loop.cuts
        cuts.cut([pair.address], 0.01)
        pair.client.transport.write(b"a")
        await until(lambda: pair.server.heard == b"a")
        cuts.cut([pair.address], LONG_S)
        cuts.cut([pair.address], 0.01)
        await pass_some_time()
        assert cuts.is_cut(pair.address)

    run(story)


def test_a_writer_that_holds_too_much_is_paused_until_the_healing() -> None:
    async def story(pair: Pair) -> None:
        pair.loop.cuts.cut([pair.address], LONG_S)
        pair.client.transport.write(b"x" * (HELD_HIGH_BYTES + 1))
        assert pair.client.paused
        pair.loop.cuts.heal()
        await until(lambda: len(pair.server.heard) == HELD_HIGH_BYTES + 1 and not pair.client.paused)

    run(story)


def test_other_addresses_go_on() -> None:
    async def story(pair: Pair) -> None:
        assert pair.loop.cuts.cut([("127.0.0.1", 1)], LONG_S) == 0
        pair.client.transport.write(b"1")
        await until(lambda: pair.server.heard == b"1")

    run(story)


# ── the socket ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_process_cuts_and_heals_as_it_is_asked(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        path = socket_path(tmp_path, "broker/north-1")
        async with serving(tmp_path, "broker/north-1"):
            assert path.name == "broker-north-1.sock"
            assert await ask(path, [pair.address], later()) == 1
            assert pair.loop.cuts.is_cut(pair.address)
            await ask(path, [], 0.0)
            assert not pair.loop.cuts.is_cut(pair.address)
            for late in (later(-1.0), later(601.0)):
                with pytest.raises(CutRefused, match="at most 600 s"):
                    await ask(path, [pair.address], late)
            await ask(path, [pair.address], later())
        assert not path.exists() and not pair.loop.cuts.is_cut(pair.address), "it heals when it ends"
        with pytest.raises(CutRefused, match=r"chaos\.enabled"):
            await ask(path, [], 0.0)

    run(story)


@pytest.mark.parametrize(
    "line",
    [b"\n", b"{}\n", b"hello\n", b'{"cut": [["a", 1]], "x": 1}\n', b'{"cut": 7}\n', b'{"v":2,"cut":[]}\n'],
)
def test_nonsense_is_refused_and_changes_nothing(tmp_path: Path, line: bytes) -> None:
    async def story(pair: Pair) -> None:
        async with serving(tmp_path, "b"):
            reader, writer = await asyncio.open_unix_connection(socket_path(tmp_path, "b"))
            writer.write(line)
            assert b"problem" in await reader.readline()
            writer.close()
            assert not pair.loop.cuts.is_cut(pair.address)
            assert await ask(socket_path(tmp_path, "b"), [pair.address], later()) == 1, "others are served"

    run(story)


def test_a_line_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_socket, "LINE_MAX_BYTES", 100)

    async def story(pair: Pair) -> None:
        async with serving(tmp_path, "b"):
            reader, writer = await asyncio.open_unix_connection(socket_path(tmp_path, "b"))
            writer.write(b"x" * 10_000 + b"\n")
            assert await reader.read() == b""
            writer.close()

    run(story)


def test_a_path_that_is_too_long_costs_partitions_only(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        deep = tmp_path / ("x" * 120)
        deep.mkdir()
        async with serving(deep, "b"):
            assert not socket_path(deep, "b").exists()

    run(story)


async def test_on_any_other_loop_there_is_no_socket(tmp_path: Path) -> None:
    async with serving(tmp_path, "b"):
        assert not (tmp_path / cut_socket.DIRECTORY).exists()


# ── weather ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_lag_delays_both_directions_and_keeps_their_order() -> None:
    async def story(pair: Pair) -> None:
        assert pair.loop.cuts.trouble([pair.address], Weather(lag_s=0.2), LONG_S) == 1
        began_s = time.monotonic()
        pair.client.transport.write(b"1")
        pair.client.transport.writelines([b"2", b"3"])
        pair.server.transport.write(b"news")
        await pass_some_time()
        assert pair.server.heard == b"" and pair.client.heard == b""
        await until(lambda: pair.server.heard == b"123" and pair.client.heard == b"news")
        assert time.monotonic() - began_s >= 0.2

    run(story)


def test_what_is_under_way_when_lag_ends_arrives_in_order() -> None:
    async def story(pair: Pair) -> None:
        cuts = pair.loop.cuts
        cuts.trouble([pair.address], Weather(lag_s=0.2), LONG_S)
        pair.client.transport.write(b"1")
        cuts.heal()
        pair.client.transport.write(b"2")
        await until(lambda: pair.server.heard == b"12")
        assert cuts.weather(pair.address) == CALM

    run(story)


def test_a_narrow_connection_asks_its_writer_to_pause() -> None:
    async def story(pair: Pair) -> None:
        weather = Weather(rate=1_000_000)
        pair.loop.cuts.trouble([pair.address], weather, LONG_S)
        pair.client.transport.write(b"x" * (2 * HELD_HIGH_BYTES))
        assert pair.client.paused and pair.client.transport.get_write_buffer_size() > HELD_HIGH_BYTES
        await until(lambda: len(pair.server.heard) == 2 * HELD_HIGH_BYTES and not pair.client.paused)

    run(story)


def test_a_narrow_connection_stops_reading_what_it_cannot_carry() -> None:
    async def story(pair: Pair) -> None:
        pair.loop.cuts.trouble([pair.address], Weather(rate=1_000_000), LONG_S)
        pair.server.transport.write(b"x" * (8 * HELD_HIGH_BYTES))
        await until(lambda: not pair.client.transport.real.is_reading())
        await until(lambda: len(pair.client.heard) == 8 * HELD_HIGH_BYTES)

    run(story)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_connection_closed_in_lag_ends_behind_its_last_words(how: str) -> None:
    async def story(pair: Pair) -> None:
        pair.loop.cuts.trouble([pair.address], Weather(lag_s=0.2), LONG_S)
        pair.client.transport.write(b"last words")
        getattr(pair.client.transport, how)()
        await until(lambda: pair.client.over)
        await until(lambda: pair.server.over)
        assert pair.server.heard == (b"last words" if how == "close" else b"")

    run(story)


def test_what_the_peer_said_before_it_closed_is_read_first() -> None:
    async def story(pair: Pair) -> None:
        pair.loop.cuts.trouble([pair.address], Weather(lag_s=0.2), LONG_S)
        pair.server.transport.write(b"last words")
        pair.server.transport.close()
        await until(lambda: pair.server.over)
        assert not pair.client.over
        await until(lambda: pair.client.over)
        assert pair.client.heard == b"last words"

    run(story)


def test_a_cut_holds_what_is_under_way_in_lag() -> None:
    async def story(pair: Pair) -> None:
        cuts = pair.loop.cuts
        cuts.trouble([pair.address], Weather(lag_s=0.02), LONG_S)
        pair.client.transport.write(b"1")
        cuts.cut([pair.address], LONG_S)
        pair.client.transport.write(b"2")
        await pass_some_time()
        assert pair.server.heard == b""
        cuts.heal()
        await until(lambda: pair.server.heard == b"12")

    run(story)


def test_a_reader_that_pauses_in_lag_hears_nothing_until_it_resumes() -> None:
    async def story(pair: Pair) -> None:
        pair.loop.cuts.trouble([pair.address], Weather(lag_s=0.02), LONG_S)
        pair.server.transport.write(b"news")
        pair.client.transport.pause_reading()
        await pass_some_time()
        assert pair.client.heard == b""
        pair.client.transport.resume_reading()
        await until(lambda: pair.client.heard == b"news")

    run(story)


def test_weather_ends_by_itself_and_another_goes_on() -> None:
    async def story(pair: Pair) -> None:
        cuts, address = pair.loop.cuts, pair.address
        cuts.trouble([address], Weather(lag_s=0.02), 0.01)
        cuts.trouble([address], Weather(loss=0.25), LONG_S)
        await until(lambda: cuts.weather(address) == Weather(loss=0.25))

    run(story)


def test_a_process_has_weather_as_it_is_asked(tmp_path: Path) -> None:
    async def story(pair: Pair) -> None:
        path = socket_path(tmp_path, "broker/north-1")
        async with serving(tmp_path, "broker/north-1"):
            weather = Weather(lag_s=0.01, loss=0.5, rate=1_000)
            assert await ask(path, [pair.address], later(), weather) == 1
            assert pair.loop.cuts.weather(pair.address) == weather
            with pytest.raises(CutRefused, match="a loss is at most 50%"):
                await ask(path, [pair.address], later(), Weather(loss=0.9))
            await ask(path, (), 0.0)
            assert pair.loop.cuts.weather(pair.address) == CALM

    run(story)
