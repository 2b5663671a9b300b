"""The stamp of a message at QoS 0: who published it, and its number, where its stream offers what depends on that.

A **flow** is what one connection publishes on one topic. Its broker numbers its messages from 1 on, and writes the
stamp into a user property that no client can set. It travels over links; clients never see it. A new connection is a
new flow: numbers of the one say nothing of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.model.quality import Flow

STAMP: Final = "$flow"
_VERSION: Final = "1"
_FIELDS: Final = 8

Properties = Sequence[tuple[str, str]]


class Stamp(msgspec.Struct, frozen=True):
    """What a broker says of a message of its client."""

    flow: Flow
    number: int
    sent_us: int  # by that broker's clock
    strength: int = 0  # of exclusive ownership
    reliable: bool = False  # it is kept, and sent again to those who lack it


def stamp_text(stamp: Stamp) -> str:
    flow = stamp.flow
    numbers = f"{flow.epoch} {stamp.number} {stamp.sent_us} {stamp.strength} {int(stamp.reliable)}"
    return f"{_VERSION} {numbers} {flow.broker} {flow.client}"


def stamp_of(properties: Properties, topic: str) -> Stamp | None:
    """The stamp of a message that came over a link; None: it has none, or one of a later version."""
    for key, value in properties:
        if key == STAMP:
            return _read(value, topic)
    return None


def _read(text: str, topic: str) -> Stamp | None:
    parts = text.split(" ", _FIELDS - 1)
    numbers = parts[1:6]
    if len(parts) != _FIELDS or parts[0] != _VERSION:
        return None
    if not all(each.isascii() and each.isdecimal() and len(each) < 20 for each in numbers):
        return None
    epoch, number, sent_us, strength, reliable = map(int, numbers)
    return Stamp(Flow(topic, parts[7], epoch, parts[6]), number, sent_us, strength, bool(reliable))


def without_stamp(properties: Properties) -> list[tuple[str, str]]:
    return [(key, value) for key, value in properties if key != STAMP]


def is_stamped(properties: Properties) -> bool:
    return any(key == STAMP for key, _ in properties)
