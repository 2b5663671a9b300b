"""Tables 2 and 3: what recovery costs on the network, with more and more that the failed broker had.

A *queue* is a session with one durable subscription, all of them the same, and its client; a *route* is a durable
subscription that nobody else has, all of one session. There are the broker that fails, its two backups and a standby,
which is promoted at once, and takes the clients home.

It counts the bytes between the store, the coordinator and the other brokers, from the kill on and for a fixed time,
less the bytes of an equal time in which nothing happens (measured just before). The bytes between clients and brokers
are counted separately. The paper counts at its recovery service: that is the coordinator here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, Literal

import msgspec

from tocsin.config import Broker
from tocsin.errors import OperatorError
from tocsin.model.network import broker_address
from tocsin_labs.fleet import Fleet, fleet
from tocsin_labs.landmark.control import COORDINATOR, KB
from tocsin_labs.landmark.crowd import Subscriber, crowd
from tocsin_labs.landmark.latency import network_settings
from tocsin_labs.landmark.plan import Objects
from tocsin_labs.meter import Amount, Carried, Meter, among, between, of, outside, without
from tocsin_labs.stage import Stage

FAILING: Final = "failing"
BROKERS: Final = (
    Broker(id=FAILING, cluster="north"),
    Broker(id="local", cluster="north"),
    Broker(id="remote", cluster="south"),
    Broker(id="spare", cluster="north", role="standby"),
)
BROKER: Final = broker_address("")  # how the names of their processes begin
LOOK_S: Final = 0.1  # what a connection carries behind the last look before its end is not seen
READY_S: Final = 60.0

Kind = Literal["queues", "routes"]


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """One failure: KB with headers that flowed because of it."""

    kind: Kind
    count: int  # of queues, or of routes
    run: int
    total: float  # between our processes
    payload: float  # the same without headers
    coordinator: float  # sent and read by the coordinator
    clients: float  # between clients and brokers: they come back, twice
    idle: float  # KB/s that flow anyway, and are taken off
    home_s: float | None  # from the kill until the last client was at the standby


async def run(plan: Objects, stage: Stage, found: list[Recovered]) -> None:
    """Add what every failure cost, as it ends."""
    order: list[tuple[int, Kind, int]] = [
        *((run, "queues", count) for run in range(1, plan.runs + 1) for count in plan.queues),
        *((run, "routes", count) for run in range(1, plan.runs + 1) for count in plan.routes),
    ]
    stage.tell("Tables 2 and 3: the network starts", 0.0)
    async with fleet(network_settings(BROKERS, "default", plan.promote_after_ms)) as network:
        await network.start(network.brokers)
        for done, (number, kind, count) in enumerate(order):
            if stage.is_cut:
                break
            stage.tell(f"Tables 2 and 3: a broker with {count} {kind} fails", done / len(order))
            found.append(await _fail(plan, network, number, kind, count))


def subscribers_of(kind: Kind, count: int, home: tuple[str, int]) -> list[Subscriber]:
    if kind == "queues":
        return [Subscriber(f"queue-{number}", home, ["queue"]) for number in range(count)]
    return [Subscriber("router", home, [f"route/{number}" for number in range(count)])]


async def _fail(plan: Objects, network: Fleet, number: int, kind: Kind, count: int) -> Recovered:
    subscribers = subscribers_of(kind, count, network.address(FAILING))
    spare = "{}:{}".format(*network.address("spare"))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(crowd(subscribers))
        ready = await network.chronicle.until(lambda: all(each.has_others for each in subscribers), READY_S)
        if not ready:
            raise OperatorError("clients are not told of other brokers", "Try again on a quieter machine")
        await asyncio.sleep(plan.settle_s)
        meter = Meter(network.pids)
        before, began = meter.look(), time.monotonic()
        await asyncio.sleep(plan.idle_s)
        start, killed_s = meter.look(), time.monotonic()
        idle, idle_s = between(before, start), killed_s - began
        network.kill((FAILING,))
        end = killed_s + plan.window_s
        while time.monotonic() < end:
            await asyncio.sleep(LOOK_S)
            after = meter.look()
        took_s = time.monotonic() - killed_s
        idle = without(idle, broker_address(FAILING))
        found = _recovered(kind, count, number, between(start, after), idle, took_s / idle_s)
        homes = [_home_s(each, spare, killed_s) for each in subscribers]
        known = [each for each in homes if each is not None]
        home_s = max(known) if known and len(known) == len(homes) else None
    await _restore(plan, network)
    return msgspec.structs.replace(found, home_s=home_s, idle=among(idle).wire_bytes / KB / idle_s)


def _home_s(subscriber: Subscriber, server: str, since_s: float) -> float | None:
    came = (stay.at_s for stay in subscriber.stays if stay.at_s >= since_s and stay.server == server)
    return next((at_s - since_s for at_s in came), None)


def _recovered(
    kind: Kind, count: int, number: int, carried: Carried, idle: Carried, times: float
) -> Recovered:
    """``times``: by how much the time that counts is longer than that in which nothing happened."""

    def over(amount: Amount, resting: Amount, *, wire: bool = True) -> float:
        if wire:
            return (amount.wire_bytes - resting.wire_bytes * times) / KB
        return (amount.bytes - resting.bytes * times) / KB

    return Recovered(
        kind=kind,
        count=count,
        run=number,
        total=over(among(carried), among(idle)),
        payload=over(among(carried), among(idle), wire=False),
        coordinator=over(of(carried, COORDINATOR), of(idle, COORDINATOR)),
        clients=over(outside(carried, BROKER), outside(idle, BROKER)),
        idle=0.0,
        home_s=None,
    )


async def _restore(plan: Objects, network: Fleet) -> None:
    await network.start((FAILING,))
    port = network.link_port(FAILING)

    def is_back() -> bool:
        joined = network.chronicle.last("joined", FAILING)
        return joined is not None and joined.port == port

    if not await network.chronicle.until(is_back, READY_S):
        raise OperatorError("a broker that was started again does not join", "Run `tocsin doctor`")
    await network.calm(READY_S)
    await asyncio.sleep(plan.settle_s)


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The straight line with the least squares: what it has at 0, and what each more adds."""
    if len({x for x, _ in points}) < 2:
        return None
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    each = sum((x - middle_x) * (y - middle_y) for x, y in points) / sum(
        (x - middle_x) ** 2 for x, _ in points
    )
    return middle_y - each * middle_x, each
