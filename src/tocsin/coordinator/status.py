"""What each coordinator is doing, in a table that any of them, or nobody, needs to be asked for.

Every coordinator writes a cell of its own once a second, which goes by itself when it no longer does.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.errors import TocsinError
from tocsin.ports import Table

PREFIX: Final = "status."
TTL_S: Final = 5.0

Role = Literal["leader", "follower", "candidate", "restoring"]

_ROLES: Final[dict[str, Role]] = {
    "leading": "leader",
    "following": "follower",
    "claiming": "candidate",
    "reading": "candidate",
    "opening": "candidate",
}


class Status(msgspec.Struct, frozen=True):
    """One coordinator."""

    id: str
    role: Role
    epoch: int
    position: int  # of the command log, as far as it was applied
    brokers: int
    streams: int
    queries: int
    clients: int
    host: str
    pid: int


def describe(machine: Coordinator, host: str, pid: int) -> Status:
    state = machine.replica
    return Status(
        id=machine.name,
        role=_ROLES.get(machine.state, "restoring"),
        epoch=machine.epoch,
        position=machine.position,
        brokers=len(state.members),
        streams=len(state.presence.streams),
        queries=len(state.matching),
        clients=len(state.presence.clients),
        host=host,
        pid=pid,
    )


async def tell(table: Table, status: Status) -> None:
    """Write it down; nothing depends on it, so that a failure is not worth more than the next try."""
    try:
        await table.put(f"{PREFIX}{status.id}", msgspec.json.encode(status), ttl_s=TTL_S)
    except TocsinError:
        return


async def read_all(table: Table) -> list[Status]:
    """Those that have written lately, in order of their ids."""
    found: list[Status] = []
    for key in await table.keys(PREFIX):
        cell = await table.get(key)
        if cell is not None:
            found.append(msgspec.json.decode(cell.value, type=Status))
    return found
