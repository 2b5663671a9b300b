"""Standing in for brokers that are gone: what a backup does with its copy, besides keeping what it prepared.

Sessions need nothing of it: they are in the store, and are taken when their clients come (decision 030). What was only
in the lost broker's memory is in the copy:

- **who was there**: they are awaited here, and how long the last of them takes is the time that recovery took;
- **wills** of clients that were connected, or that waited. Whether such a client is still alive nobody knows until it
  comes somewhere; if it does not within its delay, and ``grace_s`` at the least, its will is published. Unless the
  lost broker is back by then, and says that it has the client: it was not dead, but cut off.

A client is no longer awaited when it has come to any broker, or when the lost one is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import structlog

from tocsin.broker.wills import Wills
from tocsin.core.replication.gamma import Standing

AWAITED_S: Final = 600.0  # after that who has not come is counted as gone elsewhere, or for good


class Copies(Protocol):
    """What this broker knows of others."""

    def take_over(self, primary: str) -> Iterable[Standing]:
        """All that the copy of a broker says; it is kept until ``release``."""
        ...

    def release(self, primary: str) -> None: ...

    def has(self, primary: str, client: str) -> bool:
        """Whether that broker has a client connected, by the copy."""
        ...

    def is_here(self, client: str) -> bool:
        """Whether a client is connected to this broker."""
        ...


class _Place:
    """One broker that is gone."""

    def __init__(self, epoch: int, awaited: dict[str, None], at: float) -> None:
        self.epoch = epoch
        self.awaited = awaited
        self.expected = len(awaited)
        self.began = at
        self.last = at  # when the last came so far


class StandingIn:
    """See the module's text."""

    def __init__(
        self,
        copies: Copies,
        wills: Wills,
        grace_s: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._copies = copies
        self._wills = wills
        self._grace_s = (
            grace_s  # for a client to notice that its broker is gone: keep-alives are shorter, mostly
        )
        self._clock = clock
        self._places: dict[str, _Place] = {}
        self._awaited: dict[str, str] = {}  # client → the broker that it was at
        self.recovered = 0  # clients that were awaited and came
        self._log = structlog.get_logger()

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(self._places)

    def statistics(self) -> dict[str, int]:
        self._give_up()
        return {
            "standing_in": len(self._places),
            "awaited": len(self._awaited),
            "recovered": self.recovered,
        }

    def stand_in(self, broker: str, epoch: int) -> None:
        """A broker is gone, and this one stands in for it. Harmless when repeated."""
        known = self._places.get(broker)
        if known is not None and known.epoch >= epoch:
            return
        self.stand_down(broker)
        awaited: dict[str, None] = {}
        for each in self._copies.take_over(broker):
            if self._copies.is_here(each.client):
                continue
            if each.head.connected:
                awaited[each.client] = None
            if each.head.will is not None:
                delay_s = max(each.head.will.delay_s, self._grace_s)
                self._wills.delay(
                    each.client,
                    each.head.will.publication,
                    delay_s,
                    moving=True,
                    unless=partial(self._is_alive, broker, each.client),
                )
        self._places[broker] = _Place(epoch, awaited, self._clock())
        self._awaited.update(dict.fromkeys(awaited, broker))
        self._log.warning(
            "stands in for a broker that is gone", broker=broker, epoch=epoch, clients=len(awaited)
        )

    def _is_alive(self, broker: str, client: str) -> bool:
        return broker not in self._places and self._copies.has(broker, client)

    def came(self, client: str) -> None:
        """A client has come, here or elsewhere."""
        broker = self._awaited.pop(client, None)
        if broker is None:
            return
        place = self._places[broker]
        del place.awaited[client]
        place.last = self._clock()
        self.recovered += 1
        if not place.awaited:
            took_ms = round((place.last - place.began) * 1_000)
            self._log.info("all clients of a broker that is gone are back", broker=broker, took_ms=took_ms)

    def stand_down(self, broker: str) -> None:
        """That broker is back, or somebody else stands in for it."""
        place = self._places.pop(broker, None)
        if place is None:
            return
        for client in place.awaited:
            self._awaited.pop(client, None)
        self._copies.release(broker)
        self._log.info("stands in no longer", broker=broker)

    def _give_up(self) -> None:
        now = self._clock()
        for place in self._places.values():
            if place.awaited and now - place.began > AWAITED_S:
                for client in place.awaited:
                    self._awaited.pop(client, None)
                place.awaited = {}
