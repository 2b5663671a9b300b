"""Repeats: QoS 1 messages that a client has acknowledged and may get again after a break.

The broker, or another that took the session over, may not know of the last acknowledgements. So the last REMEMBERED are
remembered, and what comes again on the next connection is recognised. As the messages of a track are in order, and
their packet ids follow it (``core.delivery.window``), a message that is neither remembered nor marked as a repeat ends
the memory of what is before it on its track. Later messages may still come again: a subscription made at a broker that
lags the log brings older messages. It does not affect the other tracks: a new result may overtake a message that comes
again. Packet ids tell tracks apart; those of brokers that know no tracks are mostly of one.

Only what was acknowledged lately counts, because packet ids come again, and a sensor says the same a thousand times:
``age`` is called now and then, and what was acknowledged before the call before is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

from tocsin.core.delivery.window import CRITICAL, CRITICAL_MESSAGES, MESSAGES, RESULTS, Ids

# More than a broker repeats after a crash: it stores positions twice a second or so.
REMEMBERED: Final = 4_096

_TRACKS: Final = (MESSAGES, CRITICAL_MESSAGES, RESULTS, CRITICAL)


class Repeats:
    """Recognises QoS 1 messages that a client gets again after a reconnect."""

    def __init__(self) -> None:
        self._age = 0
        self._remembered: deque[tuple[int, Hashable, int]] = deque(maxlen=REMEMBERED)  # id, content, age
        # Of these, what may come again on this connection: track → packet id → content.
        self._expected: dict[Ids | None, dict[int, Hashable]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._remembered)

    def begin(self, resumed: bool) -> None:
        """There is a connection; ``resumed``: in the same session as the one before."""
        if not resumed:
            self._remembered.clear()
        self._expected = {}
        for packet_id, content, _ in self._remembered:
            self._expect(packet_id, content)

    def age(self) -> None:
        self._age += 1
        while self._remembered and self._remembered[0][2] < self._age - 1:
            self._remembered.popleft()

    def acknowledged(self, packet_id: int, content: Hashable, *, heard: bool = True) -> None:
        """A message is dealt with; ``heard``: and the broker that sent it is there to be told."""
        self._remembered.append((packet_id, content, self._age))
        if not heard:
            self._expect(packet_id, content)

    def _expect(self, packet_id: int, content: Hashable) -> None:
        self._expected.setdefault(_track_of(packet_id), {})[packet_id] = content

    def is_repeat(self, packet_id: int, content: Hashable, qos: int, marked: bool) -> bool:
        """Whether a message that came was acknowledged before; ``marked`` as a repeat by the broker."""
        track = _track_of(packet_id)
        expected = self._expected.get(track)
        if not expected:
            return False
        if expected.pop(packet_id, None) == content and qos == 1:
            return True
        if not marked:
            self._expected[track] = {
                each: content
                for each, content in expected.items()
                if track and track.precedes(packet_id, each)
            }
        return False


def _track_of(packet_id: int) -> Ids | None:
    """The track that a packet id is of; None: of none."""
    return next((each for each in _TRACKS if packet_id in each), None)
