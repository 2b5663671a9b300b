"""The level of the protocol at which a network works, and which processes fit in (``model.versions``).

A network has a **level**: what it stores and says is what every process of that level can read. The level is in the
command log (``Elected``, ``Raised``), and never falls: what was written at a level is there to be read.

A broker **fits** if it speaks the network's level, and has a level in common with every member and the leader. The
leader raises the level to the highest that all of them speak, when that has been so for a while (``RAISE_AFTER_US``):
a broker of the old release that is away for a restart is not locked out.

Members that say no level are of release 0.1.0. They are in the state of a network that was stopped by force; a process
of that release cannot read what ours say, so they count for nothing, and leave when they are missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tocsin.model.versions import Levels

ANY: Final = 1 << 16  # a level that nobody reaches: nobody has said what it speaks
RAISE_AFTER_US: Final = (
    600_000_000  # longer than a restart by hand, or a rolling upgrade's pause between two brokers
)


def common(level: int, spoken: Iterable[Levels]) -> Levels:
    """The levels that all of them speak, from the network's on. None is, if the oldest is above the newest."""
    said = [each for each in spoken if each.newest]
    return Levels(max((level, *(each.oldest for each in said))), min((ANY, *(each.newest for each in said))))


def fits(newcomer: Levels, network: Levels) -> bool:
    """Whether a process that speaks these can join a network whose processes speak those; a process that states none is
    in the log of release 0.1.0, and none joins like that any more.
    """
    return not newcomer.newest or (newcomer.newest >= network.oldest and newcomer.oldest <= network.newest)
