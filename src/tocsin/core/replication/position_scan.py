"""Scans for clients whose positions the backups have not been sent, and for the volume that they were sent since.

Positions change with every message. So that messages cost nothing they are compared by a scan, some clients at a time.
The **volume out of sync** (REAPS IV-B) is the bytes that these clients were sent since their positions were given out:
about what is delivered twice if the broker fails now.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from tocsin.core.replication.gamma import CopiedState
from tocsin.wire.replication import Positions

SCAN_SLICE: Final = 500  # clients that are looked at in one go: about a millisecond


class PositionScan:
    """Finds the clients whose positions the backups do not know yet, one scan after the other."""

    def __init__(self, gamma: CopiedState) -> None:
        self._gamma = gamma
        self.told: dict[str, Positions] = {}  # client → the positions that were last given out
        self.found: dict[str, None] = {}  # by the scan under way, or the last: clients whose positions differ
        self.volume = 0  # bytes that these were sent since their positions were given out
        self._volumes: dict[str, int] = {}  # client → the bytes that it had been sent then
        self._rest: Iterator[str] | None = None  # those still to be looked at; None: no scan is under way

    @property
    def under_way(self) -> bool:
        """Whether a scan has begun, and is not at its end."""
        return self._rest is not None

    def look(self) -> bool:
        """Look at the next few clients, of a new scan if none is under way; whether these were the last."""
        if self._rest is None:
            self._rest, self.found, self.volume = iter(tuple(self._gamma.clients())), {}, 0
        some = tuple(islice(self._rest, SCAN_SLICE))
        for client in some:
            positions = self._gamma.positions(client)
            if positions is not None and positions != self.told.get(client):
                self.found[client] = None
                sent = self._gamma.volume(client)
                before = self._volumes.get(client, 0)
                self.volume += sent - before if sent >= before else sent  # less: it is another connection
        if len(some) == SCAN_SLICE:
            return False
        self._rest = None
        return True

    def give_out(self) -> list[str]:
        """The clients that were found and still have positions, with their current positions."""
        found, self.found, self.volume = self.found, {}, 0
        given: list[str] = []
        for client in found:
            positions = self._gamma.positions(client)
            if positions is not None:
                self.told[client] = positions
                self._volumes[client] = self._gamma.volume(client)
                given.append(client)
        return given

    def forget(self, client: str) -> None:
        """It is no client any more."""
        self.told.pop(client, None)
        self._volumes.pop(client, None)
        self.found.pop(client, None)

    def clear(self) -> None:
        """There is no backup any more."""
        self.told, self.found, self._rest = {}, {}, None
        self._volumes, self.volume = {}, 0
