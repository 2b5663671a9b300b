"""Backups that have no room go where there is some.

From an overfull broker's group, a member that is large enough goes before others, then the one whose move adds least.
If none can go, one changes places with a lighter one; if none can do that, a third makes room first, by going
elsewhere. Each of these takes load from an overfull broker and overfills none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tocsin.core.assignment.search.neighbourhood import Neighbourhood, Step
from tocsin.core.assignment.side import NEVER
from tocsin.core.assignment.table import Ints

STEPS_MAX: Final = 4  # for each broker; exchanges could go on for long for little


def relieve(hood: Neighbourhood) -> None:
    """Do what can be done for eq. 7 on this side."""
    draft = hood.draft
    for backup in np.flatnonzero(draft.carried >= draft.room).tolist():
        for _ in range(STEPS_MAX * draft.table.count):
            if draft.carried[backup] < draft.room[backup]:
                break
            steps = _leaving(hood, backup) or _exchanging(hood, backup) or _making_room(hood, backup)
            if not steps:
                break
            for step in steps:
                hood.make(step)


def _leaving(hood: Neighbourhood, backup: int) -> list[Step]:
    draft, load, group = hood.draft, hood.draft.table.load, hood.side.group[backup]
    options: list[tuple[bool, int, Step]] = []
    for broker, places in zip(group, hood.places(_numbers(group)), strict=True):
        place = int(np.argmin(places))
        if load[broker] > 0 and places[place] < NEVER:
            enough = bool(draft.carried[backup] - load[broker] < draft.room[backup])
            gain = int(hood.saved[broker] - places[place])
            options.append((not enough, -gain, Step(gain, broker, place)))
    return [min(options)[2]] if options else []


def _exchanging(hood: Neighbourhood, backup: int) -> list[Step]:
    side, draft, load, group = hood.side, hood.draft, hood.draft.table.load, hood.side.group[backup]
    options: list[tuple[float, int, Step]] = []
    for broker, may, there, here in zip(group, *hood.exchanges(_numbers(group)), strict=True):
        gains = hood.saved[broker] + hood.saved - there - here
        for partner in np.flatnonzero(may & (load < load[broker])).tolist():
            left = float(draft.carried[backup] - load[broker] + load[partner])
            gain = int(gains[partner])
            step = Step(gain, broker, int(side.chosen[partner]), partner)
            options.append((left if left >= draft.room[backup] else 0.0, -gain, step))
    return [min(options)[2]] if options else []


def _making_room(hood: Neighbourhood, backup: int) -> list[Step]:
    side, draft, load = hood.side, hood.draft, hood.draft.table.load
    for broker in sorted(side.group[backup], key=lambda each: -load[each]):
        if not load[broker] > 0:
            continue
        for place in np.flatnonzero(side.allowed[broker]).tolist():
            if place == backup:
                continue
            for third in side.group[place]:
                if not draft.carried[place] - load[third] + load[broker] < draft.room[place]:
                    continue
                elsewhere = hood.places(_numbers([third]))[0]
                elsewhere[backup] = NEVER
                there = int(np.argmin(elsewhere))
                if elsewhere[there] < NEVER:
                    return [Step(0, third, there), Step(0, broker, place)]
    return []


def _numbers(brokers: Sequence[int]) -> Ints:
    return np.array(brokers, dtype=np.int64)
