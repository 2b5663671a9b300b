"""Leases of publishers at one broker: whether each gives a sign of life on its topic often enough.

A publisher that offers a lease is **alive** while the last sign is no older than the lease. With ``manual`` liveliness
its messages on the topic and its assertions are signs, with ``automatic`` liveliness everything that its connection
brings. A lease outlives the connection: its publisher may come back, here or at another broker.

    hold ──► alive ──no sign for a lease──► lost ──a sign──► alive
             leave: no more signs from this connection; drop: the publisher has taken its leave

A sign is one write to memory: the heap is looked at when a lease may be over. A lease that is shorter than CHECK_US is
looked at that often.

Invariants: ``due`` tells each change once; of a key that left and is lost nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tocsin.core.deadlines import Deadlines

CHECK_US: Final = 10_000
LEFT_MAX: Final = 10_000  # leases without a connection; the oldest is over at once if there are more


class _Lease:
    __slots__ = ("alive", "last_us", "lease_us", "left", "manual")

    def __init__(self, lease_us: int, manual: bool, now_us: int) -> None:
        self.lease_us = lease_us
        self.manual = manual
        self.last_us = now_us  # the last sign
        self.alive = True
        self.left = False


class Leases:
    """The leases of one broker's publishers, by key."""

    __slots__ = ("_deadlines", "_leases", "_left")

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        self._left: dict[str, None] = {}  # without a connection, in order
        self._deadlines = Deadlines()

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, key: str) -> bool:
        return key in self._leases

    @property
    def next_us(self) -> int | None:
        """When to ask what is ``due``."""
        return self._deadlines.next_us

    def is_alive(self, key: str) -> bool:
        lease = self._leases.get(key)
        return lease is not None and lease.alive

    def lease_us(self, key: str) -> int:
        return self._leases[key].lease_us

    def hold(self, key: str, lease_us: int, manual: bool, now_us: int) -> bool:
        """A publisher with this lease is here; whether that is news: it is new, lost, has another lease, or is back."""
        lease = self._leases.get(key)
        news = lease is None or not lease.alive or lease.left or lease.lease_us != lease_us
        if lease is None:
            self._leases[key] = _Lease(lease_us, manual, now_us)
        else:
            lease.lease_us, lease.manual, lease.left = lease_us, manual, False
            lease.last_us, lease.alive = now_us, True
            self._left.pop(key, None)
        self._look_again(key, lease_us, now_us)
        return news

    def sign(self, key: str, now_us: int) -> bool:
        """A message or an assertion; whether the publisher was lost before it."""
        lease = self._leases.get(key)
        if lease is None or lease.left:
            return False
        lease.last_us = now_us
        was_lost, lease.alive = not lease.alive, True
        if was_lost:
            self._look_again(key, lease.lease_us, now_us)
        return was_lost

    def leave(self, key: str, heard_us: int) -> None:
        """Its connection is over, which brought something last then. What is lost already is forgotten."""
        lease = self._leases.get(key)
        if lease is None:
            return
        if not lease.alive:
            self.drop(key)
            return
        if not lease.manual:
            lease.last_us = max(lease.last_us, heard_us)
        lease.left = True
        self._left[key] = None
        if len(self._left) > LEFT_MAX:
            self._deadlines.set(next(iter(self._left)), 0)

    def drop(self, key: str) -> bool:
        """The publisher has taken its leave, or offers no lease any more; whether it was alive."""
        lease = self._leases.pop(key, None)
        self._left.pop(key, None)
        self._deadlines.drop(key)
        return lease is not None and lease.alive

    def due(self, now_us: int, heard_us: Callable[[str], int]) -> list[tuple[str, bool]]:
        """The publishers that are lost now, or (True) alive again. ``heard_us``: when the connection of one brought
        anything last."""
        found: list[tuple[str, bool]] = []
        for key in self._deadlines.due(now_us):
            lease = self._leases[key]
            if not (lease.manual or lease.left):
                lease.last_us = max(lease.last_us, heard_us(key))
            alive = now_us - lease.last_us < lease.lease_us and len(self._left) <= LEFT_MAX
            if alive is not lease.alive:
                lease.alive = alive
                found.append((key, alive))
            if lease.left and not alive:
                self.drop(key)
            elif alive:
                self._look_again(key, lease.lease_us, lease.last_us)
            elif not lease.manual:  # it is alive again when its connection brings something
                self._look_again(key, lease.lease_us, now_us)
        return found

    def _look_again(self, key: str, lease_us: int, since_us: int) -> None:
        self._deadlines.set(key, since_us + max(lease_us, CHECK_US))
