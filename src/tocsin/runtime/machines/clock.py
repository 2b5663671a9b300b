"""The time and the chance of this process, as its shells read them.

A process has one clock and one source of chance, and the simulator runs many processes in one: so both are ports that
are not handed from part to part, but read here, and replaced here (``use``). Cores read neither: they are handed
``now_us`` and random numbers with their events.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import msgspec


class Ambient(msgspec.Struct, frozen=True):
    """Where time and chance come from."""

    monotonic_ns: Callable[[], int]
    time_ns: Callable[[], int]
    token_bytes: Callable[[int], bytes]


REAL = Ambient(time.monotonic_ns, time.time_ns, secrets.token_bytes)

# Read as globals: the hot path asks for the time with every packet.
_monotonic_ns = REAL.monotonic_ns
_time_ns = REAL.time_ns
_token_bytes = REAL.token_bytes


def use(ambient: Ambient) -> None:
    """From now on time and chance come from there."""
    global _monotonic_ns, _time_ns, _token_bytes
    _monotonic_ns, _time_ns, _token_bytes = ambient.monotonic_ns, ambient.time_ns, ambient.token_bytes


def now_us() -> int:
    """The clock of nearly every machine in this process: monotonic, in microseconds."""
    return _monotonic_ns() // 1_000


def wall_us() -> int:
    """The clock of a machine that stores times which others read."""
    return _time_ns() // 1_000


def monotonic_s() -> float:
    return _monotonic_ns() / 1e9


def wall_s() -> float:
    return _time_ns() / 1e9


def token_bytes(count: int) -> bytes:
    return _token_bytes(count)


def token_hex(count: int) -> str:
    return _token_bytes(count).hex()


def random_bits(count: int) -> int:
    return int.from_bytes(_token_bytes((count + 7) // 8)) >> -count % 8
