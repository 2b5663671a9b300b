"""The emulated wide-area network: one process that moves IP packets between places, each pair with its own weather.

A packet is read from the sender's TUN device, and written to the receiver's after the pair's delay, unless chance has
it lost. Pairs without weather have neither delay nor loss; pairs that are cut pass nothing. What passed is counted:
packets and bytes of each direction, with IP and TCP headers, lost ones too, as a capture at the sender would have them.

A thread does this, with a wait as exact as the kernel's (an event loop's are of whole milliseconds), and ahead of other
programs if that is allowed.

Orders: ``{"do": "weather", "pairs": [[from, to, delay_s, loss], …]}``, where a loss of 1 cuts; ``{"do": "count"}``.
Each is answered with what has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import random
import select
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tocsin.errors import OperatorError
from tocsin_demo import worker
from tocsin_demo.worker import Desk
from tocsin_labs.pubsubcoord import places

MODULE: Final = "tocsin_labs.pubsubcoord.router"
PACKET_BYTES: Final = 2_048
AT_ONCE: Final = 64  # packets that are read from one place before others have their turn
UNDER_WAY_MAX: Final = 200_000  # packets; what comes beyond is lost
IDLE_S: Final = 0.05
NICE: Final = -15
ADDRESS: Final = slice(16, 20)  # of the receiver, in an IPv4 packet
VERSION_4: Final = 4


class Weather(msgspec.Struct, frozen=True, array_like=True):
    """One direction between two places."""

    sender: int
    receiver: int
    delay_s: float
    loss: float = 0.0


class Passed(msgspec.Struct, array_like=True):
    """What one place sent to another."""

    packets: int = 0
    bytes: int = 0
    lost: int = 0


class Job(msgspec.Struct, frozen=True):
    places: int
    seed: int = 1


class Pair:
    """One direction between two places: its weather, its chance, and what passed."""

    def __init__(self, seed: int, sender: int, receiver: int) -> None:
        self.delay_s = 0.0
        self.loss = 0.0
        self.passed = Passed()
        self._chance = random.Random(f"{seed}:{sender}:{receiver}")

    def takes(self, size: int) -> bool:
        """Whether a packet that comes now gets through."""
        self.passed.packets += 1
        self.passed.bytes += size
        if self.loss and self._chance.random() < self.loss:
            self.passed.lost += 1
            return False
        return True


class Router:
    """All pairs, and the packets that are under way."""

    def __init__(self, count: int, seed: int) -> None:
        self._seed = seed
        self._by_address = {_packed(number): number for number in range(1, count + 1)}
        self.pairs: dict[tuple[int, int], Pair] = {}
        self._due: list[tuple[float, int, int, bytes]] = []  # when, in which order, to whom, what
        self._number = 0

    def pair(self, sender: int, receiver: int) -> Pair:
        ends = sender, receiver
        if ends not in self.pairs:
            self.pairs[ends] = Pair(self._seed, sender, receiver)
        return self.pairs[ends]

    def change(self, weathers: Iterable[Weather]) -> None:
        """From now on. What is under way comes when it was to come."""
        for each in weathers:
            pair = self.pair(each.sender, each.receiver)
            pair.delay_s, pair.loss = each.delay_s, each.loss

    def take(self, sender: int, packet: bytes, now_s: float) -> None:
        """A place has sent a packet."""
        receiver = self._by_address.get(packet[ADDRESS])
        if receiver is None or packet[0] >> 4 != VERSION_4:
            return
        pair = self.pair(sender, receiver)
        if pair.takes(len(packet)) and len(self._due) < UNDER_WAY_MAX:
            self._number += 1
            heapq.heappush(self._due, (now_s + pair.delay_s, self._number, receiver, packet))

    def next(self, now_s: float) -> tuple[int, bytes] | None:
        """A packet that is to arrive by now, and to whom."""
        if not self._due or self._due[0][0] > now_s:
            return None
        _, _, receiver, packet = heapq.heappop(self._due)
        return receiver, packet

    def wait_s(self, now_s: float) -> float:
        """Until the next packet is to arrive, within reason."""
        return min(IDLE_S, max(0.0, self._due[0][0] - now_s)) if self._due else IDLE_S

    def counted(self) -> list[tuple[int, int, Passed]]:
        return [(*ends, pair.passed) for ends, pair in list(self.pairs.items())]


def _packed(number: int) -> bytes:
    return bytes(map(int, places.address(number).split(".")))


def move(router: Router, tuns: dict[int, int], over: threading.Event) -> None:
    """Move packets until it is over. ``tuns``: place → descriptor."""
    numbers = {tun: number for number, tun in tuns.items()}
    while not over.is_set():
        ready, _, _ = select.select(tuns.values(), (), (), router.wait_s(time.monotonic()))
        for tun in ready:
            with contextlib.suppress(BlockingIOError):
                for _ in range(AT_ONCE):
                    router.take(numbers[tun], os.read(tun, PACKET_BYTES), time.monotonic())
        now_s = time.monotonic()
        while (found := router.next(now_s)) is not None:
            with contextlib.suppress(OSError):  # its place is going away
                os.write(tuns[found[0]], found[1])


async def work(job: Job, desk: Desk) -> None:
    with contextlib.suppress(OSError):
        os.nice(NICE)
    back = os.open(places.OWN, os.O_RDONLY)
    try:
        made = {number: places.make(number) for number in range(1, job.places + 1)}
    except OSError as error:
        problem = f"no network of places here: {error.strerror} ({error.filename or places.DEVICE})"
        raise OperatorError(problem, REMEDY) from None
    with contextlib.suppress(OSError):
        places.enter(places.path(os.getpid(), back))
    router, over = Router(job.places, job.seed), threading.Event()
    tuns = {number: place.tun for number, place in made.items()}
    moving = threading.Thread(target=move, args=(router, tuns, over))
    moving.start()
    try:
        spaces = [places.path(os.getpid(), made[number].space) for number in sorted(made)]
        desk.tell("ready", spaces=spaces)
        await _obey(router, desk)
    finally:
        over.set()
        moving.join()


async def _obey(router: Router, desk: Desk) -> None:
    stop = asyncio.create_task(desk.stop.wait())
    while not desk.stop.is_set():
        next_order = asyncio.create_task(desk.orders.get())
        await asyncio.wait((stop, next_order), return_when=asyncio.FIRST_COMPLETED)
        if not next_order.done():
            next_order.cancel()
            return
        order: dict[str, Any] = next_order.result()
        if order["do"] == "weather":
            router.change(msgspec.convert(order["pairs"], list[Weather]))
        desk.tell("progress", counted=msgspec.to_builtins(router.counted()))


REMEDY: Final = "Run it as root, or in namespaces of your own: `unshare --user --map-root-user --net …`"


if __name__ == "__main__":
    worker.main({"router": (Job, work)})
