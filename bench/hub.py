"""Messages that one routing broker passes on for each second of its processor, beside a NATS server with leaf nodes.

A publisher's edge broker, a routing broker in the cloud, and one or ten edge brokers of other LANs, each with a
subscriber of everything. Twenty publishers send 100 bytes at QoS 0: one message each, or 32, when all that was sent
before has arrived. The peer has the same shape: a NATS server, and a leaf node in the place of each edge broker.

Counted is what the routing broker itself takes, whatever else is busy: messages that come in, and messages that go out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import psutil

from bench.load.crowd import Address, Crowd
from bench.load.dialect import Dialect, LoadError, Mqtt, Nats
from bench.load.figures import Spread, spread
from bench.load.loads import PAYLOAD, Measured
from bench.load.servers import HOST, Server
from tocsin.store.servers.embedded import find_program, free_ports

RESULTS: Final = Path(__file__).parent / "results"
HUB: Final = "cloud-1"
PUBLISHERS: Final = 20
WIDTHS: Final = (1, 10)  # edge brokers that get each message
BURSTS: Final = (1, 32)  # messages of a publisher at a time
SECONDS, QUICK_SECONDS = 5.0, 1.0
ROUNDS, QUICK_ROUNDS = 3, 1
START_S: Final = 60.0
WARM_S: Final = 0.5


class Figure(msgspec.Struct, frozen=True):
    """What one routing broker did under one load."""

    system: str
    width: int
    burst: int
    in_per_cpu_s: Spread
    out_per_cpu_s: Spread
    busy: float  # share of a core


class Site:
    """A routing broker with edge brokers around it, and clients at these."""

    def __init__(self, hub: Server, near: Address, far: Sequence[Address]) -> None:
        self.hub = hub
        self._dialect: Dialect = hub.dialect
        self._stack = contextlib.ExitStack()
        self._topics = [f"hub/{number:03}" for number in range(PUBLISHERS)]
        try:
            self._publishers = self._stack.enter_context(Crowd(near, self._dialect, PUBLISHERS, "p"))
            self._readers = [
                self._stack.enter_context(Crowd(address, self._dialect, 1, f"s{number}-"))
                for number, address in enumerate(far)
            ]
            for crowd in self._readers:
                crowd.subscribe(lambda _: ["hub/#"])
            for crowd in (self._publishers, *self._readers):
                crowd.settle()
            self._until_all_hear()
        except BaseException:
            self._stack.close()
            raise

    def _until_all_hear(self) -> None:
        """Routes and links come with the first messages: publish until every reader has had one of each topic."""
        deadline = time.monotonic() + START_S
        missing = [set(self._topics) for _ in self._readers]
        while any(missing):
            if time.monotonic() > deadline:
                raise LoadError("the edge brokers do not hear each other")
            for number, topic in enumerate(self._topics):
                self._publishers.send(number, self._dialect.publish(topic, PAYLOAD))
            time.sleep(WARM_S)
            for crowd, lacks in zip(self._readers, missing, strict=True):
                heard = b"".join(each.recv(1 << 20) for each in crowd.ready())
                for topic in list(lacks):
                    if self._dialect.delivery(topic, PAYLOAD) in heard:
                        lacks.discard(topic)

    def turn(self, seconds: float, burst: int) -> tuple[int, float, float]:
        """Rounds of ``burst`` messages from each publisher: how many came in, the hub's time, the time that passed."""
        batches = [self._dialect.publish(topic, PAYLOAD) * burst for topic in self._topics]
        wanted = burst * sum(len(self._dialect.delivery(topic, PAYLOAD)) for topic in self._topics)
        rounds = 0
        with Measured(self.hub) as measured:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                for number, batch in enumerate(batches):
                    self._publishers.send(number, batch)
                for crowd in self._readers:
                    crowd.collect(wanted)
                rounds += 1
        return rounds * burst * PUBLISHERS, measured.cpu_s, measured.wall_s

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def ours(width: int) -> Iterator[Site]:
    lans = ("east", *(f"west{number}" for number in range(1, width + 1)))
    brokers = [{"id": HUB, "cluster": "cloud", "role": "routing"}]
    brokers += [{"id": f"{lan}-1", "cluster": lan} for lan in lans]
    sets = (f"brokers={json.dumps(brokers)}", "pipeline.enabled=never", "log.level=error")
    options = ["--ephemeral", "--auto-ports", *(word for each in sets for word in ("--set", each))]
    argv = [sys.executable, "-P", "-m", "tocsin", "up", *options]
    with _running(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None, "its output is piped"
        ready = json.loads(process.stdout.readline() or b"{}")
        if not ready:
            raise LoadError("tocsin up does not get ready")
        at = {each["id"]: (each["host"], int(each["port"])) for each in ready["brokers"]}
        hub = Server("tocsin", Mqtt(), at.get(HUB, (HOST, 0)), psutil.Process(ready["pids"][f"broker/{HUB}"]))
        with contextlib.closing(Site(hub, at["east-1"], [at[f"{lan}-1"] for lan in lans[1:]])) as site:
            yield site


@contextlib.contextmanager
def nats(width: int) -> Iterator[Site]:
    leaves, own, *ports = free_ports(HOST, width + 3)
    program = str(find_program())
    quiet = f'host: "{HOST}", ping_interval: "30m", '
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def start(name: str, text: str) -> subprocess.Popen[bytes]:
            path = directory / f"{name}.conf"
            path.write_text(quiet + text)
            return stack.enter_context(_running([program, "-c", str(path)], stdout=subprocess.DEVNULL))

        hub = start("hub", f'port: {own}, leafnodes {{ host: "{HOST}", port: {leaves} }}')
        for port in ports:
            start(
                f"leaf-{port}",
                f'port: {port}, leafnodes {{ remotes: [ {{ url: "nats://{HOST}:{leaves}" }} ] }}',
            )
        for port in (own, *ports):
            _await(port)
        server = Server("nats", Nats(), (HOST, own), psutil.Process(hub.pid))
        with contextlib.closing(Site(server, (HOST, ports[0]), [(HOST, port) for port in ports[1:]])) as site:
            yield site


@contextlib.contextmanager
def _running(argv: Sequence[str], *, stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _await(port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(LoadError), Crowd((HOST, port), Nats(), 1):
            return
        if time.monotonic() > deadline:
            raise LoadError(f"nothing listens on port {port}")
        time.sleep(0.05)


SYSTEMS: Final[dict[str, Callable[[int], contextlib.AbstractContextManager[Site]]]] = {
    "tocsin": ours,
    "nats": nats,
}


def measure(width: int, rounds: int, seconds: float) -> Iterator[Figure]:
    """Both systems in turns, so that what else the machine does befalls both."""
    with contextlib.ExitStack() as stack:
        sites = {name: stack.enter_context(make(width)) for name, make in SYSTEMS.items()}
        for burst in BURSTS:
            turns: dict[str, list[tuple[int, float, float]]] = {name: [] for name in sites}
            for _ in range(rounds):
                for name, site in sites.items():
                    turns[name].append(site.turn(seconds, burst))
            for name, taken in turns.items():
                rates = [came / cpu_s for came, cpu_s, _ in taken]
                busy = sum(cpu_s for _, cpu_s, _ in taken) / sum(wall_s for _, _, wall_s in taken)
                yield Figure(name, width, burst, spread(rates), spread(width * each for each in rates), busy)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hub", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter, one round")
    chosen = parser.parse_args(argv)
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if chosen.quick else (ROUNDS, SECONDS)
    figures: list[Figure] = []
    for width in WIDTHS:
        for each in measure(width, rounds, seconds):
            figures.append(each)
            print(
                f"  1 in, {width:2} out, {each.burst:2} at a time, {each.system:6}: "
                f"{each.in_per_cpu_s.median:9,.0f} in, {each.out_per_cpu_s.median:9,.0f} out for each second "
                f"of its processor ({100 * each.busy:.0f} % busy)",
                flush=True,
            )
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    report = {"machine": machine, "figures": msgspec.to_builtins(figures)}
    (RESULTS / "hub.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
