"""Priority: how urgent a message is, or a result of a channel: 0 … 9. From CRITICAL on it is critical, and overtakes.

A publisher says it of a message as the MQTT 5 user property ``priority``: a digit, or the word ``critical`` for 9. The
first property of that name counts. Any other value is the publisher's own: it is passed on, and means nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PROPERTY: Final = "priority"
CRITICAL: Final = 7  # the least priority of what overtakes
MOST: Final = 9
CRITICAL_WORD: Final = "critical"

Properties = Iterable[tuple[str, str]]


def priority_of(properties: Properties) -> int:
    """The priority in user properties; 0 if there is none."""
    for name, value in properties:
        if name == PROPERTY:
            return _read(value)
    return 0


def _read(text: str) -> int:
    if text == CRITICAL_WORD:
        return MOST
    return int(text) if len(text) == 1 and text in "0123456789" else 0


def property_of(priority: int | str) -> tuple[str, str]:
    """The user property that says it. ``ValueError`` for what is no priority."""
    text = str(priority)
    if text != CRITICAL_WORD and str(_read(text)) != text:
        raise ValueError(f"a priority is 0 to {MOST}, or {CRITICAL_WORD!r}, not {priority!r}")
    return PROPERTY, text
