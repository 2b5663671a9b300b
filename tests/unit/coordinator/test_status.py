"""A coordinator's status is written when it changes, and before its cell goes."""

from __future__ import annotations

import msgspec

from tocsin.coordinator.status import AGAIN_S, PREFIX, TTL_S, Status, Teller, read_all
from tocsin.ports import TableSpec
from tocsin.store.memory.store import MemoryServer, MemoryStore

STATUS = Status("c-1", "leader", 1, 10, 3, 0, 0, 0, "here", 7)


async def test_an_unchanged_status_is_written_only_before_its_cell_goes() -> None:
    table = await MemoryStore(MemoryServer()).table(TableSpec("coordination"))
    now_s = 0.0
    teller = Teller(table, lambda: now_s)

    async def revision(status: Status) -> int:
        await teller.tell(status)
        cell = await table.get(f"{PREFIX}c-1")
        assert cell is not None
        return cell.revision

    first = await revision(STATUS)
    now_s += AGAIN_S / 2
    assert await revision(STATUS) == first
    changed = msgspec.structs.replace(STATUS, brokers=4)
    second = await revision(changed)
    assert second > first and await read_all(table) == [changed]
    now_s += AGAIN_S
    assert AGAIN_S < TTL_S and await revision(changed) > second
