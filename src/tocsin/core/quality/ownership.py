"""Exclusive ownership: of the publishers of a topic, a subscriber hears the strongest that is alive.

The first that is heard is the **owner**. Another takes its place if it is stronger, or if the owner is gone: its lease
is over, or it was silent for as long as the subscriber's patience (the deadline). Of two that are equally strong the
one whose client id comes first is the stronger. So every broker that hears the same decides the same, and asks nobody.

Invariants: there is one owner a key; what comes from anybody else does not pass; at most OWNERS_MAX keys are
remembered, and of the oldest one the next publisher that is heard is the owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

OWNERS_MAX: Final = 20_000

Key = tuple[str, str]  # a request, and a topic


class _Owner:
    __slots__ = ("client", "last_us", "strength")

    def __init__(self, client: str, strength: int, now_us: int) -> None:
        self.client = client
        self.strength = strength
        self.last_us = now_us  # its last message


class Owners:
    """The owners of topics, each for the subscriptions with one request."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[Key, _Owner] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def passes(
        self,
        key: Key,
        client: str,
        strength: int,
        now_us: int,
        *,
        patience_us: int | None,
        is_lost: Callable[[str], bool],
    ) -> bool:
        """Whether a message of this publisher is for the subscriptions of a key. It is asked once or more often."""
        owner = self._owners.get(key)
        if owner is None:
            if len(self._owners) >= OWNERS_MAX:
                del self._owners[next(iter(self._owners))]
            self._owners[key] = _Owner(client, strength, now_us)
            return True
        if client != owner.client:
            stronger = (-strength, client) < (-owner.strength, owner.client)
            silent = patience_us is not None and now_us - owner.last_us >= patience_us
            if not (stronger or silent or is_lost(owner.client)):
                return False
            owner.client = client
        owner.strength, owner.last_us = strength, now_us
        return True

    def owner(self, key: Key) -> str | None:
        """The client that owns a topic, as far as it is known."""
        found = self._owners.get(key)
        return None if found is None else found.client

    def forget(self, request: str) -> None:
        """Nobody has this request any more."""
        for key in [key for key in self._owners if key[0] == request]:
            del self._owners[key]
