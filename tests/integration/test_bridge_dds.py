"""``tocsin bridge dds`` between two local networks of DDS endpoints and a real network of brokers, with kills.

Each domain is a local network: endpoints of two domains know nothing of each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.narrow import Narrow, free_port
from tests.integration.running import Heard, up
from tocsin.client import AsyncClient

dds = pytest.importorskip("tests.integration.dds", reason="cyclonedds has no wheel for this Python")
dust = pytest.importorskip("tests.integration.dust", reason="dust_dds has no wheel for this Python")

DEADLINE_S = 40.0
BROKERS = json.dumps([{"id": f"{each}-1", "cluster": each} for each in ("north", "south")])
FIRST_DOMAIN = 10 + os.getpid() % 50 * 4  # of this process: others test at the same time


OWN_DOMAIN = FIRST_DOMAIN + 2  # of the bridge that the network runs itself
OWN = json.dumps(
    [{"name": "own", "broker": "north-1", "domain": OWN_DOMAIN, "prefix": "own", "payload": "json"}]
)


@pytest.fixture(scope="module")
def ready() -> Iterator[dict[str, Any]]:
    with up("--set", f"brokers={BROKERS}", "--set", f"bridges={OWN}") as network:
        yield network


class BridgeProcess:
    """``tocsin bridge dds``: started, killed, started again."""

    def __init__(self, server: str, domain: int, name: str, log: Path, *options: str) -> None:
        self._command = [
            sys.executable,
            "-P",
            "-m",
            "tocsin",
            "bridge",
            "dds",
            "--at",
            server,
            "--name",
            name,
        ]
        self._command += ["--domain", str(domain), *options]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(how)
        return self._process.wait(20)

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


Bridges = Callable[..., BridgeProcess]


@pytest.fixture
def bridges(ready: dict[str, Any], tmp_path: Path) -> Iterator[Bridges]:
    made: list[BridgeProcess] = []

    def start(name: str, lan: Any, *options: str, broker: int | None = None) -> BridgeProcess:
        at = ready["brokers"][len(made) % 2 if broker is None else broker]
        server = f"mqtt://{at['host']}:{at['port']}"
        log = tmp_path / f"{name}-{len(made)}.log"
        made.append(BridgeProcess(server, lan.domain, name, log, *options))
        return made[-1]

    yield start
    for each in made:
        each.end(signal.SIGKILL)


@pytest.fixture
def lans() -> Iterator[tuple[Any, Any]]:
    pair = dds.Lan(FIRST_DOMAIN), dds.Lan(FIRST_DOMAIN + 1)
    yield pair
    for each in pair:
        each.close()


async def until(condition: Callable[[], object], *said: BridgeProcess) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.02)
            return
    pytest.fail("\n".join(["not in time", *(each.said[-3_000:] for each in said)]))


class Got:
    """A reader's samples, gathered."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.samples: list[Any] = []
        self.states: list[tuple[str, int]] = []  # keys of instances that are not alive, and their states

    def forget(self) -> None:
        self()
        self.samples.clear()

    def __call__(self) -> list[Any]:
        for each in self.reader.take(N=1_000):
            if each.sample_info.valid_data:
                self.samples.append(each)
            if each.sample_info.instance_state != 16:
                held = each if each.sample_info.valid_data else each.key_sample
                self.states.append((getattr(held, "color", ""), int(each.sample_info.instance_state)))
        return self.samples


