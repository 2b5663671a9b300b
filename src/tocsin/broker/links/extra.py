"""Extra connections to other brokers: for copies of messages, beside the links that routes lead over.

An extra connection says so (``core.links.incoming.PROPERTY_EXTRA``), so that it does not take the place of the link to
the same broker. There are two of one peer at most: one is a straight way, and the other its twin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tocsin.broker.links.link import Link, LinkWatcher
from tocsin.broker.links.measured import LinkDelays
from tocsin.core.links.delay import Delay
from tocsin.core.links.signals import Ending
from tocsin.core.quality.ways import STRAIGHT
from tocsin.model.network import BrokerInfo
from tocsin.runtime.machines.clock import now_us

MakeExtra = Callable[[BrokerInfo, str, LinkWatcher], Link]
Key = tuple[str, str]  # the peer's id, and which of its connections


class _Watcher:
    """Hears of one extra connection."""

    def __init__(self, measured: Callable[[int], None]) -> None:
        self._measured = measured

    def link_known(self, peer: str) -> None:
        """What is up is asked when something is to be sent."""

    def link_ended(self, peer: str, ending: Ending) -> None:
        """It is dialled again."""

    def link_measured(self, peer: str, round_trip_us: int) -> None:
        self._measured(round_trip_us)


class ExtraLinks:
    """The extra connections of one broker."""

    def __init__(self, make: MakeExtra) -> None:
        self._make = make
        self._links: dict[Key, Link] = {}
        self._delays = LinkDelays()

    def __len__(self) -> int:
        return len(self._links)

    def want(self, wanted: Mapping[Key, BrokerInfo]) -> None:
        """Have these, and no others."""
        for key, link in tuple(self._links.items()):
            if wanted.get(key) != link.info:
                del self._links[key]
                link.close()
                if key[1] == STRAIGHT:
                    self._delays.forget(key[0])
        for key, info in wanted.items():
            if key not in self._links:
                link = self._links[key] = self._make(info, key[1], _Watcher(partial(self._measured, key)))
                link.open()

    def _measured(self, key: Key, round_trip_us: int) -> None:
        if key[1] == STRAIGHT:
            self._delays.measured(key[0], round_trip_us, now_us())

    def link(self, peer: str, which: str) -> Link | None:
        return self._links.get((peer, which))

    def ping(self) -> None:
        """Ask peers for signs of life over straight connections, where it is time: those are measured."""
        now = now_us()
        for (peer, which), link in self._links.items():
            if which == STRAIGHT and link.up and self._delays.is_due(peer, now):
                link.ping()

    def failing(self) -> set[str]:
        """Peers that cannot be reached straight."""
        return {peer for (peer, _), link in self._links.items() if link.tried and not link.up}

    def straight(self) -> dict[str, Delay]:
        """The delays of straight connections, by peer, as far as they are measured."""
        found = {}
        for (peer, which), link in self._links.items():
            if which == STRAIGHT and link.up:
                self._delays.repeats(peer, link.repeats())
                delay = self._delays.shown(peer, now_us())
                if delay is not None:
                    found[peer] = delay
        return found

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
