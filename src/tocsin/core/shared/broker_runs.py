"""Which broker incarnations of a group's members have ended, as one broker knows it.

A life is doubtful when the watch does not show it. That is a hint: the store is asked, and its answer counts. A life
that is over stays noted until the group's cell names it no more.

Invariants: the own life is never in doubt; of one life the store is asked one thing at a time.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.machine import GetKey, Stored, StoreFailed
from tocsin.core.shared.signals import MemberPorts
from tocsin.core.shared.stored_group import GROUPS, UNKNOWN_LIFE, StoredGroup, decode_life, life_key

LIFE: Final = "life "  # the beginning of the names of requests for a life


class Lives:
    """Tracks which broker incarnations of one group's members have ended."""

    def __init__(self, own: str, hands: MemberPorts) -> None:
        self.over: dict[str, None] = {}  # and the cell does not know it
        self._own = own
        self._hands = hands
        self._asked: dict[str, None] = {}  # the store is being asked for them

    def look(self, group: StoredGroup) -> list[GetKey]:
        """Ask after lives that seem to be over."""
        others = {member.life for member in group.members.values()} - {
            "",
            self._own,
            *self.over,
            *self._asked,
        }
        doubtful = [life for life in sorted(others) if not self._hands.alive(life)]
        self._asked.update(dict.fromkeys(doubtful))
        return [
            GetKey(request=LIFE + life, table=GROUPS, key=life_key(life), fresh=True) for life in doubtful
        ]

    def answered(self, event: Stored) -> str:
        """The life that turns out to be over, or nothing."""
        life = event.request.removeprefix(LIFE)
        self._asked.pop(life, None)
        if event.value is not None and decode_life(event.value.value) in (life, UNKNOWN_LIFE):
            return ""
        self.over[life] = None
        return life

    def failed(self, event: StoreFailed) -> None:
        self._asked.pop(event.request.removeprefix(LIFE), None)

    def learn(self, group: StoredGroup | None) -> None:
        """The cell as it is now."""
        named = set() if group is None else {member.life for member in group.members.values()}
        self.over = {life: None for life in self.over if life in named}
