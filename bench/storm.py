"""A storm of reconnections: the clients of a killed broker come to its backup, all at once.

A network of three brokers. N clients with stored sessions, each with a subscription at QoS 1, are at the first broker.
It is killed (SIGKILL), and all of them dial its local backup. Measured from the first dial until the last CONNACK:

- the time that passes, and how many clients the backup serves in a second,
- its processor time for each client,
- the processor time of the others for each client: the store, the coordinator, brokers (also the lost one, which starts
  again) and the generator. With the number of cores it says what this machine cannot do faster,
- the latency of a flow of messages between two clients that were connected to the backup before.

Nobody waits for detection. The generator shares the machine with the brokers and the store: where it is the slower one,
processor time says more than the time that passes. Clients are as many as open files allow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from bench.connections import hello
from bench.load.crowd import AT_ONCE, DEADLINE_S, RESET, Address
from bench.load.dialect import NO_END, LoadError, Mqtt
from bench.load.figures import Percentiles, percentiles
from bench.load.servers import CONNECTIONS_MAX, HOST, START_S, STOP_S, _cpu_s

RESULTS: Final = Path(__file__).parent / "results"
SIZES, QUICK_SIZES = (1_000, 5_000, 15_000), (200, 1_000)
BROKERS: Final = (("north-1", "north"), ("north-2", "north"), ("south-1", "south"))
LOST, BACKUP = "north-1", "north-2"
AT_ONCE_BACK: Final = 512  # connections under way: half of the broker's backlog
EVERY_S: Final = 0.005  # between two messages of the flow
BEFORE_S: Final = 1.0  # for which the flow runs before the storm
SPARE_FILES: Final = 500
TOPIC: Final = "flow"
RESTARTS: Final = "restarts"


class Point(msgspec.Struct, frozen=True):
    """One storm."""

    clients: int
    served_s: float
    cpu_us: float  # of the backup for each client
    calm: Percentiles | None  # of the flow before the storm, in microseconds
    storm: Percentiles | None  # and during it
    others_us: dict[str, float] = {}  # what everybody else spent, for each client


@contextlib.contextmanager
def network() -> Iterator[dict[str, Any]]:
    """Three brokers, with room for everybody; its ready line."""
    brokers = json.dumps([{"id": name, "cluster": cluster} for name, cluster in BROKERS])
    sets = (
        f"brokers={brokers}",
        "pipeline.enabled=never",
        "log.level=error",
        f"limits.connections_max={CONNECTIONS_MAX}",
    )
    options = ["--ephemeral", "--auto-ports", *(word for each in sets for word in ("--set", each))]
    argv = [sys.executable, "-P", "-m", "tocsin", "up", *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None, "its output is piped"
        try:
            line = process.stdout.readline() if select.select([process.stdout], [], [], START_S)[0] else b""
            if not line:
                raise LoadError("tocsin up does not get ready")
            yield json.loads(line)
        finally:
            process.terminate()
            process.wait(STOP_S)


def come(address: Address, hellos: Sequence[bytes], after: bytes, at_once: int) -> list[socket.socket]:
    """Have clients connect and, if there are words for it, subscribe; their sockets, once all are answered."""
    sockets: list[socket.socket] = []
    waiting = iter(hellos)
    here: dict[int, tuple[socket.socket, list[bytes]]] = {}
    dialect, deadline = Mqtt(), time.monotonic() + DEADLINE_S * 4
    with contextlib.closing(select.epoll()) as epoll:

        def enter() -> None:
            while len(here) < at_once and (words := next(waiting, None)) is not None:
                each = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    each.connect(address)
                here[each.fileno()] = (each, [words, after] if after else [words])
                epoll.register(each, select.EPOLLOUT)

        enter()
        while here:
            for descriptor, event in epoll.poll(1.0):
                each, words = here[descriptor]
                if event & select.EPOLLOUT:
                    each.sendall(words.pop(0))
                    epoll.modify(descriptor, select.EPOLLIN)
                    continue
                answer = each.recv(4_096)
                if not answer or dialect.answer_end(answer) == NO_END:
                    raise LoadError(f"a client was answered {answer[:40]!r}")
                if words:
                    each.sendall(words.pop(0))
                    continue
                epoll.unregister(descriptor)
                del here[descriptor]
                sockets.append(each)
            enter()
            if time.monotonic() > deadline:
                raise LoadError(f"{len(here)} clients were not served in time")
    return sockets


def flow(address: Address, pipe: Connection) -> None:
    """Messages from one client to another until told to stop; when each was sent, and its latency."""
    dialect = Mqtt()
    ends = []
    for name in ("flow-in", "flow-out"):
        each = socket.create_connection(address, DEADLINE_S)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.sendall(dialect.hello(name))
        each.recv(4_096)
        ends.append(each)
    ends[1].sendall(dialect.subscribe(TOPIC))
    ends[1].recv(4_096)
    message = dialect.publish(TOPIC, b"x" * 100)
    taken: list[tuple[float, float]] = []
    pipe.send("ready")
    while not pipe.poll():
        began = time.monotonic()
        ends[0].sendall(message)
        left = len(message)
        while left:
            left -= len(ends[1].recv(left))
        took = time.monotonic() - began
        taken.append((began, took * 1e6))
        time.sleep(max(0.0, EVERY_S - took))
    pipe.send(taken)


def spent(pids: Mapping[str, int]) -> dict[str, float]:
    """The processor seconds of each process of the network so far, and of this one. A broker that starts again counts
    as ``restarts``."""
    took: dict[str, float] = {"generator": time.process_time(), RESTARTS: 0.0}
    (parent,) = {psutil.Process(pid).ppid() for name, pid in pids.items() if name == f"broker/{BACKUP}"}
    names = {pid: name for name, pid in pids.items()}
    for each in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(OSError):
            name = names.get(each.pid, RESTARTS)
            took[name] = took.get(name, 0.0) + _cpu_s(each.pid)
    return took


def storm(clients: int) -> Point:
    with network() as ready:
        at = {each["id"]: (HOST, each["port"]) for each in ready["brokers"]}
        pids = {name: ready["pids"][f"broker/{name}"] for name in at}
        hellos = [hello(f"storm-{number:06}", keeps=True) for number in range(clients)]
        asks = Mqtt().subscribe("storm/all", qos=1)
        lost = come(at[LOST], hellos, asks, AT_ONCE)
        ours, theirs = multiprocessing.Pipe()
        runner = multiprocessing.get_context("spawn").Process(target=flow, args=(at[BACKUP], theirs))
        runner.start()
        ours.recv()
        time.sleep(BEFORE_S)
        os.kill(pids[LOST], signal.SIGKILL)
        for each in lost:
            each.close()
        before, began = spent(ready["pids"]), time.monotonic()
        sockets = come(at[BACKUP], hellos, b"", AT_ONCE_BACK)
        ended, after = time.monotonic(), spent(ready["pids"])
        each_us = {
            name: (took - before.get(name, 0.0)) * 1e6 / clients for name, took in after.items() if took
        }
        cpu_us = each_us.pop(f"broker/{BACKUP}")
        ours.send("stop")
        taken = ours.recv()
        runner.join()
        for each in sockets:
            each.close()
    calm = percentiles([took for at_s, took in taken if at_s < began])
    during = percentiles([took for at_s, took in taken if began <= at_s < ended])
    return Point(clients, ended - began, cpu_us, calm, during, each_us)


def show(point: Point) -> None:
    def of(each: Percentiles | None) -> str:
        return "none" if each is None else f"p50 {each.p50 / 1e3:.1f} p99 {each.p99 / 1e3:.1f} ms"

    print(
        f"  {point.clients:6,} clients served in {point.served_s:6.2f} s ({point.clients / point.served_s:,.0f} /s), "
        f"{point.cpu_us:.0f} µs of the backup each; flow {of(point.storm)} (before: {of(point.calm)})",
        flush=True,
    )
    others = ", ".join(
        f"{name} {us:.0f}" for name, us in sorted(point.others_us.items(), key=lambda each: -each[1])
    )
    every_us = point.cpu_us + sum(point.others_us.values())
    least_s = every_us * point.clients / 1e6 / (os.cpu_count() or 1)
    print(
        f"         the others, µs a client: {others}; {os.cpu_count()} cores need {least_s:.2f} s for all of it"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.storm", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller storms")
    parser.add_argument("--clients", type=int, action="append", help="a storm of so many; may be repeated")
    chosen = parser.parse_args(argv)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    points, notes = [], []
    for clients in chosen.clients or (QUICK_SIZES if chosen.quick else SIZES):
        if clients + SPARE_FILES > hard:
            notes.append(f"{clients} clients need more open files than {hard}: raise `ulimit -Hn`")
            continue
        try:
            points.append(storm(clients))
        except LoadError as error:
            notes.append(f"{clients} clients: {error}")
            continue
        show(points[-1])
    for note in notes:
        print(f"  {note}")
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    report = {"machine": machine, "points": msgspec.to_builtins(points), "notes": notes}
    (RESULTS / "storm.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
