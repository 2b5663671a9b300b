"""A table whose plain reads are answered by a server that has missed what was written lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.ports import Cell, Table


class OldNews:
    """Plain reads show what was remembered, and nothing else; fresh reads show what there is."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._old: dict[str, Cell] = {}

    async def remember(self, key: str) -> None:
        """Plain reads show this key as it is now, from now on."""
        cell = await self._table.get(key)
        assert cell is not None, "there is something to remember"
        self._old[key] = cell

    async def now(self, key: str) -> Cell | None:
        """What there is."""
        return await self._table.get(key, fresh=True)

    async def get(self, key: str, *, fresh: bool = False) -> Cell | None:
        return await self._table.get(key, fresh=True) if fresh else self._old.get(key)

    async def get_many(self, keys: Sequence[str], *, fresh: bool = False) -> dict[str, Cell]:
        if fresh:
            return await self._table.get_many(keys, fresh=True)
        return {key: self._old[key] for key in keys if key in self._old}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)
