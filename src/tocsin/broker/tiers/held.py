"""Messages for slots that move: held, in order, until they may take their new way.

What a slot holds is bounded as what waits for a link is (``core.links.backlog``): in age, and in bytes for all slots
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tocsin.broker.forwarding.fanout import NOWHERE, OutletSet
from tocsin.broker.links.link import NO_MAXIMUM
from tocsin.core.links.backlog import LinkBacklog
from tocsin.runtime.machines.clock import now_us


class HeldSlot:
    """An outlet that holds the messages of one slot."""

    def __init__(self, hold: Callable[[bytes, int], None]) -> None:
        self.group = OutletSet(self)
        self.send_max_bytes = NO_MAXIMUM
        self.descriptor = NOWHERE
        self.deliver = hold

    def aliased(self, frame: bytes) -> bytes:
        return frame

    def spill(self, data: bytes) -> None:
        raise AssertionError("it has no descriptor")


class HeldSlots:
    """What one broker holds, by the names that ``core.tiers.ways`` has for held slots."""

    def __init__(self, bytes_max: int, dropped: Callable[[int], None]) -> None:
        self._bytes_max = bytes_max
        self._dropped = dropped  # told how many messages were dropped
        self._outlets: dict[str, HeldSlot] = {}
        self._waiting: dict[str, LinkBacklog] = {}

    def outlet(self, name: str) -> HeldSlot:
        """Where messages of a held slot go."""
        outlet = self._outlets.get(name)
        if outlet is None:
            waiting = self._waiting[name] = LinkBacklog(self._bytes_max, self._dropped)

            def hold(data: bytes, messages: int) -> None:
                if sum(each.size for each in self._waiting.values()) + len(data) > self._bytes_max:
                    self._dropped(messages)
                else:
                    waiting.add(data, messages, now_us())

            outlet = self._outlets[name] = HeldSlot(hold)
        return outlet

    def take(self, name: str) -> Iterator[tuple[bytes, int]]:
        """What a slot holds, which it then holds no longer."""
        self._outlets.pop(name, None)
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            yield from waiting.take(now_us())
