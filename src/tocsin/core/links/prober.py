"""Measures the way to other brokers: the round trip and the bandwidth, by probes over their listener for links.

A probe is a connection of its own, with the certificates of a link. It brings no message; the peer answers PINGREQ and
drops what comes on ``$probe`` (``core.links.incoming``). One probe is made at a time.

- **pinging**: PINGS round trips, one after the other. The shortest is the delay: peers that are busy make it longer,
  and never shorter.
- **trying**, **filling**: so many bytes and a PINGREQ behind them. The bandwidth is what of the time is beyond the
  delay. The small bulk comes first. If it says that the large one would take longer than LONG_US, it is the result:
  a slow link must not be blocked for a measurement.

A peer that does not say that it takes probes is of an earlier release: it answers PINGREQ, and gets no bulk.

Bounds: WANTED_MAX peers; BULK_MAX_BYTES of one probe; PROBE_US for it; GAP_US between two, and up to as much again, by
the names of both, so that standbys that are asked at the same time do not measure each other. A result is good for
VALID_US; from AGAIN_US on it is measured anew when somebody asks.

Transitions of ``Prober``:

    idle      ProbeLost → nothing
    waiting   TimerFired → idle, waiting, dialling
              ProbeLost → nothing
    dialling  ProbeOpened → pinging
              ProbeLost → idle, waiting
    pinging   Answered → idle, waiting, trying
              ProbeLost → idle, waiting
    trying    Answered → idle, waiting, filling
              ProbeLost → idle, waiting
    filling   Answered, ProbeLost → idle, waiting
    *         Wanted, TimerFired → idle, waiting
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, Final
from zlib import crc32

import msgspec

from tocsin.core.machine import CancelTimer, Effect, Event, SetTimer, Table, TableMachine, TimerFired
from tocsin.model.network import BrokerInfo
from tocsin.wire.internal.summaries import UNMEASURED

PINGS: Final = 4
SMALL_BYTES: Final = 8 << 10  # goes out at once: TCP begins with some 14 KB
LARGE_BYTES: Final = 96 << 10
BULK_MAX_BYTES: Final = SMALL_BYTES + LARGE_BYTES
LONG_US: Final = 1_000_000
PROBE_US: Final = 5_000_000
GAP_US: Final = 1_000_000
AGAIN_US: Final = 300_000_000
RETRY_US: Final = 60_000_000  # after one that failed
VALID_US: Final = 900_000_000
WANTED_MAX: Final = 32
LEAST_US: Final = 100  # what takes less cannot be told from nothing: 8 Gbit/s with the large bulk


class ProberState(StrEnum):
    """What a prober does."""

    IDLE = "idle"
    WAITING = "waiting"
    DIALLING = "dialling"
    PINGING = "pinging"
    TRYING = "trying"
    FILLING = "filling"


class ProberTimer(StrEnum):
    """The timers of a prober."""

    NEXT = "next"  # whose turn it is
    DEADLINE = "deadline"  # of one probe


class Wanted(Event, frozen=True, kw_only=True):
    """Measure the way to these peers, unless that is known."""

    peers: tuple[BrokerInfo, ...]


class ProbeOpened(Event, frozen=True, kw_only=True):
    """The peer has answered."""

    takes: int  # bytes; 0: it knows nothing of probes


class Answered(Event, frozen=True, kw_only=True):
    """PINGRESP has come."""


class ProbeLost(Event, frozen=True, kw_only=True):
    """The connection could not be made, or ended."""

    reason: str


class OpenProbe(Effect, frozen=True, kw_only=True):
    """Connect to a peer → ``ProbeOpened`` or ``ProbeLost``."""

    peer: BrokerInfo


class SendBulk(Effect, frozen=True, kw_only=True):
    """Send so many bytes (none: 0), and PINGREQ → ``Answered``."""

    size: int = 0


class EndProbe(Effect, frozen=True, kw_only=True):
    """End the connection, silently."""


class Result(msgspec.Struct, frozen=True):
    """What a probe has found, when. ``kbit_s`` 0: not known; ``problem`` says why something is not."""

    at_us: int
    delay_us: int = 0  # 0: not known
    kbit_s: int = 0
    problem: str = ""

    def is_stale(self, now_us: int) -> bool:
        return now_us - self.at_us >= (AGAIN_US if self.delay_us else RETRY_US)


class Prober(TableMachine):
    """Measures, peer by peer, for one broker."""

    timers = ProberTimer
    state: ProberState = ProberState.IDLE

    def __init__(self, own: str) -> None:
        self.made = 0
        self.failed = 0
        self.sent_bytes = 0
        self._own = own
        self._wanted: dict[str, BrokerInfo] = {}  # who was asked for last comes first
        self._results: dict[str, Result] = {}  # of those that are wanted
        self._peer = ""  # that is measured
        self._takes = 0
        self._asked_us = 0
        self._pings = 0
        self._delay_us = 0  # the shortest so far; 0: none

    def known(self, now_us: int) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
        """Round trip and bandwidth to each peer that was measured, and what is not known of the others."""
        probes: dict[str, tuple[int, int]] = {}
        unknown: dict[str, str] = {}
        for peer in self._wanted:
            result = self._results.get(peer)
            if result is None or now_us - result.at_us >= VALID_US:
                unknown[peer] = UNMEASURED
                continue
            if result.delay_us:
                probes[peer] = result.delay_us, result.kbit_s
            if result.problem:
                unknown[peer] = result.problem
        return probes, unknown

    # ── whom to measure ─────────────────────────────────────────────────────────────────────────────────────

    def _want(self, event: Wanted, now_us: int) -> list[Effect]:
        self._note(event.peers)
        return self._rest(now_us) if self.state is ProberState.IDLE else []

    def _note(self, peers: Iterable[BrokerInfo]) -> None:
        for peer in peers:
            known = self._wanted.get(peer.id)
            if known is not None and (known.host, known.port) != (peer.host, peer.port):
                self._results.pop(peer.id, None)  # it has moved
        asked = {peer.id: peer for peer in peers}
        merged = [*asked.values(), *(each for name, each in self._wanted.items() if name not in asked)]
        self._wanted = {each.id: each for each in merged[:WANTED_MAX]}
        self._results = {name: each for name, each in self._results.items() if name in self._wanted}

    def _due(self, now_us: int) -> str | None:
        """The next to measure."""
        for name in self._wanted:
            result = self._results.get(name)
            if result is None or result.is_stale(now_us):
                return name
        return None

    def _rest(self, now_us: int) -> list[Effect]:
        """Wait for the next turn; for nothing if nobody is to be measured."""
        name = self._due(now_us)
        if name is None:
            self.state = ProberState.IDLE
            return []
        self.state = ProberState.WAITING
        spread_us = crc32(f"{self._own} {name}".encode()) % GAP_US
        return [SetTimer(name=ProberTimer.NEXT, delay_us=GAP_US + spread_us)]

    def _begin(self, event: TimerFired, now_us: int) -> list[Effect]:
        name = self._due(now_us)
        if event.name != ProberTimer.NEXT or name is None:
            return self._rest(now_us)
        self._peer, self._pings, self._delay_us = name, 0, 0
        self.state = ProberState.DIALLING
        return [OpenProbe(peer=self._wanted[name]), SetTimer(name=ProberTimer.DEADLINE, delay_us=PROBE_US)]

    # ── one probe ───────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, event: ProbeOpened, now_us: int) -> list[Effect]:
        self._takes = event.takes
        self.state = ProberState.PINGING
        return self._send(0, now_us)

    def _send(self, size: int, now_us: int) -> list[Effect]:
        self._asked_us = now_us
        self.sent_bytes += size
        return [SendBulk(size=size)]

    def _ponged(self, event: Answered, now_us: int) -> list[Effect]:
        took_us = max(1, now_us - self._asked_us)
        self._delay_us = min(self._delay_us or took_us, took_us)
        self._pings += 1
        if self._pings < PINGS:
            return self._send(0, now_us)
        if self._takes < BULK_MAX_BYTES:
            return self._end(now_us, 0, "the peer takes no probes: it is of an earlier release")
        self.state = ProberState.TRYING
        return self._send(SMALL_BYTES, now_us)

    def _tried(self, event: Answered, now_us: int) -> list[Effect]:
        extra_us = self._extra_us(now_us)
        if extra_us * (LARGE_BYTES // SMALL_BYTES) > LONG_US:
            return self._end(now_us, _kbit_s(SMALL_BYTES, extra_us))
        self.state = ProberState.FILLING
        return self._send(LARGE_BYTES, now_us)

    def _filled(self, event: Answered, now_us: int) -> list[Effect]:
        return self._end(now_us, _kbit_s(LARGE_BYTES, self._extra_us(now_us)))

    def _extra_us(self, now_us: int) -> int:
        return max(now_us - self._asked_us - self._delay_us, LEAST_US)

    def _end(self, now_us: int, kbit_s: int, problem: str = "") -> list[Effect]:
        self.made += 1
        return self._over(Result(now_us, self._delay_us, kbit_s, problem), now_us)

    def _over(self, result: Result, now_us: int) -> list[Effect]:
        if self._peer in self._wanted:
            self._results[self._peer] = result
        self._peer = ""
        return [CancelTimer(name=ProberTimer.DEADLINE), EndProbe(), *self._rest(now_us)]

    def _lost(self, event: ProbeLost, now_us: int) -> list[Effect]:
        self.failed += 1
        return self._over(Result(now_us, problem=f"cannot be measured: {event.reason}"), now_us)

    def _late(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name != ProberTimer.DEADLINE or not self._peer:
            return []
        self.failed += 1
        # A link that takes longer than this for so few bytes is known to be slow: its delay counts, if there is one.
        problem = f"the measurement took longer than {PROBE_US // 1_000_000} s"
        return self._over(Result(now_us, self._delay_us, 0, problem), now_us)

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        ("*", Wanted): _want,
        (ProberState.WAITING, TimerFired): _begin,
        (ProberState.DIALLING, ProbeOpened): _open,
        (ProberState.PINGING, Answered): _ponged,
        (ProberState.TRYING, Answered): _tried,
        (ProberState.FILLING, Answered): _filled,
        ("*", TimerFired): _late,
        (ProberState.DIALLING, ProbeLost): _lost,
        (ProberState.PINGING, ProbeLost): _lost,
        (ProberState.TRYING, ProbeLost): _lost,
        (ProberState.FILLING, ProbeLost): _lost,
        (ProberState.IDLE, ProbeLost): _ignore,
        (ProberState.WAITING, ProbeLost): _ignore,
    }


def _kbit_s(size: int, took_us: int) -> int:
    return max(1, size * 8_000 // took_us)
