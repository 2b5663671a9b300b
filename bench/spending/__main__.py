"""``python -m bench.spending``: see the package's text."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

from bench.spending.attacks import ATTACKS, Target
from bench.spending.honest import Honest, percentile
from tocsin.config import load
from tocsin.core.budgets.stated_sum import Sum, sums_of

MIB = 1 << 20
READY_S = 90.0


def settings_of(*sets: str) -> list[str]:
    """The settings of two brokers, a coordinator and a store."""
    brokers = json.dumps([{"id": f"north-{n}", "cluster": "north", "port": 0} for n in (1, 2)])
    return [f"brokers={brokers}", "pipeline.enabled=never", "log.level=warning", *sets]


@contextlib.contextmanager
def network(given: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A network in a directory that is removed; the ready line."""
    command = [sys.executable, "-m", "tocsin", "up", "--ephemeral", "--auto-ports"]
    command += [word for each in given for word in ("--set", each)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        try:
            ready: dict[str, Any] = json.loads(process.stdout.readline())
            ready["pid"] = process.pid
            yield ready
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            process.stdout.close()
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
            print(f"the network logged {len(lines)} lines; the last ones:", *lines[-5:], sep="\n  ")


def memory(pid: int) -> dict[str, float]:
    """MiB of each process of the network, by what it is."""
    found: dict[str, float] = {}
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = child.cmdline()
            found[_name(words)] = found.get(_name(words), 0) + child.memory_info().rss / MIB
    return found


def _name(words: Sequence[str]) -> str:
    if "nats-server" in words[0]:
        return "store"
    after = words.index("tocsin") if "tocsin" in words else len(words)
    return "/".join(word for word in words[after + 1 : after + 4] if not word.startswith("-")) or words[0]


async def spend(
    ready: dict[str, Any], stated: Sequence[Sum], names: Sequence[str], seconds: float, every_s: float
) -> bool:
    """Attack for so long; whether every process stayed within the stated sum."""
    host, port = ready["brokers"][0]["host"], ready["brokers"][0]["port"]
    honest = Honest(host, port)
    print("stated, MiB:  ", _shown({each.process: each.bytes / MIB for each in stated}), flush=True)
    quiet = memory(ready["pid"])
    print("at rest, MiB: ", _shown(quiet), flush=True)
    tasks = [asyncio.create_task(honest.run())]
    await asyncio.sleep(3)
    alone = honest.pings_ms
    print(f"honest alone: ping p50 {percentile(alone, 0.5):.1f} ms p99 {percentile(alone, 0.99):.1f} ms")
    at = f"{host}:{port}"
    attackers = (
        await asyncio.create_subprocess_exec(  # so that the honest client does not wait for them itself
            sys.executable, "-m", "bench.spending", "--attack", at, "--only", *names
        )
    )
    began, most = time.monotonic(), dict(quiet)
    while (gone := time.monotonic() - began) < seconds:
        honest.pings_ms.clear()
        honest.commits_ms.clear()
        for _ in range(max(1, round(every_s))):
            await asyncio.sleep(1)
            now = memory(ready["pid"])
            most = {name: max(most.get(name, 0), size) for name, size in now.items()}
        failed = [task for task in tasks if task.done()]
        print(
            f"{gone + every_s:6.0f} s  {_shown(now)}  ping p50 {percentile(honest.pings_ms, 0.5):.0f} "
            f"p99 {percentile(honest.pings_ms, 0.99):.0f} ms ({len(honest.pings_ms)})  "
            f"QoS 1 p50 {percentile(honest.commits_ms, 0.5):.0f} p99 {percentile(honest.commits_ms, 0.99):.0f} ms "
            f"({len(honest.commits_ms)})  lost {honest.lost}  "
            f"counted {sum(honest.counted.values()) / MIB:.0f} MiB"
            + "".join(f"  {task.exception()!r}" for task in failed),
            flush=True,
        )
    attackers.kill()
    await attackers.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print("most, MiB:    ", _shown(most))
    return all(most_of(most, each.process) <= each.bytes / MIB for each in stated)


def most_of(sizes: dict[str, float], process: str) -> float:
    """The largest of the processes of a kind."""
    return max((size for name, size in sizes.items() if name.startswith(process)), default=0.0)


async def attack(at: str, names: Sequence[str]) -> None:
    host, _, port = at.rpartition(":")
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(ATTACKS[name](Target(host, int(port), name)))


def _shown(sizes: dict[str, float]) -> str:
    return "  ".join(f"{name} {size:.0f}" for name, size in sorted(sizes.items()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spending", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two lines")
    parser.add_argument(
        "--only", nargs="*", choices=sorted(ATTACKS), help="which attacks; all if none is named"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the network"
    )
    parser.add_argument(
        "--attack", metavar="HOST:PORT", help="only attack a broker that is there, until killed"
    )
    chosen = parser.parse_args()
    if chosen.attack:
        asyncio.run(attack(chosen.attack, chosen.only))
        return 0
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    given = settings_of(*chosen.set)
    stated = sums_of(load(flags=dict(each.split("=", 1) for each in given)).settings)
    names = chosen.only or sorted(ATTACKS)
    with network(given) as ready:
        held = asyncio.run(spend(ready, stated, names, chosen.minutes * 60, chosen.every))
    print("within the stated sum" if held else "BEYOND the stated sum")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
