"""A member's reports of what it carries: told when that changed by a quarter, and now and then in any case.

A report may be lost, and a leader that was just elected has none: a member tells it at once what it measured last.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.coordination.participant.signals import LoadMeasured
from tocsin.core.tiers.measuring import Measured
from tocsin.wire.internal.control import Load

MUCH: Final = 4  # a change of a quarter
LITTLE: Final = 50  # thousandths of a processor; less is not worth telling
KEEP_US: Final = 10_000_000


class LoadReports:
    """Reports one member's load to the leader."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._measured, self._busy = Measured(), 0
        self._told: Load | None = None  # None: the leader knows nothing
        self._epoch = 0  # of that leader
        self._told_us = 0

    def see(self, seen: LoadMeasured, incarnation: int, epoch: int, now_us: int) -> Load | None:
        """What was measured; what to tell, if there is something to tell. ``epoch`` says who leads."""
        if epoch != self._epoch:
            self._epoch, self._told = epoch, None
        if seen.measured is not None:
            self._measured, self._busy = seen.measured, round(min(max(seen.busy, 0.0), 1.0) * 1_000)
        if not incarnation or not epoch:
            return None
        measured = self._measured
        load = Load(
            self._broker,
            incarnation,
            self._busy,
            measured.messages_s,
            measured.bytes_s,
            measured.links,
            measured.clusters,
            measured.slots,
            measured.topics,
        )
        told = self._told
        fresh = told is None or told.incarnation != incarnation
        if not fresh and (
            seen.measured is None or not (differs(told, load) or now_us - self._told_us >= KEEP_US)
        ):
            return None
        self._told, self._told_us = load, now_us
        return load


def differs(told: Load | None, now: Load) -> bool:
    """Whether a leader that was told the first should hear of the second."""
    if told is None:
        return True
    if abs(told.busy - now.busy) > max(LITTLE, max(told.busy, now.busy) // MUCH):
        return True
    for before, after in ((told.messages_s, now.messages_s), (told.bytes_s, now.bytes_s)):
        if abs(before - after) * MUCH > max(before, after):
            return True
    before_of = {each.slot: each.messages_s for each in told.slots}
    after_of = {each.slot: each.messages_s for each in now.slots}
    slots = before_of.keys() | after_of.keys()
    change = sum(abs(before_of.get(slot, 0) - after_of.get(slot, 0)) for slot in slots)
    return change * MUCH > max(told.messages_s, now.messages_s)
