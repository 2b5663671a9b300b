"""Table 1: what the processes of a network say to each other while nothing happens, with more and more brokers.

Real processes, all of them, one network that grows. Nobody is connected. It counts the bytes that the kernel says the
TCP connections between the store, the coordinator and the brokers have carried. Each byte counts once, with the
headers that a network interface would count, as the paper's interfaces did; the figure without headers stands beside
it. That is more than watching brokers: brokers follow their logs there, and their backups. The heartbeats alone are
counted on the bus. Afterwards the store's server says for a while what each message was about (``kinds``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from tocsin.config import Broker
from tocsin.model.network import broker_address
from tocsin.ports import BusMessage
from tocsin.wire.internal.control import Beat, Pulse, decode_envelope
from tocsin_demo.network import network_of
from tocsin_labs.figures import Spread
from tocsin_labs.fleet import Fleet, fleet
from tocsin_labs.landmark.kinds import LINKS, Kind, broken_down, read
from tocsin_labs.landmark.plan import Control
from tocsin_labs.meter import Meter, among, between, of
from tocsin_labs.stage import Stage

KB: Final = 1_000
COORDINATOR: Final = "coordinator-1"
CALM_S: Final = 60.0
TRACE_BEGINS_S: Final = 1.0  # for the server to read its configuration again


class Controlled(msgspec.Struct, frozen=True, kw_only=True):
    """The control traffic of so many brokers, in KB/s."""

    brokers: int
    total: Spread  # between all processes, with headers
    payload: float  # the same without headers
    coordinator: float  # what the coordinator sends and reads, with headers
    heartbeats: float  # beats and pulses, as messages on the bus
    busy: float  # share of one processor that all processes took together
    kinds: tuple[Kind, ...] = ()  # what the total consists of

    @property
    def each(self) -> float:
        """The traffic of one broker."""
        return self.total.mean / self.brokers


async def run(plan: Control, stage: Stage, found: list[Controlled]) -> None:
    """Add what each number of brokers costs."""
    names = [f"broker-{number:02}" for number in range(1, max(plan.brokers) + 1)]
    clusters = [f"cluster-{number % plan.clusters + 1}" for number in range(len(names))]
    brokers = [Broker(id=name, cluster=cluster) for name, cluster in zip(names, clusters, strict=True)]
    async with fleet(network_of(brokers=tuple(brokers))) as network:
        running = 0
        for number, count in enumerate(plan.brokers):
            if stage.is_cut:
                break
            stage.tell(f"Table 1: {count} brokers start", number / len(plan.brokers))
            await network.start(names[running:count])
            running = count
            await network.calm(CALM_S)
            await asyncio.sleep(plan.settle_s)
            stage.tell(f"Table 1: {count} brokers do nothing", (number + 0.5) / len(plan.brokers))
            found.append(await _measure(plan, network, count))


async def _measure(plan: Control, network: Fleet, brokers: int) -> Controlled:
    meter, counter = Meter(network.pids), BeatCounter()
    rates: list[float] = []
    async with network.store.bus.subscribe(f"{network.settings.network}.to.>") as heard:
        listening = asyncio.create_task(counter.listen(heard))
        busy = asyncio.create_task(network.busy(plan.looks * plan.look_s))
        counter.bytes, began, first = 0, time.monotonic(), meter.look()
        before, before_s = first, began
        for _ in range(plan.looks):
            await asyncio.sleep(plan.look_s)
            after, after_s = meter.look(), time.monotonic()
            rates.append(among(between(before, after)).wire_bytes / KB / (after_s - before_s))
            before, before_s = after, after_s
        took_s, beats = time.monotonic() - began, counter.bytes
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    async with network.traced() as trace:
        await asyncio.sleep(TRACE_BEGINS_S)
        at, began = trace.stat().st_size, time.monotonic()
        await asyncio.sleep(plan.trace_s)
        seconds = time.monotonic() - began
        with trace.open(errors="replace") as lines:
            lines.seek(at)
            traced = read(lines, network.settings.network, seconds)
    carried, spread = between(first, before), Spread.of(rates)
    assert spread is not None, "it looked at least once"
    linked = among({ends: each for ends, each in carried.items() if all(map(_is_broker, ends))})
    links = Kind(LINKS, linked.segments / took_s, linked.wire_bytes / KB / took_s)
    return Controlled(
        brokers=brokers,
        total=spread,
        payload=among(carried).bytes / KB / took_s,
        coordinator=of(carried, COORDINATOR).wire_bytes / KB / took_s,
        heartbeats=beats / KB / took_s,
        busy=await busy,
        kinds=tuple(broken_down(traced, links, spread.mean)),
    )


def _is_broker(process: str) -> bool:
    return process.startswith(broker_address(""))


class BeatCounter:
    """Counts the bytes of beats and pulses."""

    def __init__(self) -> None:
        self.bytes = 0

    async def listen(self, heard: AsyncIterator[BusMessage]) -> None:
        async for delivery in heard:
            if isinstance(decode_envelope(delivery.payload).message, Beat | Pulse):
                self.bytes += len(delivery.payload)
