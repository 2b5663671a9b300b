"""Whether anybody else in the network subscribes to what is written here: an answer for each topic with writers.

A topic counts as unwanted until there is an answer. A *no* after a *yes* counts after UNWANTED_US: a subscriber that
has lost its broker is gone for a moment, and what is written meanwhile waits for it in the log. A question outlives the
last writer by FORGET_US, so that a writer that restarts does not have it asked anew each time.
"""

from __future__ import annotations

from typing import Final

from tocsin.bridge.dds.mapping import Names
from tocsin.bridge.dds.signals import AskWanted, StopAsking
from tocsin.core.machine import Effect, SetTimer

UNWANTED_US: Final = 60_000_000
FORGET_US: Final = 10_000_000
COOL: Final = "unwanted "  # a timer, and a topic
FORGET: Final = "forget "  # a timer, and a topic


class Demand:
    """The questions that are asked, and their answers."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._wanted: dict[str, bool | None] = {}  # by topic; None: not told yet
        self._cooling: set[str] = set()  # topics that are not wanted any more, but were a moment ago

    def wanted(self, topic: str) -> bool:
        return bool(self._wanted.get(topic))

    @property
    def idle(self) -> int:
        """Topics that are written here and wanted nowhere else."""
        return sum(not wanted for wanted in self._wanted.values())

    def written(self, topic: str, written: bool) -> list[Effect]:
        """Whether a topic has writers here."""
        if written and topic not in self._wanted:
            self._wanted[topic] = None
            return [AskWanted(topic=self._names.mqtt(topic))]
        if not written and topic in self._wanted:
            return [SetTimer(name=FORGET + topic, delay_us=FORGET_US)]
        return []

    def forget(self, topic: str) -> list[Effect]:
        """A topic has had no writers for a while."""
        if topic not in self._wanted:
            return []
        del self._wanted[topic]
        self._cooling.discard(topic)
        return [StopAsking(topic=self._names.mqtt(topic))]

    def told(self, topic: str, wanted: bool) -> tuple[bool, list[Effect]]:
        """An answer came: whether it changes what counts, and what to do."""
        if topic not in self._wanted:
            return False, []
        before = self._wanted[topic]
        if before and not wanted:
            self._cooling.add(topic)
            return False, [SetTimer(name=COOL + topic, delay_us=UNWANTED_US)]
        self._cooling.discard(topic)
        self._wanted[topic] = wanted
        return bool(before) != wanted, []

    def cooled(self, topic: str) -> bool:
        """A topic was unwanted for a while: whether it still is."""
        if topic not in self._cooling:
            return False
        self._cooling.discard(topic)
        self._wanted[topic] = False
        return True
