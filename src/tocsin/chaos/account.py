"""The account of a run: what was published, acknowledged and delivered, and what went wrong in between.

A **stream** has messages numbered from 0 in the order in which they were published. A **receiver** is a subscriber, or
a shared group as a whole. Each is expected to get every acknowledged message of the streams that it hears, from the
first on: what was published before it was subscribed is not in the account.

- **lost**: acknowledged, and never delivered to a receiver that hears its stream. A message that was not acknowledged,
  or was **refused** because there is no room for it, promises nothing; its number may be missing.
- **repeated**: delivered to a receiver more than once. At QoS 2 on both sides (``once``) that breaks a promise. At
  QoS 1 a publisher that gets no answer publishes again, and then every subscriber has it twice; what only some have
  twice (``repeated_to_some``) was delivered again, past the client that drops repeats.
- **out of order**: delivered for the first time after a later one of its stream. A repeat is not out of order, and
  a group (not ``ordered``) has none, for nobody promises it.
- **strange**: nothing that was published: not a number of the stream, or not a stream that the receiver hears.

A fault is **recovered** from when every receiver has got, from every stream that it hears, a message that was published
after the fault began. That includes receivers that the fault did not touch: they take one period of the load.

Nothing here reads a clock. Memory is a number for each message, and an entry for each gap that is open.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

EXAMPLES_MAX: Final = 20  # descriptions of failures


class Promise(msgspec.Struct, frozen=True):
    """The promises to a receiver about a stream, beyond that nothing is lost."""

    once: bool = False
    ordered: bool = True


class Spread(msgspec.Struct, frozen=True):
    """Statistics of the recovery times, in seconds."""

    p50: float
    p95: float
    longest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None if there are none."""
        ordered = sorted(values)
        return cls(_rank(ordered, 50), _rank(ordered, 95), ordered[-1]) if ordered else None


class Totals(msgspec.Struct, frozen=True):
    """The figures of a run."""

    published: int
    acknowledged: int
    expected: int  # deliveries that were promised: acknowledged messages times those who hear them
    delivered: int  # for the first time, to each receiver
    lost: int
    repeated: int  # where once was not promised, to one subscriber
    repeated_to_some: int  # of these, what others who hear the stream got less often
    repeated_shared: int  # where once was not promised, to a group: perhaps to two of its members
    repeated_once: int  # where it was
    out_of_order: int
    strange: int
    unrecovered: int  # faults after which somebody heard no more of a stream
    recovery: Spread | None
    examples: tuple[str, ...]
    refused: int = 0  # the network said that it has no room

    @property
    def kept(self) -> bool:
        """Whether every promise was."""
        wrong = (self.lost, self.repeated_once, self.out_of_order, self.strange, self.unrecovered)
        return not any(wrong)


class _Stream:
    def __init__(self) -> None:
        self.sent_s = array("d")  # when each was published, by number
        self.unacknowledged: set[int] = set()
        self.refused: set[int] = set()

    @property
    def acknowledged(self) -> int:
        return len(self.sent_s) - len(self.unacknowledged) - len(self.refused)


