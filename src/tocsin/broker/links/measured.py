"""The delays of a broker's links as distributions: answers to pings, and how often the kernel sent segments again.

What is **shown** of a link changes only when it differs by much, or is old. So what follows from it is not worked out
again with every ping.

A ping that is answered late was followed by none: those that would have been late as well are counted with it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tocsin.core.links.delay import MILLION, Delay, DelayHistogram
from tocsin.runtime.machines.flow import Repeats

EVERY_US: Final = 200_000  # between two pings of a link that is measured, at first …
KNOWN: Final = 60  # … and after so many answers …
CALM_US: Final = 500_000  # … so long: each ping costs as much as a small message
KEEP_US: Final = 10_000_000  # what is shown is so old at most
UNASKED_MAX: Final = 20  # pings that one late answer stands for
SEGMENTS: Final = 100  # sent, before their share of repeated ones says something
PEERS_MAX: Final = 256


class _Shown(NamedTuple):
    delay: Delay
    at_us: int


class _Peer:
    __slots__ = ("answers", "asked_us", "floor_us", "histogram", "repeated", "seen", "sent", "shown")

    def __init__(self) -> None:
        self.histogram = DelayHistogram()
        self.answers = 0
        self.asked_us: int | None = None  # when it was due last
        self.floor_us: int | None = None
        self.seen: Repeats | None = None  # the kernel's figures when they were read last
        self.sent = self.repeated = 0  # segments, faded
        self.shown: _Shown | None = None

    @property
    def every_us(self) -> int:
        return EVERY_US if self.answers < KNOWN else CALM_US


class LinkDelays:
    """The delays of links, by peer."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}

    def is_due(self, peer: str, now_us: int) -> bool:
        """Whether a peer is to be asked now; if so, it counts as asked."""
        known = self._peer(peer)
        if known.asked_us is not None and now_us - known.asked_us < known.every_us:
            return False
        known.asked_us = now_us
        return True

    def _peer(self, peer: str) -> _Peer:
        known = self._peers.get(peer)
        if known is None:
            while len(self._peers) >= PEERS_MAX:
                del self._peers[next(iter(self._peers))]
            known = self._peers[peer] = _Peer()
        return known

    def measured(self, peer: str, round_trip_us: int, now_us: int) -> None:
        """A ping was answered."""
        known = self._peer(peer)
        known.answers += 1
        known.histogram.add(round_trip_us, now_us)
        floor_us = round_trip_us if known.floor_us is None else min(known.floor_us, round_trip_us)
        known.floor_us = floor_us
        every_us = max(known.every_us, floor_us)  # the next ping waits for the answer to the one before
        for _ in range(UNASKED_MAX):
            round_trip_us -= every_us
            if round_trip_us <= floor_us + every_us // 2:
                break
            known.histogram.add(round_trip_us, now_us)

    def repeats(self, peer: str, seen: Repeats | None) -> None:
        """So many segments were sent, and sent again, on the connection that there is."""
        known = self._peers.get(peer)
        if known is None or seen is None:
            return
        before, known.seen = known.seen, seen
        if before is None or seen.sent < before.sent:
            before = Repeats(0, 0, 0)
        known.sent += seen.sent - before.sent
        known.repeated += max(0, seen.repeated - before.repeated)
        if known.sent > 100 * SEGMENTS:
            known.sent, known.repeated = known.sent // 2, known.repeated // 2

    def forget(self, peer: str) -> None:
        self._peers.pop(peer, None)

    def shown(self, peer: str, now_us: int) -> Delay | None:
        """The delay of a round trip; None: nothing is known of it."""
        known = self._peers.get(peer)
        delay = None if known is None else known.histogram.delay(now_us)
        if known is None or delay is None:
            return None
        if known.sent >= SEGMENTS and known.seen is not None:
            ppm = min(MILLION, known.repeated * MILLION // known.sent)
            delay = delay.repeating(ppm, known.seen.after_us)
        before = known.shown
        fresh = before is not None and now_us - before.at_us < KEEP_US
        if (
            before is None
            or not fresh
            or before.delay.differs(delay)
            or before.delay.samples * 2 <= delay.samples
        ):
            known.shown = before = _Shown(delay, now_us)
        return before.delay
