"""A finished plan: each broker's backups, their cost, and where there was no room.

The paper's symbols: ``local`` is x, ``remote`` is y, ``overhead[j]`` is O[j], ``remote_overhead[j]`` is R[j],
``load[j]`` is P[j]. ``overhead_total`` and ``remote_max`` are the two objectives of equation 3.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["local", "remote"]


class Backups(msgspec.Struct, frozen=True):
    """The two backups of a broker. None: there is no broker that could be it."""

    local: str | None
    remote: str | None


class Shortfall(msgspec.Struct, frozen=True):
    """A broker without the backup that it should have.

    ``nobody``: its cluster has no other broker (local), or there is no other cluster (remote). ``capacity``: ``backup``
    was the least bad, and would have ``needed`` to carry against ``available``, which eq. 7 wants to be more.
    """

    broker: str
    role: Role
    kind: Literal["nobody", "capacity"]
    needed: float
    available: float
    backup: str | None = None

    def __str__(self) -> str:
        return self.text()

    def text(self, unit: str = "") -> str:
        """The same in words, with a unit for loads."""
        if self.kind == "nobody":
            where = "its cluster has no other broker" if self.role == "local" else "there is no other cluster"
            return f"{self.broker} has no {self.role} backup: {where}"
        needed, available = amount(self.needed, unit), amount(self.available, unit)
        return (
            f"{self.broker} has {self.backup} as {self.role} backup, which would have to carry {needed} "
            f"and can carry less than {available}: give a broker more capacity, or add one"
        )


def amount(load: float, unit: str = "") -> str:
    """A load in words."""
    return f"{load:,.0f} {unit}" if unit else f"{load:g}"


class Plan(msgspec.Struct, frozen=True):
    """Backups for every broker, with the figures of equations 1, 2 and 7 by broker."""

    strategy: str
    backups: dict[str, Backups]
    overhead: dict[str, int]
    remote_overhead: dict[str, int]
    load: dict[str, float]
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def overhead_total(self) -> int:
        """Σ O[j]: subscriptions at the backend that are there for local backups alone."""
        return sum(self.overhead.values())

    @property
    def remote_max(self) -> int:
        """max R[j]: the most that one broker would have to create when clusters are lost."""
        return max(self.remote_overhead.values(), default=0)


class Move(msgspec.Struct, frozen=True):
    """A backup that is another one than before, and why.

    ``new``: the broker had none. ``lost``: the backup is gone, or is in the wrong cluster by now. ``capacity``: it
    has no room any more. ``better``: the change saves ``saved`` subscriptions, this move's share of it.
    """

    broker: str
    role: Role
    before: str | None
    after: str | None
    reason: Literal["new", "lost", "capacity", "better"]
    saved: int = 0


class Replan(msgspec.Struct, frozen=True):
    """A plan that was made from another, and what moved."""

    plan: Plan
    moves: tuple[Move, ...]
