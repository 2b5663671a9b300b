"""Figure 8: a periodic publisher, and a subscriber whose broker fails, is replaced, and comes back.

Four ways: **backup**, where the broker is killed and its backup serves the subscriber until it is back; **standby**,
where a standby takes the broker's place until then, and the subscriber goes home to it; **frozen**, where the broker is
stopped and not ended, as if it were cut off, with a standby: connections stay open, and nothing comes over them; and
**expiry**, the same where every second message expires after a second, and for a subscriber without a watch connection,
which is away for as long as its keep-alive. Publisher and subscriber are at brokers of
different clusters. Every message is to arrive, also what was sent while nobody was there to take it; but of those that
expire only what was of use still.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from tocsin.client import AsyncClient
from tocsin.client.address import Server
from tocsin.config import Broker
from tocsin_labs.fleet import Fleet, fleet
from tocsin_labs.landmark.crowd import Account, Publisher, Subscriber, account, crowd
from tocsin_labs.landmark.latency import network_settings
from tocsin_labs.landmark.plan import Sequence, Way
from tocsin_labs.stage import Stage

FAILING: Final = "north-1"
BACKUP: Final = (
    Broker(id=FAILING, cluster="north"),
    Broker(id="north-2", cluster="north"),
    Broker(id="south-1", cluster="south"),
)
FROZEN: Final[tuple[Way, ...]] = ("frozen", "expiry")
SPARE: Final = Broker(id="spare", cluster="north", role="standby")
READY_S: Final = 60.0
ARRIVE_S: Final = 15.0


class Message(msgspec.Struct, frozen=True):
    """One message: seconds since the first was sent."""

    number: int
    sent_s: float
    arrived_s: float | None  # None: never
    expires: bool = False


class Visit(msgspec.Struct, frozen=True):
    """The subscriber is at a broker from then on."""

    at_s: float
    broker: str


class Sequenced(msgspec.Struct, frozen=True, kw_only=True):
    """One way, from the first message to the last."""

    way: Way
    messages: tuple[Message, ...]
    visits: tuple[Visit, ...]
    killed_s: float  # or frozen
    detected_s: float | None
    replaced_s: float | None  # when a standby had joined in its place
    back_s: float  # when the broker was ready again, or no longer frozen
    account: Account
    duplicates: int  # that the client kept from its program
    expired: int = 0  # messages that were acknowledged, expired, and were given to nobody, …
    expiring: int = 0  # … of so many with an expiry

    @property
    def oldest_s(self) -> float | None:
        """The age of the oldest message with an expiry that arrived."""
        ages = [m.arrived_s - m.sent_s for m in self.messages if m.expires and m.arrived_s is not None]
        return max(ages, default=None)

    @property
    def silence_s(self) -> float:
        """The longest time from the sending of a message to its arrival."""
        return max((m.arrived_s - m.sent_s for m in self.messages if m.arrived_s is not None), default=0.0)


async def run(plan: Sequence, stage: Stage, found: list[Sequenced]) -> None:
    """Add each way."""
    for way in plan.ways:
        if stage.is_cut:
            break
        part = len(found) / len(plan.ways)
        brokers = BACKUP if way == "backup" else (*BACKUP, SPARE)
        stage.tell(f"Figure 8, {way}: the network starts", part)
        async with fleet(network_settings(brokers, plan.detect, plan.promote_after_ms)) as network:
            await network.start(network.brokers)
            found.append(await _sequence(plan, way, network, stage, part))


async def _sequence(plan: Sequence, way: Way, network: Fleet, stage: Stage, part: float) -> Sequenced:
    alone = way == "expiry"
    keep_alive_s = plan.silent_s if alone else plan.keep_alive_s
    subscriber = Subscriber(
        "subscriber", network.address(FAILING), ["sequence"], keep_alive_s, watch=not alone
    )
    async with AsyncExitStack() as stack:
        server = Server(*network.address("south-1"))
        client = await stack.enter_async_context(AsyncClient([server], client_id="publisher"))
        await stack.enter_async_context(crowd((subscriber,)))
        await network.chronicle.until(lambda: subscriber.has_others, READY_S)
        await network.calm(READY_S)
        await asyncio.sleep(plan.settle_s)
        expiry_s = plan.expiry_s if way == "expiry" else None
        publisher = Publisher(client, "sequence", plan.period_s, expiry_s)
        stage.tell(f"Figure 8, {way}: a broker fails", part)
        publisher.start()
        await asyncio.sleep(plan.fails_s)
        killed_s, back_s = await _fail(plan, way, network)
        await network.chronicle.until(lambda: subscriber.is_home, READY_S)
        await asyncio.sleep(plan.after_s)
        await publisher.stop()
        await network.chronicle.until(lambda: not account((subscriber,), publisher.owed).lost, ARRIVE_S)
        return _found(way, network, subscriber, publisher, killed_s, back_s)


async def _fail(plan: Sequence, way: Way, network: Fleet) -> tuple[float, float]:
    """The broker fails for a while; from when to when."""
    if way in FROZEN:
        failed_s = network.freeze(FAILING)
        try:
            await asyncio.sleep(plan.down_s)
        finally:
            network.thaw(FAILING)
    else:
        failed_s = network.kill((FAILING,))
        await asyncio.sleep(plan.down_s)
        await network.start((FAILING,))
    return failed_s, time.monotonic()


def _found(
    way: Way, network: Fleet, subscriber: Subscriber, publisher: Publisher, killed_s: float, back_s: float
) -> Sequenced:
    began = publisher.sent[0]
    names = {"{}:{}".format(*network.address(name)): name for name in network.brokers}
    arrived: dict[int, float] = {}
    for each in subscriber.arrivals:
        arrived.setdefault(each.number, each.at_s - began)
    detected = network.chronicle.first("lost", FAILING, killed_s)
    spare = network.brokers.get(SPARE.id)
    port = None if spare is None else spare.link_port
    replaced = None if port is None else network.chronicle.first("joined", FAILING, killed_s, port)
    return Sequenced(
        way=way,
        messages=tuple(
            Message(number, sent_s - began, arrived.get(number), publisher.expires(number))
            for number, sent_s in enumerate(publisher.sent, 1)
        ),
        visits=tuple(
            Visit(stay.at_s - began, names.get(stay.server, stay.server)) for stay in subscriber.stays
        ),
        killed_s=killed_s - began,
        detected_s=None if detected is None else detected - began,
        replaced_s=None if replaced is None else replaced - began,
        back_s=back_s - began,
        account=account((subscriber,), publisher.owed),
        duplicates=subscriber.duplicates,
        expired=len(publisher.acknowledged - publisher.owed - arrived.keys()),
        expiring=len(publisher.acknowledged - publisher.owed),
    )
