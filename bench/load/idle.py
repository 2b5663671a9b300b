"""Connections that do nothing: what they weigh, and how long many take to come, to go and to come back.

Each client subscribes to a topic of its own, as devices do for their commands, and to one that all share. A broker
has digested a mass disconnect when it has closed its side of every connection. Sizes grow four-fold; time that grows
more than four-fold is not linear.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from bench.load.crowd import Crowd
from bench.load.dialect import LoadError
from bench.load.servers import Server

REST_S: Final = 1.0  # before memory is read: collectors and allocators come to rest
DIGEST_S: Final = 60.0
LOOK_S: Final = 0.005


class Crossing(msgspec.Struct, frozen=True):
    """How so many clients came, went and came back: seconds that passed, and of the broker's core."""

    clients: int
    connect_s: float
    connect_cpu_s: float
    disconnect_s: float
    disconnect_cpu_s: float
    reconnect_s: float
    reconnect_cpu_s: float


class Weight(msgspec.Struct, frozen=True):
    """Resident memory for each client, in bytes."""

    clients: int
    connected: float
    subscribed: float


class Idle(msgspec.Struct, frozen=True):
    broker: str
    weight: Weight
    crossings: tuple[Crossing, ...]

    def growth(self) -> tuple[float, float]:
        """Broker time of disconnecting and reconnecting: the largest crowd beside the smallest, for each client."""
        ordered = sorted(self.crossings, key=lambda each: each.clients)
        few, many = ordered[0], ordered[-1]
        scale = many.clients / few.clients
        return (
            many.disconnect_cpu_s / max(few.disconnect_cpu_s, 0.01) / scale,
            many.reconnect_cpu_s / max(few.reconnect_cpu_s, 0.01) / scale,
        )


def _filters(number: int) -> list[str]:
    return [f"bench/devices/{number:05}/command", "bench/devices/all"]


class _Watch:
    """Seconds passed, and broker seconds, since it was made."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began, self._cpu_s = time.perf_counter(), server.cpu_s()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._began, self._server.cpu_s() - self._cpu_s


def measure(server: Server, sizes: Sequence[int]) -> Idle:
    """On a broker that was just started. The largest crowd comes first, because memory once taken stays taken."""
    time.sleep(REST_S)
    before = server.memory_bytes()
    files = server.open_files()
    crossings: list[Crossing] = []
    weight: Weight | None = None
    for clients in sorted(sizes, reverse=True):
        watch = _Watch(server)
        crowd = Crowd(server.address, server.dialect, clients, "i")
        try:
            connected = watch.read()
            if weight is None:
                time.sleep(REST_S)
                held = server.memory_bytes()
                crowd.subscribe(_filters)
                time.sleep(REST_S)
                weight = Weight(
                    clients, (held - before) / clients, (server.memory_bytes() - before) / clients
                )
            else:
                crowd.subscribe(_filters)
            watch = _Watch(server)
        finally:
            crowd.close()
        _digested(server, files)
        gone = watch.read()
        watch = _Watch(server)
        with Crowd(server.address, server.dialect, clients, "i") as crowd:
            crowd.subscribe(_filters)
            back = watch.read()
        _digested(server, files)
        crossings.append(Crossing(clients, *connected, *gone, *back))
    assert weight is not None, "there is at least one size"
    return Idle(server.name, weight, tuple(crossings))


def _digested(server: Server, files: int) -> None:
    deadline = time.monotonic() + DIGEST_S
    while server.open_files() > files:
        if time.monotonic() > deadline:
            raise LoadError(f"{server.name} still holds connections {DIGEST_S:g} s after their end")
        time.sleep(LOOK_S)
