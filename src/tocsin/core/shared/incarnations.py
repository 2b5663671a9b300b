"""Which broker incarnations of a group's members have ended, as one broker knows it.

An incarnation is doubtful when the watch does not show it. That is a hint: the store is asked, and its answer counts.
An incarnation that is over stays noted until the group's cell names it no more.

Invariants: the own incarnation is never in doubt; of one incarnation the store is asked one thing at a time.
"""

from __future__ import annotations

from typing import Final

from tocsin.core.machine import GetKey, Stored, StoreFailed
from tocsin.core.shared.signals import MemberPorts
from tocsin.core.shared.stored_group import (
    GROUPS,
    UNKNOWN_INCARNATION,
    StoredGroup,
    decode_incarnation,
    incarnation_key,
)

ASK: Final = "incarnation "  # the beginning of the names of requests for one


class Incarnations:
    """Tracks which broker incarnations of one group's members have ended."""

    def __init__(self, own: str, ports: MemberPorts) -> None:
        self.over: dict[str, None] = {}  # and the cell does not know it
        self._own = own
        self._ports = ports
        self._asked: dict[str, None] = {}  # the store is being asked for them

    def look(self, group: StoredGroup) -> list[GetKey]:
        """Ask after incarnations that seem to be over."""
        others = {member.incarnation for member in group.members.values()} - {
            "",
            self._own,
            *self.over,
            *self._asked,
        }
        doubtful = [incarnation for incarnation in sorted(others) if not self._ports.alive(incarnation)]
        self._asked.update(dict.fromkeys(doubtful))
        return [
            GetKey(request=ASK + incarnation, table=GROUPS, key=incarnation_key(incarnation), fresh=True)
            for incarnation in doubtful
        ]

    def answered(self, event: Stored) -> str:
        """The incarnation that turns out to be over, or nothing."""
        incarnation = event.request.removeprefix(ASK)
        self._asked.pop(incarnation, None)
        if event.value is not None and decode_incarnation(event.value.value) in (
            incarnation,
            UNKNOWN_INCARNATION,
        ):
            return ""
        self.over[incarnation] = None
        return incarnation

    def failed(self, event: StoreFailed) -> None:
        self._asked.pop(event.request.removeprefix(ASK), None)

    def learn(self, group: StoredGroup | None) -> None:
        """The cell as it is now."""
        named = set() if group is None else {member.incarnation for member in group.members.values()}
        self.over = {incarnation: None for incarnation in self.over if incarnation in named}
