"""The virtual network: how long a message takes, how often it arrives, and what cuts it off.

A ``Link`` says how two addresses are joined; a scenario gives a function from (sender, receiver) to Link, which is
asked once per pair. On top of that lie what faults add for a while: **cuts** (a set of addresses against the rest
or against named others, both ways or one way) and **weather** (more loss, duplicates, delay and disorder for a set,
or for all). Messages are not in order unless the link is ``fifo``; that is what ``core.machine.Send`` promises. A
message in flight when a cut falls is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from tocsin.model.network import Address, Message
from tocsin.sim.chance import MILLION, Chance
from tocsin.sim.latency import LOCAL_NETWORK, QUANTILE_BITS, Latency

STORE: Address = "store"  # where the store lives on the network, so that a cut can part a node from it
HEADER_BYTES = 64  # what a message costs on the wire besides its body: TCP, IP and framing, roughly

Direction = Literal["both", "out", "in"]


class Link(msgspec.Struct, frozen=True):
    """How messages travel from one address to another."""

    latency: Latency = LOCAL_NETWORK
    loss_ppm: int = 0
    duplicate_ppm: int = 0
    reorder_ppm: int = 0  # how many are held back by up to ``reorder_us``, and overtaken
    reorder_us: int = 50_000
    bytes_per_s: int | None = None
    fifo: bool = False  # keep the order, as one TCP connection does; duplicates and held-back ones break it


class Cut(msgspec.Struct, frozen=True):
    """No message between ``side`` and the rest (or only ``others``); "out" and "in" are as ``side`` sees it."""

    side: frozenset[Address]
    others: frozenset[Address] | None = None
    direction: Direction = "both"

    def stops(self, sender: Address, receiver: Address) -> bool:
        inside = sender in self.side
        if inside == (receiver in self.side):
            return False
        if self.others is not None and (receiver if inside else sender) not in self.others:
            return False
        return self.direction == "both" or (self.direction == "out") == inside


class Weather(msgspec.Struct, frozen=True):
    """The trouble that a fault adds to every link that touches ``side`` (None: to all)."""

    side: frozenset[Address] | None = None
    loss_ppm: int = 0
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    reorder_us: int = 50_000
    extra_us: int = 0

    def touches(self, sender: Address, receiver: Address) -> bool:
        return self.side is None or sender in self.side or receiver in self.side


class Path:
    """One direction of one link, with what it remembers."""

    __slots__ = ("busy_until_us", "last_arrival_us", "link", "plain", "quantiles")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.quantiles = link.latency.quantiles
        self.plain = not (
            link.loss_ppm or link.duplicate_ppm or link.reorder_ppm or link.bytes_per_s or link.fifo
        )
        self.busy_until_us = 0  # when the bytes already handed over have left
        self.last_arrival_us = 0  # no later message of a fifo link arrives before this


class NetworkStatistics(msgspec.Struct):
    """The counters of messages so far."""

    sent: int = 0
    lost: int = 0
    cut: int = 0
    duplicated: int = 0
    held_back: int = 0


LinkOf = Callable[[Address, Address], Link]
SizeOf = Callable[[Message], int]

_DEFAULT_LINK = Link()
_encode = msgspec.msgpack.Encoder().encode


def local_network(_sender: Address, _receiver: Address) -> Link:
    return _DEFAULT_LINK


def encoded_size(message: Message) -> int:
    return HEADER_BYTES + len(_encode(message))


class Network:
    """All links, and what is wrong with them just now."""

    def __init__(
        self, chance: Chance, link_of: LinkOf = local_network, size_of: SizeOf = encoded_size
    ) -> None:
        self.link_of = link_of
        self.size_of = size_of
        self.cuts: list[Cut] = []
        self.weather: list[Weather] = []
        self.statistics = NetworkStatistics()
        self.calm = True  # no cuts and no weather: the common case, tested first
        self._chance = chance
        self._paths: dict[Address, dict[Address, Path]] = {}

    def path(self, sender: Address, receiver: Address) -> Path:
        paths = self._paths.get(sender)
        if paths is None:
            paths = self._paths[sender] = {}
        path = paths.get(receiver)
        if path is None:
            path = paths[receiver] = Path(self.link_of(sender, receiver))
        return path

    def paths_from(self, sender: Address) -> dict[Address, Path]:
        """The paths of one sender that are known so far; ``path`` adds to it."""
        return self._paths.setdefault(sender, {})

    def blocked(self, sender: Address, receiver: Address) -> bool:
        return any(cut.stops(sender, receiver) for cut in self.cuts)

    def add(self, fault: Cut | Weather) -> None:
        if isinstance(fault, Cut):
            self.cuts.append(fault)
        else:
            self.weather.append(fault)
        self.calm = False

    def remove(self, fault: Cut | Weather) -> None:
        """Take away an added trouble; no error if a heal took it before."""
        if isinstance(fault, Cut):
            if fault in self.cuts:
                self.cuts.remove(fault)
        elif fault in self.weather:
            self.weather.remove(fault)
        self.calm = not self.cuts and not self.weather

    def heal(self) -> None:
        self.cuts.clear()
        self.weather.clear()
        self.calm = True

    def delay_us(self, sender: Address, receiver: Address) -> int:
        """One trip's latency with the weather's share, for traffic that a transport keeps whole, as the store's."""
        paths = self._paths.get(sender)
        path = (None if paths is None else paths.get(receiver)) or self.path(sender, receiver)
        delay = path.quantiles[self._chance.bits(QUANTILE_BITS)]
        if self.weather:
            for weather in self.weather:
                if weather.extra_us and weather.touches(sender, receiver):
                    delay += self._chance.below(weather.extra_us)
        return delay

    def arrivals(
        self, path: Path, sender: Address, receiver: Address, message: Message, now_us: int
    ) -> list[int]:
        """When the copies of a message arrive: none if it is lost, two if it is duplicated."""
        chance, link = self._chance, path.link
        if not self.calm and self.blocked(sender, receiver):
            self.statistics.cut += 1
            return []
        loss_ppm, duplicate_ppm, reorder_ppm = link.loss_ppm, link.duplicate_ppm, link.reorder_ppm
        reorder_us, extra_us = link.reorder_us, 0
        for weather in self.weather:
            if weather.touches(sender, receiver):
                loss_ppm += (MILLION - loss_ppm) * weather.loss_ppm // MILLION
                duplicate_ppm += weather.duplicate_ppm
                reorder_ppm += weather.reorder_ppm
                reorder_us = max(reorder_us, weather.reorder_us)
                extra_us += weather.extra_us
        departs_us = now_us
        if link.bytes_per_s is not None:
            # A message that is lost later has used the wire all the same.
            sending_us = self.size_of(message) * MILLION // link.bytes_per_s
            departs_us = path.busy_until_us = max(now_us, path.busy_until_us) + sending_us
        if loss_ppm and chance.happens(loss_ppm):
            self.statistics.lost += 1
            return []
        arrives_us = departs_us + path.quantiles[chance.bits(QUANTILE_BITS)]
        if extra_us:
            arrives_us += chance.below(extra_us)
        if link.fifo:
            arrives_us = path.last_arrival_us = max(arrives_us, path.last_arrival_us)
        if reorder_ppm and chance.happens(reorder_ppm):
            self.statistics.held_back += 1
            arrives_us += chance.below(reorder_us)
        if duplicate_ppm and chance.happens(duplicate_ppm):
            self.statistics.duplicated += 1
            return [arrives_us, arrives_us + path.quantiles[chance.bits(QUANTILE_BITS)]]
        return [arrives_us]