async def test_endpoints_find_each_other_and_what_was_kept_comes_first(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    writer = left.writer("Square", dds.Square, dds.KEPT)
    for number in range(5):
        writer.write(dds.Square("red", number, [number] * number))
    running = bridges("left", left), bridges("right", right)
    got = Got(right.reader("Square", dds.Square, dds.KEPT))
    await until(lambda: len(got()) >= 3, *running)
    assert [each.x for each in got.samples] == [2, 3, 4]  # as a late reader of the same network gets them
    assert got.samples[2].path == [4, 4, 4, 4]
    writer.write(dds.Square("blue", 7))
    await until(lambda: got()[-1].x == 7, *running)
    writer.dispose(dds.Square("red", 0))
    await until(lambda: (got(), ("red", 32) in got.states)[1], *running)
    assert [each.end() for each in running] == [0, 0]


async def test_nothing_reliable_is_lost_or_doubled_while_a_broker_is_killed(
    ready: dict[str, Any], lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    running = bridges("left", left, broker=0), bridges("right", right, broker=1)
    writer = left.writer("Line", dds.Line)
    got = Got(right.reader("Line", dds.Line))

    def said() -> set[str]:
        return {each.text for each in got()}

    while "hello" not in said():  # a volatile writer is heard from its match on
        writer.write(dds.Line("hello"))
        await asyncio.sleep(0.1)
    for number in range(400):
        if number == 100:
            os.kill(ready["pids"]["broker/north-1"], signal.SIGKILL)
        writer.write(dds.Line(str(number)))
        await asyncio.sleep(0.005)
    await until(lambda: said() >= set(map(str, range(400))), *running)
    order = [int(each.text) for each in got.samples if each.text != "hello"]
    assert order == sorted(order) and len(order) == 400


async def test_a_hundred_restarts_under_one_name_leave_nothing_stuck(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    got = Got(right.reader("Square", dds.Square))
    for number in range(100):
        program = dds.Lan(left.domain)  # one that is started again, with its participant and writer
        writer = program.writer("Square", dds.Square)
        writer.write(dds.Square("green", number))
        program.close()
    last = left.writer("Square", dds.Square)

    def heard() -> bool:
        last.write(dds.Square("green", 1_000))
        return any(each.x == 1_000 for each in got())

    await until(heard, *running)
    programs = [dds.Lan(left.domain) for _ in range(13)]
    thirteen = [each.writer(f"Many{number}", dds.Line, dds.KEPT) for number, each in enumerate(programs)]
    readers = [Got(right.reader(f"Many{number}", dds.Line, dds.KEPT)) for number in range(13)]
    for number, each in enumerate(thirteen):
        each.write(dds.Line(str(number)))
    await until(lambda: all(each() for each in readers), *running)
    for program in programs:
        program.close()


async def test_best_effort_and_reliable_writers_of_one_topic_each_come_once(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    reliable, other = left.writer("Line", dds.Line), left.writer("Line", dds.Line, dds.BEST_EFFORT)
    got = Got(right.reader("Line", dds.Line, dds.BEST_EFFORT))

    def both() -> bool:
        reliable.write(dds.Line("reliable"))
        other.write(dds.Line("best effort"))
        return {each.text for each in got()} == {"reliable", "best effort"}

    await until(both, *running)
    await asyncio.sleep(0.5)
    got.forget()
    for number in range(50):
        reliable.write(dds.Line(f"r{number}"))
        other.write(dds.Line(f"b{number}"))
        await asyncio.sleep(0.005)
    await until(lambda: len([each for each in got() if each.text[0] == "r"]) >= 50, *running)
    await asyncio.sleep(0.3)
    texts = [each.text for each in got()]
    assert len(texts) == len(set(texts)), "a sample came twice"


async def test_partitions_keep_apart_what_they_keep_apart_in_one_network(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    writers = {
        name: left.writer("Line", dds.Line, dds.KEPT, partition=name) for name in ("hall-1", "hall-2", "")
    }
    one = Got(right.reader("Line", dds.Line, dds.KEPT, partition="hall-1"))
    halls = Got(right.reader("Line", dds.Line, dds.KEPT, partition="hall-*"))
    none = Got(right.reader("Line", dds.Line, dds.KEPT))
    for name, writer in writers.items():
        writer.write(dds.Line(name))
    await until(lambda: one() and len(halls()) >= 2 and none(), *running)
    await asyncio.sleep(0.5)
    assert [each.text for each in one()] == ["hall-1"]
    assert sorted(each.text for each in halls()) == ["hall-1", "hall-2"]
    assert [each.text for each in none()] == [""]


@pytest.fixture
async def client(ready: dict[str, Any]) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"mqtt://{ready['brokers'][1]['host']}:{ready['brokers'][1]['port']}") as client:
        yield client


async def test_mqtt_clients_read_and_write_json(
    lans: tuple[Any, Any], bridges: Bridges, client: AsyncClient
) -> None:
    left, _ = lans
    running = bridges("json", left, "--payload", "json", "--prefix", "plant/dds", "--deny", "Secret*")
    inbox = await client.subscribe("plant/dds/#", qos=1)
    writer, secret = (
        left.writer("Square", dds.Square, dds.KEPT),
        left.writer("SecretSquare", dds.Square, dds.KEPT),
    )
    secret.write(dds.Square("black", 1))
    writer.write(dds.Square("red", 3, [1, 2]))
    message = await inbox.get(DEADLINE_S)
    while message.topic != "plant/dds/Square":
        assert "$" in message.topic
        message = await inbox.get(DEADLINE_S)
    assert message.json() == {"color": "red", "x": 3, "path": [1, 2]}
    assert message.content_type == "application/json"
    got = Got(left.reader("Command", dds.Square, dds.KEPT))
    async with client.wanted("plant/dds/Command") as demand, asyncio.timeout(DEADLINE_S):
        while not await demand.get():  # until the bridge has found the reader, and subscribed
            pass
    await client.publish("plant/dds/Command", b'{"color":"green","x":9}', qos=1)
    await until(lambda: got(), running)
    assert (got.samples[0].color, got.samples[0].x, list(got.samples[0].path)) == ("green", 9, [])
    for wrong in (b'{"colour":"green"}', b'{"x":"nine"}', b"[1]", b"{", b"\0"):
        await client.publish("plant/dds/Command", wrong, qos=1)
    await client.publish("plant/dds/Command", b'{"color":"blue"}', qos=1)
    await until(lambda: len(got()) >= 2, running)
    assert [each.color for each in got.samples] == ["green", "blue"]
    assert running.end() == 0
    assert "has no field 'colour'" in running.said


async def test_of_three_bridges_in_one_domain_one_works_and_another_follows(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    first, second = bridges("a", left), bridges("b", left)
    third, far = bridges("c", left), bridges("far", right)
    writer = left.writer("Line", dds.Line)
    got = Got(right.reader("Line", dds.Line))

    def heard(text: str) -> Callable[[], bool]:
        def look() -> bool:
            writer.write(dds.Line(text))
            return any(each.text == text for each in got())

        return look

    await until(heard("first"), first, far)
    await until(
        lambda: "another bridge works" in second.said and "another bridge works" in third.said, second
    )
    await asyncio.sleep(0.5)
    got.forget()
    for number in range(30):
        writer.write(dds.Line(str(number)))
    await until(lambda: len(got()) >= 30, first, far)
    await asyncio.sleep(0.5)
    assert [each.text for each in got()] == [str(number) for number in range(30)], "once each, in order"
    first.end()
    await until(heard("second"), second, far)
    assert "this bridge works in its domain now" in second.said


async def test_what_nobody_wants_is_not_read(
    lans: tuple[Any, Any], bridges: Bridges, client: AsyncClient
) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    wanted, unwanted = left.writer("Wanted", dds.Line, dds.KEPT), left.writer("Unwanted", dds.Line, dds.KEPT)
    wanted.write(dds.Line("wanted"))
    unwanted.write(dds.Line("unwanted"))
    got = Got(right.reader("Wanted", dds.Line, dds.KEPT))
    await until(lambda: got(), *running)
    assert left.matched(wanted) and not left.matched(unwanted)
    inbox = await client.subscribe("dds/Unwanted", qos=1)
    assert b"unwanted" in (await inbox.get(DEADLINE_S)).payload
    assert left.matched(unwanted)


async def test_liveliness_unregistration_and_source_time_cross(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    reader = right.reader("Square", dds.Square, dds.asserted(1.0))
    got = Got(reader)
    writer = left.writer("Square", dds.Square, dds.asserted(1.0))

    time_ns = 1_700_000_000_000_000_000

    def written() -> bool:
        writer.write(dds.Square("red", 1), timestamp=time_ns + len(got()))
        return bool(got()) and right.alive(reader) == 1

    await until(written, *running)
    assert got.samples[0].sample_info.source_timestamp == time_ns
    await until(lambda: right.alive(reader) == 0, *running)  # it asserts nothing for longer than its lease
    await until(written, *running)
    writer.unregister_instance(dds.Square("red", 0))
    await until(lambda: (got(), ("red", 64) in got.states)[1], *running)
    left.end(writer)
    await until(lambda: not reader.get_matched_publications(), *running)


@pytest.mark.slow  # the quick case: each exclusive owner has a mirror of its own (unit)
async def test_the_strongest_owner_is_heard_alone_until_it_is_gone(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    got = Got(right.reader("Square", dds.Square, dds.owned()))
    weak, strong = (left.writer("Square", dds.Square, dds.owned(strength)) for strength in (1, 7))

    def last(x: int) -> Callable[[], bool]:
        def look() -> bool:
            weak.write(dds.Square("red", 1))
            if x == 7:
                strong.write(dds.Square("red", 7))
            return bool(got()) and got.samples[-1].x == x

        return look

    await until(last(7), *running)
    await until(lambda: left.matched(weak) and left.matched(strong), *running)
    await asyncio.sleep(0.3)
    got.forget()
    for _ in range(20):
        weak.write(dds.Square("red", 1))
        strong.write(dds.Square("red", 7))
    await until(lambda: len(got()) >= 20, *running)
    assert {each.x for each in got()} == {7}
    left.end(strong)
    await until(last(1), *running)


async def test_a_second_late_reader_gets_what_two_writers_kept(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    first, second = left.writer("Square", dds.Square, dds.KEPT), left.writer("Square", dds.Square, dds.KEPT)
    first.write(dds.Square("red", 1))
    second.write(dds.Square("blue", 2))
    volatile = Got(right.reader("Square", dds.Square))
    readers = [Got(right.reader("Square", dds.Square, dds.KEPT))]
    await until(lambda: len(readers[0]()) >= 2, *running)
    late = right.reader("Square", dds.Square, dds.KEPT)  # of the same program
    other = dds.Lan(right.domain)  # and of another one
    readers += [Got(late), Got(other.reader("Square", dds.Square, dds.KEPT))]
    await until(lambda: all(len(each()) >= 2 for each in readers), *running)
    left.end(first)
    second.write(dds.Square("blue", 3))
    await until(lambda: all(each()[-1].x == 3 for each in (*readers, volatile)), *running)
    for each in readers:
        assert sorted((one.color, one.x) for one in each.samples) == [("blue", 2), ("blue", 3), ("red", 1)]
    other.close()


@pytest.mark.slow  # the will of a bridge comes after ten seconds
async def test_a_bridge_that_is_killed_takes_its_writers_with_it(
    lans: tuple[Any, Any], bridges: Bridges
) -> None:
    left, right = lans
    near, far = bridges("near", left), bridges("far", right)
    reader = right.reader("Line", dds.Line)
    got = Got(reader)
    writer = left.writer("Line", dds.Line)

    def heard(text: str) -> Callable[[], bool]:
        def look() -> bool:
            writer.write(dds.Line(text))
            return any(each.text == text for each in got())

        return look

    await until(heard("first"), near, far)
    near.end(signal.SIGKILL)
    await until(lambda: not reader.get_matched_publications(), near, far)
    near.start()
    await until(heard("second"), near, far)
    assert len(reader.get_matched_publications()) == 1


@pytest.fixture(scope="module")
def fast_endpoint(
    tmp_path_factory: pytest.TempPathFactory,
    debian_program: Callable[[str, str], str],
    debian_file: Callable[[str, str], Path],
) -> Path:
    """A program with an endpoint of Fast DDS."""
    compiler = debian_program("g++", "g++")
    debian_file("/usr/include/fastdds/dds/domain/DomainParticipant.hpp", "libfastrtps-dev")
    program = tmp_path_factory.mktemp("fast") / "endpoint"
    source = Path(__file__).with_name("fast_endpoint.cpp")
    command = [compiler, "-O1", "-std=c++17", "-o", str(program), str(source), "-lfastrtps", "-lfastcdr"]
    subprocess.run(command, check=True, timeout=120, stderr=subprocess.DEVNULL)
    return program


def gapless(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_dust_dds_reads_and_writes_across(lans: tuple[Any, Any], bridges: Bridges) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    near, far = dust.DustLan(left.domain), dust.DustLan(right.domain)
    from_dust, to_dust = near.writer("FromDust"), left.writer("ToDust", dds.Reading)
    cyclones, dusts = Got(right.reader("FromDust", dds.Reading)), far.reader("FromDust")
    others = far.reader("ToDust")
    number = 0
    taken: dict[str, int] = {"dust": 0, "cyclone": 0}

    def written() -> bool:
        nonlocal number
        from_dust.write(dust.Reading(number, "dust"))
        to_dust.write(dds.Reading(number, "cyclone"))
        number += 1
        taken["dust"] += dust.taken(dusts)
        taken["cyclone"] += dust.taken(others)
        return len(cyclones()) >= 20 and min(taken.values()) >= 20

    await until(written, *running)
    near.close()
    far.close()
    assert {each.text for each in cyclones.samples} == {"dust"}
    assert gapless([each.number for each in cyclones.samples])


async def test_fast_dds_reads_and_writes_across(
    lans: tuple[Any, Any], bridges: Bridges, fast_endpoint: Path
) -> None:
    left, right = lans
    running = bridges("left", left), bridges("right", right)
    writer = left.writer("ToFast", dds.Reading)
    cyclones = Got(right.reader("FromFast", dds.Reading))

    def fast(lan: Any, *arguments: str) -> Heard:
        return Heard([str(fast_endpoint), str(lan.domain), *arguments])

    programs = [
        fast(left, "write", "FromFast"),
        fast(right, "read", "FromFast"),
        fast(right, "read", "ToFast"),
    ]
    number = 0

    def written() -> bool:
        nonlocal number
        writer.write(dds.Reading(number, "cyclone"))
        number += 1
        return len(cyclones()) >= 20 and all(len(each.lines) >= 20 for each in programs[1:])

    try:
        await until(written, *running)
    finally:
        for each in programs:
            each.stop()
    assert {each.text for each in cyclones.samples} == {"fast"}
    assert gapless([each.number for each in cyclones.samples])
    for program, text in zip(programs[1:], ("fast", "cyclone"), strict=True):
        assert {each.split()[1] for each in program.lines} == {text}
        assert gapless([int(each.split()[0]) for each in program.lines])


async def test_the_network_runs_the_bridges_of_its_settings(client: AsyncClient) -> None:
    lan = dds.Lan(OWN_DOMAIN)
    writer = lan.writer("Line", dds.Line, dds.KEPT)
    writer.write(dds.Line("kept"))
    inbox = await client.subscribe("own/Line", qos=1)
    assert (await inbox.get(DEADLINE_S)).json() == {"text": "kept"}
    lan.close()


async def test_each_of_three_networks_hears_each_sample_once(lans: tuple[Any, Any], bridges: Bridges) -> None:
    all_lans = (*lans, dds.Lan(FIRST_DOMAIN + 3))
    running = [bridges(f"lan-{number}", lan) for number, lan in enumerate(all_lans)]
    writers = [lan.writer("Ring", dds.Line) for lan in all_lans]
    readers = [Got(lan.reader("Ring", dds.Line)) for lan in all_lans]

    def texts(got: Got) -> list[str]:
        return [each.text for each in got()]

    def heard() -> bool:
        for number, writer in enumerate(writers):
            writer.write(dds.Line(f"first {number}"))
        return all(len(set(texts(got))) == 3 for got in readers)

    await until(heard, *running)
    for number in range(30):
        for lan, writer in enumerate(writers):
            writer.write(dds.Line(f"{lan} {number}"))

    def later(got: Got) -> list[str]:
        return [each for each in texts(got) if not each.startswith("first")]

    await until(lambda: all(len(later(got)) >= 90 for got in readers), *running)
    await asyncio.sleep(0.5)
    for got in readers:
        assert len(later(got)) == len(set(later(got))) == 90
    all_lans[2].close()


@pytest.mark.slow  # what is offered takes its time
async def test_nothing_reliable_is_lost_on_a_narrow_link(
    ready: dict[str, Any], lans: tuple[Any, Any], bridges: Bridges, tmp_path: Path
) -> None:
    left, right = lans
    at = ready["brokers"][0]
    port = free_port()
    async with Narrow(port, (at["host"], at["port"]), 20_000):
        near = BridgeProcess(f"mqtt://127.0.0.2:{port}", left.domain, "near", tmp_path / "narrow.log")
        far = bridges("far", right, broker=1)
        writer = left.writer("Line", dds.Line)
        got = Got(right.reader("Line", dds.Line))

        def heard() -> bool:
            writer.write(dds.Line("hello"))
            return bool(got())

        await until(heard, near, far)
        for number in range(200):
            writer.write(dds.Line(f"{number} " + os.urandom(300).hex()))
        await until(lambda: any(each.text.startswith("199 ") for each in got()), near, far)
        numbers = [int(each.text.split()[0]) for each in got.samples if each.text != "hello"]
        assert numbers == list(range(200))
        assert near.said.count("no connection to the network") == 0
        near.end()
