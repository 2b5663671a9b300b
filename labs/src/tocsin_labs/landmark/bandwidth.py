"""Table 4 over a network that carries less, or carries something else as well.

All processes of a network share the loopback interface of this machine. Here it gets a rate (``tc``, a token bucket)
and traffic in the background (datagrams that nobody reads), and brokers are killed as in ``latency``. The interface is
that of a network namespace of the experiment's own, so that nobody else is slowed down: the command has to be started
in one, as with ``unshare --map-root-user --net``.

A rate is that of the whole interface, so that all links between all processes share it. The paper's hosts had as much
for each link.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import OperatorError
from tocsin_labs.landmark import latency
from tocsin_labs.landmark.latency import Trial
from tocsin_labs.landmark.plan import Bandwidth, Condition
from tocsin_labs.stage import Stage

LOOPBACK: Final = "lo"
COUNTS: Final = Path("/proc/self/net/dev")  # of this process's namespace: what is under /sys may be another's
SENT_AT: Final = 8  # its place in a row: bytes that were sent
MTU: Final = 1_500  # as of Ethernet; the loopback interface has 65 536
BURST: Final = "64kb"  # more than a segment that is not cut yet
QUEUE: Final = "200ms"  # what waits longer is dropped
DATAGRAM: Final = bytes(1_200)
TICK_S: Final = 0.005
MBIT: Final = 1_000_000
UNSHARED: Final = "unshare --map-root-user --net tocsin lab landmark --only bandwidth"
REMEDY: Final = f"Start it in a network namespace of its own: {UNSHARED}"


class Narrowed(msgspec.Struct, frozen=True, kw_only=True):
    """Table 4 under one condition."""

    condition: Condition
    trials: tuple[Trial, ...]
    carried_mbit: float  # a second, that the interface carried, background and all


async def run(plan: Bandwidth, seed: int, stage: Stage, found: list[Narrowed]) -> None:
    """Add each condition. Raises ``OperatorError`` if the loopback interface is not this experiment's own."""
    check_own()
    for number, condition in enumerate(plan.conditions):
        if stage.is_cut:
            break
        stage.tell(f"Table 4, {condition.words}", number / len(plan.conditions))
        trials: list[Trial] = []
        with narrowed(condition), background(condition):
            began_s, before = time.monotonic(), _sent()
            title = f"Table 4, {condition.words}"
            await latency.run(plan.latency, seed, stage, trials, {}, title)
            took_s, carried = time.monotonic() - began_s, _sent() - before
        found.append(
            Narrowed(condition=condition, trials=tuple(trials), carried_mbit=8 * carried / MBIT / took_s)
        )


def check_own() -> None:
    """``OperatorError`` unless this process is in a network namespace that has a loopback interface alone."""
    names = [name for _, name in socket.if_nameindex()]
    if names != [LOOPBACK]:
        raise OperatorError("this experiment slows the loopback interface down, which others use", REMEDY)
    _command("ip", "link", "set", LOOPBACK, "up", "mtu", str(MTU))


@contextmanager
def narrowed(condition: Condition) -> Iterator[None]:
    """While this lasts, the loopback interface carries no more."""
    if condition.mbit is None:
        yield
        return
    rate = f"{condition.mbit:g}mbit"
    _command(
        "tc",
        "qdisc",
        "replace",
        "dev",
        LOOPBACK,
        "root",
        "tbf",
        "rate",
        rate,
        "burst",
        BURST,
        "latency",
        QUEUE,
    )
    try:
        yield
    finally:
        _command("tc", "qdisc", "del", "dev", LOOPBACK, "root")


@contextmanager
def background(condition: Condition) -> Iterator[None]:
    """While this lasts, a share of the rate is taken by datagrams that nobody reads."""
    if condition.mbit is None or not condition.background:
        yield
        return
    ended = threading.Event()
    rate = condition.mbit * MBIT / 8 * condition.background
    sending = threading.Thread(target=_send, args=(rate, ended), name="background", daemon=True)
    sending.start()
    try:
        yield
    finally:
        ended.set()
        sending.join()


def _send(bytes_s: float, ended: threading.Event) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source,
    ):
        sink.bind(("127.0.0.1", 0))
        source.setblocking(False)
        began_s, sent = time.monotonic(), 0.0
        while not ended.wait(TICK_S):
            due = bytes_s * (time.monotonic() - began_s)
            while sent < due:
                sent += len(DATAGRAM)
                try:
                    source.sendto(DATAGRAM, sink.getsockname())
                except OSError:
                    break  # the queue is full: what is not sent is lost, as datagrams are


def _sent() -> int:
    rows = (line.partition(":") for line in COUNTS.read_text().splitlines())
    counts = next(row for name, _, row in rows if name.strip() == LOOPBACK)
    return int(counts.split()[SENT_AT])


def _command(*words: str) -> None:
    """Run ``ip`` or ``tc``; raises ``OperatorError``."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=10.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = f"{words[0]} cannot be run: {error}"
        raise OperatorError(problem, "Install iproute2") from None
    if done.returncode:
        problem = f"{' '.join(words)} failed: {done.stderr.strip()}"
        raise OperatorError(problem, REMEDY)
