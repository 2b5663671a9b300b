"""Bugs in how the log is read by interest, planted in the shipped classes: what ``durable`` has to find."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tocsin.broker.delivery.message_log import MessageLog
from tocsin.core.delivery import reading, wanted
from tocsin.core.delivery.reading import Reading

Bug = Callable[[pytest.MonkeyPatch], None]


def drops_interest_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A filter that was read once counts as read for ever, though a later reader does not bring it."""
    covers = Reading.covers
    ever: dict[int, set[str]] = {}

    def remembering(self: Reading, topic_filter: str) -> bool:
        known = ever.setdefault(id(self), set())
        if covers(self, topic_filter):
            known.add(topic_filter)
        return topic_filter in known

    patch.setattr(Reading, "covers", remembering)
    patch.setattr(reading, "CALM_US", 1)


def begins_before_it_reads(patch: pytest.MonkeyPatch) -> None:
    """A subscription begins at the tail, and its filter comes to the reader later."""

    async def at_once(self: MessageLog, filters: Sequence[str]) -> int:
        return self.tail

    patch.setattr(MessageLog, "cover", at_once)
    patch.setattr(MessageLog, "is_covered", lambda self, filters: True)


def takes_coarse_for_exact(patch: pytest.MonkeyPatch) -> None:
    """A filter that is cut off is read as if it ended there."""
    patch.setattr(wanted, "cut", lambda topic_filter, levels: "/".join(topic_filter.split("/")[:levels]))
    patch.setattr(Reading, "_calm", lambda self, now_us: wanted.Level.HEADS)
    begin = Reading.__init__

    def coarse(self: Reading, mode: reading.Mode = "wanted") -> None:
        begin(self, mode)
        self.level = wanted.Level.HEADS

    patch.setattr(Reading, "__init__", coarse)
    patch.setattr(Reading, "covers", lambda self, topic_filter: self.filters is not None)


def counts_more_than_was_told(patch: pytest.MonkeyPatch) -> None:
    """The tail moves beyond what the store has told to be read."""
    reach = MessageLog._reach
    patch.setattr(MessageLog, "_reach", lambda self, position: reach(self, position + 3))
