"""Publishers that offer something else with each message, and subscribers that request some of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from tocsin.core.machine import Say
from tocsin.model.network import Address
from tocsin.sim.process.messages import AcknowledgedIsDurable, Written, key_in
from tocsin.sim.process.packets import Key, Packet, Publish
from tocsin.sim.process.restless import AlarmingPublisher, Subscriber
from tocsin.sim.process.stage import Stage
from tocsin.sim.runs.invariants import AllRunning, Invariant
from tocsin.sim.scenarios.durable.population import BROKERS, COORDINATOR, SETTINGS
from tocsin.sim.scenarios.durable.promises import Taken, message_key
from tocsin.sim.scenarios.durable.sessions import Doors, OnlyTheUsurpedStop, SessionsLast, Settled
from tocsin.sim.world import World
from tocsin.wire.mqtt.topics import matches

TOPICS: Final = {"publisher/1": ("a/1", "b/1"), "publisher/2": ("a/2", "b/2")}
HALLS: Final = "|".join(f"hall-{number:02}" for number in range(16))  # long: the log has it by reference
# What the messages of a publisher offer, in turn; and so what they meet.
OFFERS: Final = (
    "deadline=100ms",
    "deadline=10s,partition=yard",
    f"deadline=500ms,partition={HALLS}",
    "lease=1s",
)
QUICK: Final = (0, 2)  # of these offers: those with a deadline of at most a second
IN_A_HALL: Final = (2,)


class Asked(msgspec.Struct, frozen=True):
    """A subscription: the topics that it is about, and which messages it wants of them, by number."""

    pattern: str
    wants: Callable[[int], bool]
    history: bool = False  # those from before the subscription, too


def _offered(number: int) -> int:
    return number % len(OFFERS)


SUBSCRIPTIONS: Final = {
    "$qos/where=n %25 3 = 0/a/#": Asked("a/#", lambda number: number % 3 == 0),
    "$qos/deadline=1s/+/1": Asked("+/1", lambda number: _offered(number) in QUICK),
    "$qos/partition=hall-0*/b/#": Asked("b/#", lambda number: _offered(number) in IN_A_HALL),
    "$qos/deadline=1s,where=n > 12/a/2": Asked(
        "a/2", lambda number: number > 12 and _offered(number) in QUICK
    ),
    "b/2": Asked("b/2", lambda number: True),
    "$qos/durability=transient,history=all/+/2": Asked("+/2", lambda number: True, history=True),
    "$qos/durability=persistent,history=all,where=n > 5/a/1": Asked(
        "a/1", lambda number: number > 5, history=True
    ),
}
_NAMES: Final = tuple(SUBSCRIPTIONS)
SUBSCRIBERS: Final = (
    ("subscriber/1", _NAMES[:2], 1),
    ("subscriber/2", _NAMES[2:5], 2),
    # History that is interrupted comes again, which QoS 2 would not allow. It has an order of its own.
    ("subscriber/3", _NAMES[5:6], 1),
    ("subscriber/4", _NAMES[6:], 1),
)


class OfferingPublisher(AlarmingPublisher):
    """Says with each message what its stream offers from now on."""

    def _send(self, packet: Packet, cause: str = "") -> None:
        if isinstance(packet, Publish):
            packet = msgspec.structs.replace(packet, offer=OFFERS[_offered(packet.number)])
        super()._send(packet, cause)


class Requested(Taken):
    """Subscribers take what meets a request of theirs: all of it, in order, and nothing else."""

    name = "subscribers get what meets their requests, and nothing else"

    def __init__(self, written: Written) -> None:
        super().__init__(written)
        self._written = written
        self._keys: dict[int, Key] = {}  # position → message

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_say("took", self._look_for_others)

    def _look_for_others(self, subscriber: Address, say: Say) -> None:
        key = key_in(say)
        topic = self._written.topics[key]
        names = next(names for address, names, _ in SUBSCRIBERS if address == subscriber)
        if not any(_is_wanted(name, topic, key) for name in names):
            self.broken(f"{subscriber} took message {key} on {topic}, which meets no request of its own")

    def is_due(self, subscriber: Address, position: int, topic: str) -> bool:
        for at, key, _, _ in self._written.entries[len(self._keys) :]:
            self._keys[at] = key
        key = self._keys[position]
        since = self._since.get(subscriber, {})
        return any(
            (position > after or SUBSCRIPTIONS[name].history) and _is_wanted(name, topic, key)
            for name, after in since.items()
        )


def _is_wanted(name: str, topic: str, key: Key) -> bool:
    asked = SUBSCRIPTIONS[name]
    return matches(asked.pattern, topic) and asked.wants(key[1])


def fill(world: World, restless_us: int, messages: int) -> list[Invariant]:
    stage = Stage(world, SETTINGS)
    stage.add_coordinators(COORDINATOR)
    stage.add_brokers()
    for address, topics in TOPICS.items():
        stage.add_client(address, partial(OfferingPublisher, address, BROKERS, restless_us, messages, topics))
    for address, filters, qos in SUBSCRIBERS:
        stage.add_client(address, partial(Subscriber, address, BROKERS, restless_us, filters, qos))
    written, doors = Written(message_key), Doors()
    sessions = SessionsLast(doors)
    return [
        doors,
        written,
        AcknowledgedIsDurable(written),
        Requested(written),
        sessions,
        OnlyTheUsurpedStop(doors),
        Settled(sessions),
        AllRunning(),
    ]
