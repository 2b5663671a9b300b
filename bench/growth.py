"""Whether a tier grows under load and shrinks without it: load of each member, and whether a message is lost.

``tocsin up`` runs two edge brokers in clusters of their own, one routing broker, and two more in reserve
(``routing.least = 1``, ``most = 3``). Each routing broker is held to a small share of a processor as soon as it runs:
then a load that two cores can make is too much for one of them. A client in the east publishes numbered messages at
QoS 0 to one in the west: few, then too many for one routing broker, then few again. The leader sees it coming, the
supervisor starts further brokers, slots move; afterwards they are emptied and stopped. Nothing may be lost, come twice
or out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import uvloop

from bench.told import Network, until
from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.errors import OperatorError
from tocsin_labs.pubsubcoord.quota import REMEDY, place, slice_of

RESULTS: Final = Path(__file__).parent / "results"
HUBS: Final = ("hub-1", "hub-2", "hub-3")
BROKERS: Final = json.dumps(
    [
        *({"id": each, "cluster": "hub", "role": "routing"} for each in HUBS),
        {"id": "east-1", "cluster": "east"},
        {"id": "west-1", "cluster": "west"},
    ]
)
SHARE: Final = 0.05  # of a processor, for each routing broker
TOPICS: Final = tuple(f"line/{number}" for number in range(60))
FEW, MANY, STEP = 2, 60, 4  # messages a tick, and how many more with each look
TICK_S: Final = 0.02
DEADLINE_S: Final = 240.0
LOOK_S: Final = 2.0


class Member(msgspec.Struct, frozen=True):
    """What one routing broker carries."""

    broker: str
    slots: int
    messages_s: int
    busy: float


class Look(msgspec.Struct, frozen=True):
    """The tier at one moment."""

    at_s: float
    when: str
    wanted: int
    members: list[Member]


class Result(msgspec.Struct, frozen=True):
    """One run."""

    looks: list[Look]
    grown_s: float  # from the load to a part for every member
    shrunk_s: float  # from its end to one member
    sent: int
    lost: int
    doubled: int
    out_of_order: int


class Stream:
    """Numbered messages from east to west, on all topics in turn."""

    def __init__(self) -> None:
        self.sent = 0
        self.a_tick = FEW
        self.heard: dict[str, list[int]] = {each: [] for each in TOPICS}

    @property
    def arrived(self) -> int:
        return sum(map(len, self.heard.values()))

    def faults(self, first: int) -> tuple[int, int, int]:
        """Of what was sent from a number on: what was lost, came twice, and came after a later one."""
        lost = doubled = late = 0
        for turn, topic in enumerate(TOPICS):
            heard = [each for each in self.heard[topic] if each >= first]
            expected = {each for each in range(first, self.sent) if each % len(TOPICS) == turn}
            lost += len(expected - {*heard})
            doubled += len(heard) - len({*heard})
            late += sum(after < before for before, after in pairwise(heard))
        return lost, doubled, late


@contextlib.asynccontextmanager
async def running(network: Network) -> AsyncIterator[Stream]:
    """A stream of messages while the context lasts, which has begun to arrive."""
    stream = Stream()
    west, east = (Server(*network.addresses[each]) for each in ("west-1", "east-1"))
    async with AsyncClient([west]) as subscriber, AsyncClient([east]) as publisher:
        listening = await subscriber.subscribe("line/+")

        async def hear() -> None:
            async for message in listening:
                stream.heard[message.topic].append(int(message.payload))

        async def publish() -> None:
            due = time.monotonic()
            while True:
                for _ in range(stream.a_tick):
                    await publisher.publish(TOPICS[stream.sent % len(TOPICS)], b"%d" % stream.sent)
                    stream.sent += 1
                due = max(due + TICK_S, time.monotonic() - 1)
                await asyncio.sleep(max(0.0, due - time.monotonic()))

        tasks = [asyncio.create_task(hear()), asyncio.create_task(publish())]
        try:
            yield stream
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Held:
    """Control groups that routing brokers join as they start, and that are made small when they carry something: a
    broker that starts with a twentieth of a processor takes a minute."""

    def __init__(self, directory: Path, share: float) -> None:
        found = place()
        if found is None:
            raise OperatorError("no control group can be made here that holds a process to a quota", REMEDY)
        root, self._version = found
        roots = [root, Path("/sys/fs/cgroup/cpuacct")] if self._version == 1 else [root]
        self._share = share
        self._groups = {hub: [each / f"tocsin-growth-{os.getpid()}-{hub}" for each in roots] for hub in HUBS}
        for groups in self._groups.values():
            for group in groups:
                group.mkdir(exist_ok=True)
        joins = {hub: [str(group / "cgroup.procs") for group in self._groups[hub]] for hub in HUBS}
        (directory / "sitecustomize.py").write_text(JOIN.format(joins=joins))
        self.environment = {**os.environ, "PYTHONPATH": str(directory)}

    def hold(self, hub: str) -> None:
        quota_us, period_us = slice_of(self._share)
        group = self._groups[hub][0]
        if self._version == 1:
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")

    def free(self, hub: str) -> None:
        group = self._groups[hub][0]
        name, value = ("cpu.cfs_quota_us", "-1") if self._version == 1 else ("cpu.max", "max")
        (group / name).write_text(value)

    def close(self) -> None:
        for groups in self._groups.values():
            for group in groups:
                with contextlib.suppress(OSError):
                    group.rmdir()


# A process of Python runs this when it starts.
JOIN: Final = """
import os, sys
for hub, files in {joins!r}.items():
    if "broker" in sys.orig_argv and hub in sys.orig_argv:
        for each in files:
            with open(each, "w") as file:
                file.write(str(os.getpid()))
