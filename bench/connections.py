"""What a new connection costs a broker, beside mosquitto under the same crowd in the same run.

A turn is a crowd of clients that connect, perhaps subscribe, and leave with a DISCONNECT: AT_ONCE of them are under
way at any time, on raw sockets with bytes that were made before. The broker's processor time is read from the first
SYN until it has closed its side of every connection, so that it covers all that a client brings about. Kinds:

| kind | CONNECT | then |
| --- | --- | --- |
| clean | clean start, no session | DISCONNECT |
| clean, subscribes | the same | SUBSCRIBE to a topic of its own, DISCONNECT |
| session, new | a session that is kept, of an id that is new | DISCONNECT |
| session, back | the same ids again: the session is there | DISCONNECT |

Beside mosquitto there is a **bare** server on our event loop, which answers and closes, and knows nothing of MQTT but
first bytes. That is what Python, its loop and the kernel take of each client before any work of a broker.
``all`` is the time with what the store and the coordinator spend on the same clients; mosquitto keeps sessions in
memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import select
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.load import servers
from bench.load.crowd import AT_ONCE, DEADLINE_S, Address
from bench.load.dialect import NO_END, LoadError, Mqtt, packet, text, varint
from bench.load.figures import Spread, spread
from bench.load.servers import Server

RESULTS: Final = Path(__file__).parent / "results"
CLIENTS, QUICK_CLIENTS = 2_000, 500
TURNS, QUICK_TURNS = 5, 2
KEEP_ALIVE_S: Final = 60  # as most clients have it
DISCONNECT: Final = b"\xe0\x00"
LOOK_S: Final = 0.005
TARGETS_US: Final = {"clean": 120.0, "session, back": 200.0}


class Kind(msgspec.Struct, frozen=True):
    """What each client of a crowd does."""

    name: str
    keeps: bool = False
    subscribes: bool = False
    again: bool = False  # the ids of the crowd before


KINDS: Final = (
    Kind("clean"),
    Kind("clean, subscribes", subscribes=True),
    Kind("session, new", keeps=True),
    Kind("session, back", keeps=True, again=True),
)


class Cost(msgspec.Struct, frozen=True):
    """Microseconds of processor for each client of one kind, at one broker."""

    kind: str
    broker: str
    broker_us: Spread
    family_us: Spread  # with the store and the coordinator


class Ratio(msgspec.Struct, frozen=True):
    """Tocsin's broker time over that of another broker, within turns."""

    kind: str
    broker: str
    ratio: Spread


def hello(client_id: str, *, keeps: bool) -> bytes:
    """A CONNECT of MQTT 5 as a device sends it."""
    properties = b"\x11\x00\x00\x0e\x10" if keeps else b""  # session expiry: an hour
    head = text("MQTT") + b"\x05" + (b"\x00" if keeps else b"\x02") + KEEP_ALIVE_S.to_bytes(2, "big")
    return packet(0x10, head + varint(len(properties)) + properties + text(client_id))


class _Visit:
    """One client on its way: it says its words one after the other, each after the answer to the one before."""

    __slots__ = ("received", "socket", "words")

    def __init__(self, words: Sequence[bytes]) -> None:
        self.words = list(words)
        self.received = b""
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    def is_over(self) -> bool:
        """Say the next word if the last was answered; whether there is none left, and the broker has hung up."""
        more = self.socket.recv(4_096)
        if not more:
            if self.words:
                raise LoadError(f"the broker closed a connection after {self.received[:80]!r}")
            return True
        self.received += more
        if self.words and Mqtt().answer_end(self.received) != NO_END:
            self.received = b""
            self.socket.sendall(self.words.pop(0))
        return False


def visit(address: Address, crowd: Sequence[Sequence[bytes]]) -> None:
    """Have all clients of a crowd come, say their words and go; AT_ONCE at a time."""
    with contextlib.closing(select.epoll()) as epoll:
        waiting, here = iter(crowd), {}
        deadline = time.monotonic() + DEADLINE_S

        def enter() -> None:
            for words in waiting:
                each = _Visit(words)
                here[each.socket.fileno()] = each
                with contextlib.suppress(BlockingIOError):
                    each.socket.connect(address)
                epoll.register(each.socket, select.EPOLLOUT)
                if len(here) >= AT_ONCE:
                    return

        enter()
        while here:
            for descriptor, event in epoll.poll(1.0):
                each = here[descriptor]
                if event & select.EPOLLOUT:
                    each.socket.sendall(each.words.pop(0))
                    epoll.modify(descriptor, select.EPOLLIN)
                elif each.is_over():
                    epoll.unregister(descriptor)
                    each.socket.close()
                    del here[descriptor]
                    enter()
            if time.monotonic() > deadline:
                raise LoadError(f"{len(here)} clients were not served within {DEADLINE_S:g} s")


