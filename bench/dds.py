"""The bridge to DDS: what it adds to a sample's way, how soon a new endpoint is heard, samples a second of a core.

Two DDS domains of this machine are two local networks. A writer is in the first, a reader in the second; between them
are two bridges and a network of two brokers in two clusters. *direct* is the same writer and reader in one domain.
zenoh's bridge stands beside ours if ZENOH_BRIDGE_DDS names its program (``zenoh-bridge-dds``): two of them, joined by
TCP.

Each sample has its time of writing inside; both ends have one clock. A bridge's **rate** is what it passed on in a
second of processor time, while a writer writes as fast as is asked for; what a best-effort reader lost on the way is
not counted as passed.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from bench.load.figures import Percentiles, percentiles

RESULTS: Final = Path(__file__).parent / "results"
LOOPBACK: Final = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='lo' multicast='true'/></Interfaces>"
    "</General></Domain></CycloneDDS>"
)
PEER: Final = "ZENOH_BRIDGE_DDS"
FIRST_DOMAIN: Final = 60
BODY: Final = b"\0\1\0\0%b" + struct.pack("<I", 64) + bytes(64)  # CDR of a time and 64 bytes
SAMPLES, QUICK_SAMPLES = 1_000, 200
EVERY_S: Final = 0.01
RATES: Final = (2_000, 10_000, 40_000)
LASTS_S, QUICK_LASTS_S = 8.0, 4.0
ENDPOINTS, QUICK_ENDPOINTS = 10, 4
DEADLINE_S: Final = 60.0
SETTLED_S: Final = 1.0


class Case(msgspec.Struct, frozen=True):
    """One system, reliable or not."""

    system: str
    reliable: bool
    way: Percentiles | None  # of a sample, in microseconds
    first_ms: float | None  # from a new writer to its first sample; the median
    rates: tuple[
        tuple[int, float, float, float], ...
    ]  # asked, passed a second; and of a core's second, each bridge


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────────────────


class Ends:
    """Writers and readers of raw samples. cyclonedds reads its settings when it is imported."""

    def __init__(self) -> None:
        os.environ.setdefault("CYCLONEDDS_URI", LOOPBACK)
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.idl import IdlStruct
        from cyclonedds.idl.types import int64, sequence, uint8

        @dataclass
        class Probe(IdlStruct, typename="bench.Probe"):
            time_ns: int64
            body: sequence[uint8]  # type: ignore[type-arg]

        self._kind: Any = Probe
        self._participant: Callable[[int], Any] = DomainParticipant
        self._held: dict[int, Any] = {}

    def _at(self, domain: int, topic: str) -> tuple[Any, Any]:
        from cyclonedds.topic import Topic

        if domain not in self._held:
            self._held[domain] = self._participant(domain)
        return self._held[domain], Topic(self._held[domain], topic, self._kind)

    def _qos(self, reliable: bool) -> Any:
        from cyclonedds.qos import Policy, Qos

        reliability: Any = Policy.Reliability.BestEffort
        if reliable:
            reliability = Policy.Reliability.Reliable(10_000_000_000)
        return Qos(reliability, Policy.History.KeepAll)

    def writer(self, domain: int, topic: str, *, reliable: bool) -> Any:
        from cyclonedds.pub import DataWriter, Publisher

        participant, made = self._at(domain, topic)
        return DataWriter(Publisher(participant), made, qos=self._qos(reliable))

    def reader(self, domain: int, topic: str, *, reliable: bool) -> Any:
        from cyclonedds.sub import DataReader, Subscriber

        participant, made = self._at(domain, topic)
        return DataReader(Subscriber(participant), made, qos=self._qos(reliable))


def write(writer: Any) -> None:
    from cyclonedds._clayer import ddspy_write_ts

    now_ns = time.time_ns()
    ddspy_write_ts(writer._ref, BODY % struct.pack("<q", now_ns), now_ns)


def ages(reader: Any) -> list[float]:
    """How old the samples are that have come, in microseconds."""
    from cyclonedds._clayer import ddspy_take

    taken = ddspy_take(reader._ref, 0xFFFF, 1_000)
    now_ns = time.time_ns()
    if isinstance(taken, int):
        raise RuntimeError(f"DDS: {taken}")
    return [
        (now_ns - struct.unpack_from("<q", data, 4)[0]) / 1_000 for data, told in taken if told.valid_data
    ]


def flood(domain: int, topic: str, reliable: bool, rate: int, lasts_s: float) -> None:
    """Write at a rate; a process of its own."""
    writer = Ends().writer(domain, topic, reliable=reliable)
    time.sleep(SETTLED_S * 2)
    began = time.monotonic()
    done = 0
    while (passed := time.monotonic() - began) < lasts_s:
        while done < rate * passed:
            write(writer)
            done += 1
        time.sleep(0.001)
    time.sleep(SETTLED_S)


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────


def measure(
    system: str, domains: tuple[int, int], bridges: Sequence[int], *, reliable: bool, quick: bool
) -> Case:
    ends = Ends()
    first_ms = _first(ends, domains, reliable=reliable, count=QUICK_ENDPOINTS if quick else ENDPOINTS)
    way = _way(ends, domains, reliable=reliable, count=QUICK_SAMPLES if quick else SAMPLES)
    rates = tuple(
        _rate(
            ends, domains, bridges, reliable=reliable, rate=rate, lasts_s=QUICK_LASTS_S if quick else LASTS_S
        )
        for rate in (RATES[:1] if quick or reliable else RATES)
        if bridges
    )
    return Case(system, reliable, way, first_ms, rates)


def _first(ends: Ends, domains: tuple[int, int], *, reliable: bool, count: int) -> float | None:
    found = []
    for number in range(count):
        topic = f"First{reliable:d}{number}"
        reader = ends.reader(domains[1], topic, reliable=reliable)
        time.sleep(SETTLED_S)
        began = time.monotonic()
        writer = ends.writer(domains[0], topic, reliable=reliable)
        while time.monotonic() < began + DEADLINE_S:
            write(writer)
            time.sleep(EVERY_S)
            if ages(reader):
                found.append((time.monotonic() - began) * 1_000)
                break
    return round(statistics.median(found), 1) if len(found) == count else None


def _way(ends: Ends, domains: tuple[int, int], *, reliable: bool, count: int) -> Percentiles | None:
    reader = ends.reader(domains[1], "Way", reliable=reliable)
    writer = ends.writer(domains[0], "Way", reliable=reliable)
    end = time.monotonic() + DEADLINE_S
    while not ages(reader) and time.monotonic() < end:
        write(writer)
        time.sleep(EVERY_S)
    time.sleep(SETTLED_S)
    ages(reader)
    found: list[float] = []
    for _ in range(count):
        write(writer)
        until = time.monotonic() + EVERY_S
        while time.monotonic() < until:
            found += ages(reader)
            time.sleep(0.000_2)
    return percentiles(found)


def _rate(
    ends: Ends,
    domains: tuple[int, int],
    bridges: Sequence[int],
    *,
    reliable: bool,
    rate: int,
    lasts_s: float,
) -> tuple[int, float, float, float]:
    topic = f"Rate{reliable:d}{rate}"
    reader = ends.reader(domains[1], topic, reliable=reliable)
    arguments = domains[0], topic, reliable, rate, lasts_s
    program = multiprocessing.get_context("spawn").Process(target=flood, args=arguments)
    program.start()
    spent: list[float] = []
    count, began, last = 0, 0.0, 0.0
    while program.is_alive():
        fresh = len(ages(reader))
        if fresh and not count:
            began, spent = time.monotonic(), [_spent(each) for each in bridges]
        if fresh:
            count, last = count + fresh, time.monotonic()
        time.sleep(0.002)
    program.join()
    if not count:
        return rate, 0.0, 0.0, 0.0
    used = [_spent(each) - before for each, before in zip(bridges, spent, strict=True)]
    near, far = (round(count / max(each, 0.01)) for each in used)
    return rate, round(count / (last - began)), near, far


def _spent(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


# ── systems ──────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def ours(domains: tuple[int, int]) -> Iterator[list[int]]:
    brokers = json.dumps([{"id": f"{each}-1", "cluster": each} for each in ("north", "south")])
    command = [sys.executable, "-m", "tocsin", "up", "--ephemeral", "--auto-ports"]
    for each in (f"brokers={brokers}", "log.level=error", "pipeline.enabled=never"):
        command += ["--set", each]
    network = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert network.stdout is not None
    running: list[subprocess.Popen[Any]] = [network]
    try:
        ready = json.loads(network.stdout.readline())
        for number, (domain, broker) in enumerate(zip(domains, ready["brokers"], strict=True)):
            server = f"mqtt://{broker['host']}:{broker['port']}"
            bridge = [sys.executable, "-m", "tocsin", "bridge", "dds", "--at", server]
            bridge += ["--domain", str(domain), "--name", f"bench-{number}"]
            running.append(subprocess.Popen(bridge, stderr=subprocess.DEVNULL))
        time.sleep(SETTLED_S * 3)
        yield [each.pid for each in running[1:]]
    finally:
        _end(running)


@contextlib.contextmanager
def zenohs(program: str, domains: tuple[int, int]) -> Iterator[list[int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = f"tcp/127.0.0.1:{probe.getsockname()[1]}"
    running: list[subprocess.Popen[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for domain, part in zip(domains, ("listen", "connect"), strict=True):
                file = Path(folder) / f"{part}.json5"
                settings = {
                    "mode": "peer",
                    part: {"endpoints": [place]},
                    "plugins": {"dds": {"domain": domain}},
                }
                file.write_text(json.dumps({**settings, "scouting": {"multicast": {"enabled": False}}}))
                running.append(subprocess.Popen([program, "-c", str(file)], stderr=subprocess.DEVNULL))
                time.sleep(SETTLED_S)
            time.sleep(SETTLED_S * 2)
            yield [each.pid for each in running]
        finally:
            _end(running)


def _end(running: Sequence[subprocess.Popen[Any]]) -> None:
    for each in reversed(running):
        each.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.wait(20)
        if each.poll() is None:
            each.kill()


def cases(quick: bool) -> Iterator[Case]:
    domains = FIRST_DOMAIN, FIRST_DOMAIN + 1
    kinds = (False, True)
    for reliable in kinds:
        yield measure("direct", (domains[0] + 4, domains[0] + 4), (), reliable=reliable, quick=quick)
    with ours(domains) as bridges:
        for reliable in kinds:
            yield measure("tocsin", domains, bridges, reliable=reliable, quick=quick)
    if program := os.environ.get(PEER):
        domains = FIRST_DOMAIN + 2, FIRST_DOMAIN + 3
        with zenohs(program, domains) as bridges:
            for reliable in kinds:
                yield measure("zenoh", domains, bridges, reliable=reliable, quick=quick)


def show(case: Case) -> str:
    kind = "reliable" if case.reliable else "best effort"
    way = "–" if case.way is None else f"p50 {case.way.p50 / 1_000:.2f} ms, p99 {case.way.p99 / 1_000:.2f}"
    first = "–" if case.first_ms is None else f"{case.first_ms:.0f} ms"
    rates = "; ".join(
        f"asked {asked}/s: {passed:.0f}/s, {near:.0f} and {far:.0f} a core's second"
        for asked, passed, near, far in case.rates
    )
    return f"{case.system:7} {kind:11} {way}; first sample {first}" + (f"; {rates}" if rates else "")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench dds", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer samples, one rate")
    chosen = parser.parse_args(argv)
    os.environ.setdefault("CYCLONEDDS_URI", LOOPBACK)
    found = []
    for case in cases(chosen.quick):
        found.append(case)
        print(show(case), flush=True)
    RESULTS.mkdir(exist_ok=True)
    kept = {"machine": platform.platform(), "quick": chosen.quick, "cases": found}
    (RESULTS / "dds.json").write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))
    if not os.environ.get(PEER):
        print(f"zenoh's bridge is left out: {PEER} names no program")
    return 0