"""


class Watched:
    """The network while it runs: its tier is looked at, and its members are held."""

    def __init__(self, state: str, nats: str, held: Held) -> None:
        self._state, self._nats = state, nats
        self._held = held
        self._began_s = time.monotonic()
        self._members: set[str] = set()
        self.looks: list[Look] = []

    def _hold(self, members: set[str]) -> None:
        """Hold who has come, and free who has gone, so that it may come back."""
        for each in members - self._members:
            self._held.hold(each)
        for each in self._members - members:
            self._held.free(each)
        self._members = members

    async def look(self, when: str) -> Look:
        port = self._nats.rpartition(":")[2]
        sets = (f"nats.port={port}", f"brokers={BROKERS}")
        options = ("--json", "--state", self._state, *(word for each in sets for word in ("--set", each)))
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tocsin", "routing", "status", *options), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asking.communicate()
        (tier,) = json.loads(out)
        members = [
            Member(
                each["broker"],
                each["slots"],
                (each.get("load") or {}).get("messages_s", 0),
                (each.get("load") or {}).get("busy", 0.0),
            )
            for each in tier["members"]
        ]
        self._hold({each.broker for each in members})
        wanted = (tier["growing"] or {}).get("members", 0)
        found = Look(round(time.monotonic() - self._began_s, 1), when, wanted, members)
        self.looks.append(found)
        print(f"{found.at_s:6.1f} s  {when:9} wants {wanted}  {_words(members)}", flush=True)
        return found

    async def until(self, when: str, fits: Callable[[Look], bool]) -> float:
        """Look until the tier is such; the seconds that it took."""
        began_s = time.monotonic()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if fits(await self.look(when)):
                    break
                await asyncio.sleep(LOOK_S)
        return round(time.monotonic() - began_s, 1)


def _words(members: Sequence[Member]) -> str:
    return ", ".join(
        f"{each.broker} {each.slots} slots {each.messages_s}/s {each.busy:.0%}" for each in members
    )


async def measure(share: float = SHARE, many: int = MANY, members: int = 2) -> Result:
    """One run, until so many members share the load, and one is left."""
    with tempfile.TemporaryDirectory() as directory:
        held = Held(Path(directory), share)
        try:
            return await _measure(held, many, members)
        finally:
            held.close()


async def _measure(held: Held, many: int, members: int) -> Result:
    async with network(held.environment) as (started, ready):
        watched = Watched(ready["state"], ready["nats"][0], held)
        async with running(started) as stream:
            await watched.until("few", lambda look: look.wanted == 1 and len(look.members) == 1)
            async with asyncio.timeout(DEADLINE_S):
                await until(lambda: stream.arrived >= 100)
            first = stream.sent

            def rises(look: Look) -> bool:
                """More and more, until the leader wants another member."""
                if look.wanted == 1:
                    stream.a_tick = min(many, stream.a_tick + STEP)
                return sum(each.slots > 0 and each.messages_s > 0 for each in look.members) >= members

            grown_s = await watched.until("rising", rises)
            for _ in range(4):
                await asyncio.sleep(5)
                await watched.look("shared")
            stream.a_tick = FEW
            shrunk_s = await watched.until("few again", lambda look: len(look.members) == 1)
            stream.a_tick = 0
            for _ in range(100):
                if not stream.faults(first)[0]:
                    break
                await asyncio.sleep(0.1)
            return Result(watched.looks, grown_s, shrunk_s, stream.sent - first, *stream.faults(first))


@contextlib.asynccontextmanager
async def network(environment: dict[str, str]) -> AsyncIterator[tuple[Network, dict[str, Any]]]:
    """A network whose tier may grow."""
    sets = (
        f"brokers={BROKERS}",
        "routing.least=1",
        "routing.most=3",
        "routing.cooldown_s=10",
        "routing.shrink_after_s=10",
        "pipeline.enabled=never",
        "log.level=error",
    )
    options = ["--ephemeral", "--auto-ports", *(word for each in sets for word in ("--set", each))]
    argv = [sys.executable, "-P", "-m", "tocsin", "up", *options]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, limit=1 << 20, env=environment
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            ready = json.loads(await process.stdout.readline())
        yield Network(ready), ready
    finally:
        process.terminate()
        await process.wait()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the same: it waits for what it needs")
    parser.add_argument("--share", type=float, default=SHARE, help="of a processor, for each routing broker")
    parser.add_argument("--many", type=int, default=MANY, help="messages a tick under load")
    chosen = parser.parse_args(argv)
    result = uvloop.run(measure(chosen.share, chosen.many))
    print(
        f"{result.sent:,} messages: {result.lost} lost, {result.doubled} twice, {result.out_of_order} out of order; "
        f"grown after {result.grown_s} s, shrunk after {result.shrunk_s} s"
    )
    RESULTS.mkdir(exist_ok=True)
    about = {"machine": platform.platform(), "processors": os.cpu_count(), "busy": psutil.getloadavg()[0]}
    (RESULTS / "growth.json").write_bytes(
        msgspec.json.format(msgspec.json.encode({**about, "result": msgspec.to_builtins(result)}))
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