class _Track:
    """One stream at one receiver."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.newest = -1  # the highest number that came
        self.missing: set[int] = set()  # numbers below it that did not
        self.repeats: Counter[int] = Counter()  # how often a number came again
        self.late = 0  # came for the first time after a higher one

    def take(self, number: int) -> None:
        if number > self.newest:
            self.missing.update(range(self.newest + 1, number))
            self.newest = number
        elif number in self.missing:
            self.missing.remove(number)
            self.late += 1
        else:
            self.repeats[number] += 1

    @property
    def repeated(self) -> int:
        return self.repeats.total()

    @property
    def delivered(self) -> int:
        return self.newest + 1 - len(self.missing)

    def lost(self, stream: _Stream) -> list[int]:
        beyond = range(self.newest + 1, len(stream.sent_s))
        return sorted(({*self.missing, *beyond}) - stream.unacknowledged - stream.refused)


class _Fault:
    def __init__(self, at_s: float, waiting: set[tuple[str, str]]) -> None:
        self.at_s = at_s
        self.waiting = waiting  # (receiver, stream) that have heard nothing newer
        self.recovery_s: float | None = None if waiting else 0.0


class Account:
    """Counts what a load published, had acknowledged and received, and finds every broken promise."""

    def __init__(self) -> None:
        self.strange = 0
        self._streams: dict[str, _Stream] = {}
        self._tracks: dict[tuple[str, str], _Track] = {}  # by receiver and stream
        self._faults: list[_Fault] = []
        self._open: list[_Fault] = []  # those not recovered from

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def expect(self, receiver: str, stream: str, promise: Promise) -> None:
        """A receiver hears a stream from its first message on."""
        known = self._streams.setdefault(stream, _Stream())
        assert not known.sent_s, "receivers that come later are not in the account"
        self._tracks[receiver, stream] = _Track(promise)

    def published(self, stream: str, at_s: float) -> int:
        """The next message of a stream is on its way: its number."""
        known = self._streams[stream]
        number = len(known.sent_s)
        known.sent_s.append(at_s)
        known.unacknowledged.add(number)
        return number

    def acknowledged(self, stream: str, number: int) -> None:
        """The network has it."""
        self._streams[stream].unacknowledged.discard(number)

    def refused(self, stream: str, number: int) -> None:
        """The network has no room for it, and has said so."""
        self._streams[stream].unacknowledged.discard(number)
        self._streams[stream].refused.add(number)

    def delivered(self, receiver: str, stream: str, number: int, at_s: float) -> None:
        """A receiver was given a message."""
        track = self._tracks.get((receiver, stream))
        if track is None or not 0 <= number < len(self._streams[stream].sent_s):
            self.strange += 1
            return
        track.take(number)
        if self._open:
            self._heard((receiver, stream), self._streams[stream].sent_s[number], at_s)

    def _heard(self, pair: tuple[str, str], sent_s: float, at_s: float) -> None:
        for fault in self._open:
            if sent_s >= fault.at_s:
                fault.waiting.discard(pair)
                if not fault.waiting:
                    fault.recovery_s = at_s - fault.at_s
        self._open = [fault for fault in self._open if fault.waiting]

    def broken(self, at_s: float) -> int:
        """A fault begins: its number, for ``recovery_s``."""
        fault = _Fault(at_s, set(self._tracks))
        self._faults.append(fault)
        if fault.waiting:
            self._open.append(fault)
        return len(self._faults) - 1

    # ── what is known ───────────────────────────────────────────────────────────────────────────────────────

    def recovery_s(self, fault: int) -> float | None:
        """How long it took until all heard again; None while somebody does not."""
        return self._faults[fault].recovery_s

    def waiting(self, fault: int) -> list[tuple[str, str]]:
        """The receivers, each with a stream, that have heard nothing since."""
        return sorted(self._faults[fault].waiting)

    @property
    def begun(self) -> bool:
        """Whether every receiver has heard every one of its streams."""
        return all(track.newest >= 0 for track in self._tracks.values())

    @property
    def recovered(self) -> bool:
        """Whether all have heard again after every fault."""
        return not self._open

    @property
    def settled(self) -> bool:
        """Whether all is acknowledged or refused, and what was acknowledged has been delivered."""
        return not any(stream.unacknowledged for stream in self._streams.values()) and self.complete

    @property
    def complete(self) -> bool:
        """Whether everything that was acknowledged has been delivered."""
        return not any(track.lost(self._streams[name]) for (_, name), track in self._tracks.items())

    def totals(self) -> Totals:
        """The figures as they are now."""
        streams, tracks = self._streams, self._tracks
        lost = {pair: track.lost(streams[pair[1]]) for pair, track in tracks.items()}
        often = [track for track in tracks.values() if not track.promise.once]
        return Totals(
            published=sum(len(stream.sent_s) for stream in streams.values()),
            acknowledged=sum(stream.acknowledged for stream in streams.values()),
            expected=sum(streams[name].acknowledged for _, name in tracks),
            delivered=sum(track.delivered for track in tracks.values()),
            lost=sum(map(len, lost.values())),
            repeated=sum(track.repeated for track in often if track.promise.ordered),
            repeated_to_some=self._repeated_to_some(),
            repeated_shared=sum(track.repeated for track in often if not track.promise.ordered),
            repeated_once=sum(track.repeated for track in tracks.values() if track.promise.once),
            out_of_order=sum(track.late for track in tracks.values() if track.promise.ordered),
            strange=self.strange,
            unrecovered=len(self._open),
            recovery=Spread.of(each.recovery_s for each in self._faults if each.recovery_s is not None),
            examples=self._examples(lost),
            refused=sum(len(stream.refused) for stream in streams.values()),
        )

    def _repeated_to_some(self) -> int:
        by_stream: dict[str, list[_Track]] = {}
        for (_, stream), track in self._tracks.items():
            if track.promise.ordered:
                by_stream.setdefault(stream, []).append(track)
        return sum(
            times - min(other.repeats[number] for other in alike)
            for alike in by_stream.values()
            for track in alike
            if not track.promise.once
            for number, times in track.repeats.items()
        )

    def _examples(self, lost: dict[tuple[str, str], list[int]]) -> tuple[str, ...]:
        words = [
            f"{receiver} never got {_some(numbers)} of {stream}"
            for (receiver, stream), numbers in lost.items()
            if numbers
        ]
        for (receiver, stream), track in self._tracks.items():
            if track.promise.once and track.repeated:
                words.append(f"{receiver} got {track.repeated} of {stream} more than once, at QoS 2")
            if track.promise.ordered and track.late:
                words.append(f"{receiver} got {track.late} of {stream} after later ones")
        return tuple(words[:EXAMPLES_MAX])


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"


def _rank(ordered: Sequence[float], percent: int) -> float:
    """The least value that is not below so many percent of them (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
