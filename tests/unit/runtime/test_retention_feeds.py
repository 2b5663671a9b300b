"""How far the log of feeds may be trimmed."""

from __future__ import annotations

from tocsin.model.feeding import FeedCell, Intent, cell_key, encode_cell, table_spec
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.store.retention import feeds_floor


async def test_the_oldest_intent_counts_and_what_is_no_cell_does_not() -> None:
    table = await MemoryStore(MemoryServer()).table(table_spec("net"))
    assert await feeds_floor(table, 100) == 100
    await table.put("lease", b"somebody's")
    await table.put(cell_key("settled"), encode_cell(FeedCell(1, {"a": 5})))
    await table.put(cell_key("damaged"), b"?")
    assert await feeds_floor(table, 100) == 100
    for name, after in (("one", 70), ("two", 40)):
        await table.put(cell_key(name), encode_cell(FeedCell(1, {}, Intent({"a": 6}, "id", after))))
    assert await feeds_floor(table, 100) == 41
    assert await feeds_floor(table, 10) == 10
