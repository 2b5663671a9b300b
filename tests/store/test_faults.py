"""A real server that dies, falls silent or is not there: what was acknowledged stays, once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.store.writing import FACTS, Writers, connected, everything
from tocsin.errors import DeadlineExceeded, OutcomeUnknown, Refused, StoreUnavailable, TocsinError
from tocsin.ports import BusMessage, Cell, Record, TableSpec
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.testing import LocalServers

# ── death ────────────────────────────────────────────────────────────────────────────────────────────────────


async def kill_and_restart(directory: Path, kills: int) -> None:
    with LocalServers(directory) as servers:
        async with connected(servers) as store:
            log = await store.log(FACTS)
            async with Writers(log, 4) as writers:
                for _ in range(kills):
                    await writers.progress(500)
                    servers.kill("store-1")
                    servers.start("store-1")
                await writers.progress(500)
            assert store.statistics().reconnects >= kills
            await writers.check()


async def test_what_was_acknowledged_survives_a_kill_in_the_middle_of_appends(tmp_path: Path) -> None:
    await kill_and_restart(tmp_path, 2)


@pytest.mark.slow
async def test_what_was_acknowledged_survives_many_kills(tmp_path: Path) -> None:
    await kill_and_restart(tmp_path, 25)


async def test_conditional_writes_happen_once_although_the_server_dies_under_them(tmp_path: Path) -> None:
    with LocalServers(tmp_path) as servers:
        async with connected(servers) as store:
            table = await store.table(TableSpec("counters"))
            known = dict.fromkeys((f"k{number}" for number in range(80)), 0)
            written = dict.fromkeys(known, 0)
            over = asyncio.Event()

            async def count(key: str) -> None:
                while not over.is_set():
                    value = str(written[key] + 1).encode()
                    known[key] = await table.compare_and_set(key, value, revision=known[key])
                    written[key] += 1

            tasks = [asyncio.create_task(count(key)) for key in known]
            for _ in range(3):
                before = sum(written.values())
                async with asyncio.timeout(60):
                    while sum(written.values()) < before + 800:
                        await asyncio.sleep(0.01)
                servers.kill("store-1")
                servers.start("store-1")
            over.set()
            async with asyncio.timeout(60):
                await asyncio.gather(*tasks)
            for key, count_of in written.items():
                assert await table.get(key) == Cell(key, str(count_of).encode(), known[key])


async def test_followers_watchers_and_the_bus_ride_out_a_restart(tmp_path: Path) -> None:
    with LocalServers(tmp_path) as servers:
        async with connected(servers) as store:
            log = await store.log(FACTS)
            table = await store.table(TableSpec("settings"))
            await table.put("kept", b"1")
            seen: list[int] = []
            known: dict[str, bytes] = {}
            resets = 0
            heard = asyncio.Event()

            async def follow() -> None:
                async for entry in log.follow("facts.>", 0):
                    seen.append(entry.position)

            async def watch() -> None:
                nonlocal resets
                async for change in table.watch():
                    if change.kind == "reset":
                        resets += 1
                        known.clear()
                    elif change.kind == "put":
                        known[change.key] = change.value

            async def listen() -> None:
                async with store.bus.subscribe("greetings") as messages:
                    async for message in messages:
                        if message.payload == b"after":
                            heard.set()

            tasks = [asyncio.create_task(each()) for each in (follow, watch, listen)]
            async with Writers(log, 2) as writers:
                for _ in range(2):
                    await writers.progress(300)
                    servers.kill("store-1")
                    servers.start("store-1")
                await writers.progress(300)
            await table.put("new", b"2")
            last = await log.last()

            async def caught_up() -> None:
                while not (seen and seen[-1] == last and known.get("new") and heard.is_set()):
                    await store.bus.publish("greetings", b"after")
                    await asyncio.sleep(0.02)

            async with asyncio.timeout(30):
                await caught_up()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert seen == list(range(1, last + 1)), "a follower missed or repeated something"
            assert known == {"kept": b"1", "new": b"2"}
            assert resets >= 2


async def test_a_watch_is_ready_although_what_it_waited_for_was_removed(servers: LocalServers) -> None:
    async with connected(servers) as store:
        table = await store.table(TableSpec("shrinking"))
        for prefix in ("a", "z"):
            for at in range(0, 1_200, 100):
                await asyncio.gather(*(table.put(f"{prefix}.{at + i}", b"") for i in range(100)))
        async with aclosing(table.watch()) as changes:  # type: ignore[type-var]
            kinds = [(await anext(changes)).kind for _ in range(20)]
            stream = await store.stream("KV_shrinking")
            await stream.api("remove", "STREAM.PURGE", {"filter": "$KV.shrinking.z.>"})
            async with asyncio.timeout(30):
                while kinds[-1] != "ready":
                    kinds.append((await anext(changes)).kind)
        assert 1_200 <= kinds.count("put") < 2_400
        assert kinds.count("reset") == 1


async def test_keys_that_are_written_meanwhile_are_not_missed(servers: LocalServers) -> None:
    async with connected(servers) as store:
        table = await store.table(TableSpec("moving"))
        names = {f"k{i}" for i in range(1_500)}
        for at in range(0, 1_500, 100):
            await asyncio.gather(*(table.put(f"k{at + i}", b"") for i in range(100)))
        looking = asyncio.create_task(table.keys())
        for at in range(0, 1_500, 100):
            await asyncio.gather(*(table.put(f"k{1_499 - at - i}", b"") for i in range(100)))
        assert set(await looking) == names


# ── silence ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_server_that_falls_silent_costs_no_more_than_the_deadline(tmp_path: Path) -> None:
    with LocalServers(tmp_path) as servers:
        async with connected(servers, deadline_s=1.0) as store:
            log = await store.log(FACTS)
            await log.append([Record("facts.a", b"", "1")])
            servers.pause("store-1")
            with pytest.raises(OutcomeUnknown):
                await log.append([Record("facts.a", b"", "2"), Record("facts.a", b"", "3")])
            with pytest.raises(StoreUnavailable):
                await log.read("facts.a", 0)
            servers.resume("store-1")

            async def settled() -> tuple[int, ...]:
                while True:
                    try:
                        return await log.append([Record("facts.a", b"", "2"), Record("facts.a", b"", "3")])
                    except TocsinError as error:
                        assert error.retryable

            async with asyncio.timeout(30):
                assert await settled() == (2, 3), (
                    "the same ids are applied once, whatever became of the first"
                )
            assert [entry.id for entry in await everything(log)] == ["1", "2", "3"]


async def test_without_a_server_every_call_ends_in_words(tmp_path: Path) -> None:
    with LocalServers(tmp_path) as servers:
        async with connected(servers, deadline_s=0.5) as store:
            log = await store.log(FACTS)
            table = await store.table(TableSpec("t"))
            servers.kill("store-1")
            for call in (
                log.append([Record("facts.a", b"", "1")]),
                log.read("facts.a", 0),
                log.last(),
                table.put("a", b""),
                table.get("a"),
                store.log(FACTS),
            ):
                with pytest.raises((StoreUnavailable, OutcomeUnknown)):
                    await call
            with pytest.raises(StoreUnavailable):
                await store.bus.publish("greetings", b"")
            assert not store.statistics().connected


async def test_who_waits_for_an_answer_learns_of_a_lost_connection_at_once(tmp_path: Path) -> None:
    async def never(delivery: BusMessage) -> bytes:
        await asyncio.Event().wait()
        return b""

    with LocalServers(tmp_path) as servers:
        async with connected(servers) as store, store.bus.serve("silence", never):
            asking = asyncio.create_task(store.bus.request("silence", b"", deadline_s=120))
            await asyncio.wait([asking], timeout=0.2)
            servers.kill("store-1")
            with pytest.raises(DeadlineExceeded):
                async with asyncio.timeout(20):
                    await asking


async def test_a_connection_that_is_refused_says_why(tmp_path: Path) -> None:
    with LocalServers(tmp_path) as servers:
        async with connected(servers):
            pass
        with pytest.raises(Refused, match="token"):
            await JetStreamStore.connect(servers.urls, token="wrong", deadline_s=20)
    with pytest.raises(StoreUnavailable):
        await JetStreamStore.connect(servers.urls, token=servers.token, deadline_s=0.5)


# ── durability ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_append_is_forced_to_the_disk(
    tmp_path: Path, debian_program: Callable[[str, str], str]
) -> None:
    strace = debian_program("strace", "strace")
    trace = tmp_path / "trace"
    wrapper = (strace, "-f", "-qq", "-e", "trace=fsync,fdatasync,openat,pwrite64,write", "-o", str(trace))
    with LocalServers(tmp_path, wrapper=wrapper) as servers:
        try:
            async with connected(servers, deadline_s=20) as store:
                log = await store.log(FACTS)
                await log.append([Record("facts.a", b"", "first")])
                before = forced(trace)
                for i in range(20):
                    await log.append([Record("facts.a", b"", str(i))])
                assert forced(trace) - before >= 20
        except StoreUnavailable:
            if "ptrace" in servers.output("store-1"):
                pytest.skip("tracing is not allowed here, so the calls of the server cannot be seen")
            raise


def forced(trace: Path) -> int:
    """How often data was forced to the disk."""
    text = trace.read_text("utf-8", "replace")
    return text.count("fsync(") + text.count("fdatasync(")


async def test_a_follower_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    with LocalServers(tmp_path) as servers:
        async with connected(servers) as store:
            log = await store.log(FACTS)
            await log.append([Record("facts.a", b"", "1")])
            async with aclosing(log.follow("facts.a", 0)) as entries:  # type: ignore[type-var]
                assert (await anext(entries)).position == 1
            opened = await store.stream("facts")

            async with asyncio.timeout(20):
                while True:
                    answer = await opened.api("count consumers", "STREAM.INFO", {})
                    if not answer["state"]["consumer_count"]:
                        break
