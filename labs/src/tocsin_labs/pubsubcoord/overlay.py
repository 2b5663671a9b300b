"""The network of Figure 3: pairs of edge brokers and one routing broker, each in a place of its own (``places``).

The store, the coordinator and this process are in a place too, with neither delay nor loss to all others: what they are
needed for is not on the paths that are measured. Edge brokers of different pairs cannot reach each other, so that pairs
do not get in each other's way, and all cases run side by side.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from tocsin.config import Broker, Settings
from tocsin.config.deadline import Deadline
from tocsin_demo.network import network_of
from tocsin_demo.worker import Worker
from tocsin_labs.fleet import Fleet, fleet
from tocsin_labs.pubsubcoord import places, router
from tocsin_labs.pubsubcoord.router import Passed, Weather

TIER: Final = "cloud"
GROUND, HUB, FIRST = 1, 2, 3  # places: of the store, of the routing broker, of the first edge broker
CUT: Final = 1.0  # a loss


class Leg(msgspec.Struct, frozen=True):
    """A link, in each direction."""

    delay_s: float
    loss: float = 0.0

    @property
    def words(self) -> str:
        return f"{1e3 * self.delay_s:g} ms {100 * self.loss:g} %"


class Paths(msgspec.Struct, frozen=True):
    """The links of one pair of edge brokers."""

    direct: Leg
    up: Leg  # from the publisher's broker to the routing broker
    down: Leg  # from there to the subscriber's


class Sent(msgspec.Struct, frozen=True):
    """What was on the links of one pair, in both directions of each, with IP and TCP headers."""

    direct: int = 0
    relayed: int = 0  # on both links of the routing broker
    packets: int = 0
    lost: int = 0  # packets

    @property
    def bytes(self) -> int:
        return self.direct + self.relayed

    def times(self, factor: float) -> Sent:
        counts = self.direct, self.relayed, self.packets, self.lost
        return Sent(*(round(factor * each) for each in counts))

    def __sub__(self, other: Sent) -> Sent:
        return Sent(
            self.direct - other.direct,
            self.relayed - other.relayed,
            self.packets - other.packets,
            self.lost - other.lost,
        )


class Overlay:
    """The network, while it runs."""

    def __init__(self, fleet: Fleet, moving: Worker, spaces: Sequence[str], pairs: int) -> None:
        self.fleet = fleet
        self.spaces = tuple(spaces)
        self.pairs = pairs
        self._moving = moving

    @property
    def entrances(self) -> tuple[tuple[str, int], ...]:
        """Where clients come in: of each pair the publisher's broker, then the subscriber's."""
        names = [name for pair in range(self.pairs) for name in names_of(pair)]
        return tuple(
            (places.address(FIRST + at), self.fleet.address(name)[1]) for at, name in enumerate(names)
        )

    @property
    def lan_spaces(self) -> tuple[str, ...]:
        return self.spaces[FIRST - 1 :]

    async def change(self, paths: Sequence[Paths]) -> None:
        """Have the links of the first pairs so from now on."""
        weathers = []
        for pair, each in enumerate(paths):
            one, other = places_of(pair)
            for ends, leg in (((one, other), each.direct), ((one, HUB), each.up), ((HUB, other), each.down)):
                for sender, receiver in (ends, ends[::-1]):
                    weathers.append(Weather(sender, receiver, leg.delay_s, leg.loss))
        await self._order(weathers)

    async def part(self) -> None:
        """Keep pairs apart from each other."""
        apart = [
            Weather(sender, receiver, 0.0, CUT)
            for one in range(self.pairs)
            for other in range(self.pairs)
            for sender in places_of(one)
            for receiver in places_of(other)
            if one != other
        ]
        await self._order(apart)

    async def sent(self) -> list[Sent]:
        """What was on each pair's links so far."""
        counted = await self._order([])
        return [_sent(counted, pair) for pair in range(self.pairs)]

    async def _order(self, weathers: Iterable[Weather]) -> list[tuple[int, int, Passed]]:
        await self._moving.order(do="weather", pairs=msgspec.to_builtins(list(weathers)))
        told = (await self._moving.until("progress")).found["counted"]
        return msgspec.convert(told, list[tuple[int, int, Passed]])


def _sent(counted: Iterable[tuple[int, int, Passed]], pair: int) -> Sent:
    direct = relayed = packets = lost = 0
    mine = set(places_of(pair))
    for sender, receiver, passed in counted:
        ends = {sender, receiver}
        if not ends & mine or GROUND in ends or not ends <= mine | {HUB}:
            continue
        if HUB in ends:
            relayed += passed.bytes
        else:
            direct += passed.bytes
        packets, lost = packets + passed.packets, lost + passed.lost
    return Sent(direct, relayed, packets, lost)


def names_of(pair: int) -> tuple[str, str]:
    """The edge brokers of a pair: the publisher's, and the subscriber's."""
    return f"from-{pair + 1}", f"to-{pair + 1}"


def places_of(pair: int) -> tuple[int, int]:
    return FIRST + 2 * pair, FIRST + 2 * pair + 1


def settings_of(pairs: int, ways: int = 1) -> Settings:
    """Each broker in a place, and a cluster of its own. It listens on all addresses there are in its place.

    ``ways``: that a message with a budget takes at most.
    """
    hub = Broker(id="hub", cluster=TIER, role="routing", host="0.0.0.0", advertise=places.address(HUB))
    edges = [
        Broker(id=name, cluster=name, host="0.0.0.0", advertise=places.address(place))
        for pair in range(pairs)
        for name, place in zip(names_of(pair), places_of(pair), strict=True)
    ]
    settings = network_of(brokers=(hub, *edges))
    nats = msgspec.structs.replace(settings.nats, host=places.address(GROUND))
    access = msgspec.structs.replace(
        settings.access, anonymous="always"
    )  # nobody else can reach these places
    deadline = Deadline(ways_max=ways)
    return msgspec.structs.replace(settings, nats=nats, access=access, deadline=deadline)


@asynccontextmanager
async def overlay(pairs: int, seed: int, ways: int = 1) -> AsyncIterator[Overlay]:
    """The network while the context lasts. This thread is in a place of it meanwhile."""
    async with AsyncExitStack() as stack:
        moving = await Worker.start(router.MODULE, "router", router.Job(2 + 2 * pairs, seed))
        stack.push_async_callback(moving.close)
        spaces = (await moving.until("ready")).found["spaces"]
        here = os.open(places.OWN, os.O_RDONLY)
        stack.callback(os.close, here)
        places.enter(spaces[GROUND - 1])
        stack.callback(places.enter, places.path(os.getpid(), here))
        settings = settings_of(pairs, ways)
        housed = {
            broker.id: partial(places.command, spaces[place - 1])
            for place, broker in enumerate(settings.brokers, HUB)
        }
        running = await stack.enter_async_context(fleet(settings, housed))
        made = Overlay(running, moving, spaces, pairs)
        await made.part()
        await running.start(running.brokers)
        yield made