def crowd_of(kind: Kind, names: Sequence[str]) -> list[list[bytes]]:
    """The words of each client."""
    crowd = []
    for name in names:
        words = [hello(name, keeps=kind.keeps)]
        if kind.subscribes:
            words.append(Mqtt().subscribe(f"bench/devices/{name}/command"))
        crowd.append([*words, DISCONNECT])
    return crowd


def measure(server: Server, crowd: list[list[bytes]]) -> tuple[float, float]:
    """Microseconds for each client: of the broker, and of all its processes."""
    files = server.open_files()
    before, family = server.cpu_s(), server.family_cpu_s()
    visit(server.address, crowd)
    deadline = time.monotonic() + DEADLINE_S
    while server.open_files() > files and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    time.sleep(0.1)  # what is forgotten or stored a moment later is part of it
    scale = 1e6 / len(crowd)
    return (server.cpu_s() - before) * scale, (server.family_cpu_s() - family) * scale


def run(
    clients: int, turns: int, wanted: Sequence[str], seed: int, against: Path | None = None
) -> tuple[list[Cost], list[Ratio], list[str]]:
    chance, notes = random.Random(seed), []
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        home = Path(directory)
        brokers = [stack.enter_context(servers.tocsin(home / "tocsin"))]
        brokers.append(stack.enter_context(servers.bare(home / "bare")))
        program = servers.mosquitto_program()
        if against is not None:
            other = servers.tocsin(home / "other", name="other", python=str(against))
            brokers.append(stack.enter_context(other))
        if program is None:
            notes.append("mosquitto is not installed: install the Debian package, or run as root")
        else:
            brokers.append(stack.enter_context(servers.mosquitto(program, home / "mosquitto")))
        for broker in brokers:  # what is made once is made now
            visit(broker.address, crowd_of(KINDS[0], [f"warm{n}" for n in range(200)]))
        for turn in range(turns):
            for kind in (each for each in KINDS if each.name in wanted):
                made = f"{'s' if kind.keeps else 'c'}{turn}"
                crowd = crowd_of(kind, [f"{made}-{n:06}" for n in range(clients)])
                for broker in chance.sample(brokers, len(brokers)):
                    found.setdefault((kind.name, broker.name), []).append(measure(broker, crowd))
    costs = [
        Cost(kind, broker, spread(us for us, _ in taken), spread(us for _, us in taken))
        for (kind, broker), taken in found.items()
    ]
    ratios = [
        Ratio(
            kind,
            their.name,
            spread(a / b for (a, _), (b, _) in zip(taken, found[kind, their.name], strict=True)),
        )
        for (kind, broker), taken in found.items()
        for their in brokers[1:]
        if broker == "tocsin"
    ]
    return costs, ratios, notes


def show(costs: Sequence[Cost], ratios: Sequence[Ratio]) -> None:
    for each in costs:
        target = TARGETS_US.get(each.kind) if each.broker == "tocsin" else None
        verdict = ""
        if target is not None:
            verdict = f"  target < {target:g}: {'reached' if each.broker_us.median < target else 'missed'}"
        print(
            f"  {each.kind:20} {each.broker:10} {each.broker_us.median:7.0f} µs a client "
            f"({each.broker_us.low:.0f}..{each.broker_us.high:.0f}), all {each.family_us.median:.0f}{verdict}"
        )
    for ratio in ratios:
        print(f"  {ratio.kind:20} ÷ {ratio.broker:9} {ratio.ratio}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.connections", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller crowds, fewer turns")
    parser.add_argument("--clients", type=int, help="in a crowd")
    parser.add_argument("--turns", type=int, help="of each kind")
    parser.add_argument(
        "--only", action="append", choices=[each.name for each in KINDS], help="of these kinds"
    )
    parser.add_argument("--seed", type=int, default=1, help="for the order of the brokers")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="PYTHON",
        help="also another Tocsin, in turns: the Python of the environment that has it",
    )
    chosen = parser.parse_args(argv)
    clients = chosen.clients or (QUICK_CLIENTS if chosen.quick else CLIENTS)
    turns = chosen.turns or (QUICK_TURNS if chosen.quick else TURNS)
    wanted = chosen.only or [each.name for each in KINDS]
    costs, ratios, notes = run(clients, turns, wanted, chosen.seed, chosen.against)
    show(costs, ratios)
    for note in notes:
        print(f"  {note}")
    RESULTS.mkdir(exist_ok=True)
    report = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "clients": clients,
        "turns": turns,
        "costs": msgspec.to_builtins(costs),
        "ratios": msgspec.to_builtins(ratios),
        "notes": notes,
    }
    (RESULTS / "connections.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
