"""A table with the cell of one group and the incarnations of brokers, as small as can be; and what its cell must never
say."""

from __future__ import annotations

from tocsin.core.machine import DeleteKey, Event, GetKey, PutKey, Stored, StoreFailed
from tocsin.core.shared.stored_group import StoredGroup, decode_group, group_key, incarnation_key
from tocsin.errors import Conflict
from tocsin.ports import Cell, Change

NAME = "$share/g/a"
KEY = group_key(NAME)

Asked = PutKey | GetKey | DeleteKey


class Table:
    """One table with every way to fail."""

    def __init__(self) -> None:
        self.cells: dict[str, Cell] = {}
        self.revision = 0
        self.history: list[Change] = []
        self.exact: dict[str, set[int]] = {}  # client → the positions that it ever claimed at QoS 2
        self.reached = 1  # every group so far had only what is below

    def execute(self, asked: Asked) -> Event:
        cell = self.cells.get(asked.key)
        if isinstance(asked, GetKey):
            return Stored(request=asked.request, value=cell)
        actual = 0 if cell is None else cell.revision
        if asked.revision != actual:
            conflict = Conflict("put", asked.revision or 0, actual)
            return StoreFailed(request=asked.request, error=conflict)
        self.revision += 1
        if isinstance(asked, DeleteKey):
            self.cells.pop(asked.key, None)  # of a group's: the next one is another
            self.history.append(Change("delete", asked.key, b"", self.revision))
            return Stored(request=asked.request)
        self.cells[asked.key] = Cell(asked.key, asked.value, self.revision)
        self.history.append(Change("put", asked.key, asked.value, self.revision))
        if asked.key == KEY:
            self._look(None if cell is None else decode_group(cell.value), decode_group(asked.value))
            for client, claims in decode_group(asked.value).claims.items():
                exact = (claim.position for claim in claims if claim.qos == 2)
                self.exact.setdefault(client, set()).update(exact)
        return Stored(request=asked.request, value=self.revision)

    def _look(self, before: StoredGroup | None, group: StoredGroup) -> None:
        """A group begins once, behind all that those before it had."""
        if before is not None and before.begun:
            assert group.first == before.first
            assert group.next >= before.next
        elif group.begun:
            assert before is not None, "it was not made before it began"
            assert group.next == group.first >= self.reached
        self.reached = max(self.reached, group.next)

    def live(self, incarnation: str) -> None:
        self.revision += 1
        self.cells[incarnation_key(incarnation)] = Cell(
            incarnation_key(incarnation), incarnation.encode(), self.revision
        )

    def group(self) -> StoredGroup | None:
        cell = self.cells.get(KEY)
        return None if cell is None else decode_group(cell.value)
