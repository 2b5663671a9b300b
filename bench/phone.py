"""A phone that knows one address and never notices which brokers died: mosquitto's own subscriber, MQTT 3.1.1.

A network of three brokers with the coordinators' door. ``mosquitto_sub`` connects to the door with a session, and is
subscribed at QoS 1. A message is published every 100 ms. Again and again the broker that serves the phone is killed
(SIGKILL), or frozen (SIGSTOP) until the phone is elsewhere. In the end it is counted what the phone missed or got
twice, and how long it waited for a message at most.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import uvloop

from bench.told import until
from tocsin.client import AsyncClient

RESULTS: Final = Path(__file__).parent / "results"
BROKERS: Final = ("north-1", "north-2", "north-3")
KILLS, QUICK_KILLS = 6, 2
EVERY_S: Final = 0.1  # between two messages
BETWEEN_S: Final = 6.0  # between two failures: tocsin up has started the broker again by then
DEADLINE_S: Final = 60.0
PHONE: Final = "phone"


class Failure(msgspec.Struct, frozen=True):
    """One broker that failed under the phone."""

    how: str
    broker: str
    pause_s: float  # until the phone heard something that was published afterwards


class Phone:
    """mosquitto_sub, with one address; what it has heard, and when."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.heard: Counter[int] = Counter()
        self.newest = -1
        self._process = process

    async def listen(self) -> None:
        assert self._process.stdout is not None, "its output is piped"
        async for line in self._process.stdout:
            number = int(line)
            self.heard[number] += 1
            self.newest = max(self.newest, number)


@contextlib.asynccontextmanager
async def network() -> AsyncIterator[dict[str, Any]]:
    brokers = json.dumps([{"id": each, "cluster": "north"} for each in BROKERS])
    sets = (f"brokers={brokers}", "pipeline.enabled=never", "log.level=error")
    options = ["--ephemeral", "--auto-ports", *(word for each in sets for word in ("--set", each))]
    argv = [sys.executable, "-P", "-m", "tocsin", "up", *options]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, limit=1 << 20)
    assert process.stdout is not None, "its output is piped"
    try:
        async with asyncio.timeout(DEADLINE_S):
            ready = json.loads(await process.stdout.readline())
        yield {**ready, "supervisor": process.pid}
    finally:
        process.terminate()
        await process.wait()


def serving(door: int) -> str:
    """The broker that serves the phone, as the door says."""
    url = f"http://127.0.0.1:{door}/v1/broker?client={PHONE}"
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return str(json.load(answer)["broker"])


def pid_of(supervisor: int, broker: str) -> int:
    """The process of a broker as it is now: one that ended was started again."""
    for child in psutil.Process(supervisor).children():
        with contextlib.suppress(psutil.Error):
            words = child.cmdline()
            if "broker" in words and broker in words:
                return child.pid
    raise SystemExit(f"{broker} does not run: tocsin up has not started it again")


async def run(failures: int) -> tuple[list[Failure], Phone, int]:
    program = shutil.which("mosquitto_sub")
    if program is None:
        raise SystemExit("mosquitto_sub is not here: install the Debian package mosquitto-clients")
    async with network() as ready:
        door = int(ready["door"]["port"])
        words = (
            "-h",
            "127.0.0.1",
            "-p",
            str(door),
            "-V",
            "mqttv311",
            "-i",
            PHONE,
            "-c",
            "-q",
            "1",
            "-t",
            "news",
        )
        process = await asyncio.create_subprocess_exec(program, *words, stdout=asyncio.subprocess.PIPE)
        phone, sent, found = Phone(process), 0, list[Failure]()
        listening = asyncio.create_task(phone.listen())
        async with AsyncClient([f"mqtt://127.0.0.1:{door}"], client_id="sender") as sender:

            async def publish() -> None:
                nonlocal sent
                while True:
                    await sender.publish("news", str(sent).encode(), qos=1)
                    sent += 1
                    await asyncio.sleep(EVERY_S)

            publishing = asyncio.create_task(publish())
            await until(lambda: phone.newest >= 0)
            first = min(phone.heard)
            for number in range(failures):
                await asyncio.sleep(BETWEEN_S)
                how, broker = ("frozen", "killed")[number % 2], await asyncio.to_thread(serving, door)
                pid, began, after = pid_of(ready["supervisor"], broker), time.monotonic(), sent
                os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                try:
                    async with asyncio.timeout(DEADLINE_S):
                        await until(lambda after=after: phone.newest > after)  # type: ignore[misc]
                finally:
                    if how == "frozen":
                        os.kill(pid, signal.SIGCONT)
                found.append(Failure(how, broker, time.monotonic() - began))
                print(f"  {broker} {how}: the phone waited {found[-1].pause_s:.1f} s", flush=True)
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            patience = time.monotonic() + DEADLINE_S
            await until(lambda: phone.newest >= sent - 1 or time.monotonic() > patience)
        assert process.returncode is None, "it has not ended, and was not started again"
        process.terminate()
        await process.wait()
        await listening
    return found, phone, sent - first


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.phone", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer failures")
    chosen = parser.parse_args(argv)
    failures, phone, due = uvloop.run(run(QUICK_KILLS if chosen.quick else KILLS))
    missed = due - len(phone.heard)
    twice = sum(count - 1 for count in phone.heard.values())
    print(f"  {len(failures)} brokers failed under the phone; {due} messages: missed {missed}, again {twice}")
    RESULTS.mkdir(exist_ok=True)
    report = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "failures": msgspec.to_builtins(failures),
        "messages": due,
        "missed": missed,
        "again": twice,
    }
    (RESULTS / "phone.json").write_text(json.dumps(report, indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
