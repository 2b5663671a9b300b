"""The promises about wills: a client that dies has one published, a client that lives or disconnected has none.

A will is of one connection, and known by the id under which its broker, or another, puts it into the log; those of
mortals also by their numbers. A broker that publishes a will may be wrong about a client that it heard nothing of;
that is what a delay is for. Nobody publishes the will of a client that it heard of since.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tocsin.core.machine import Say
from tocsin.model.network import Address
from tocsin.model.publication import Publication, decode_publication
from tocsin.model.subjects import said_reference
from tocsin.ports import Entry
from tocsin.sim.chance import MILLION
from tocsin.sim.process.stage import LOG
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.programs import WILLS, Mortal, Resident, key_of
from tocsin.sim.scenarios.survival.promises.looking import (
    PLACE_TAKEN,
    STANDS_IN,
    Brokers,
    Running,
    ServedClient,
)
from tocsin.sim.world import World

LOOKS_US = (
    MILLION // 4,
    MILLION,
    2 * MILLION,
    4 * MILLION,
)  # after a goodbye: when to look which brokers know of it


class WillsOnce(Invariant):
    """The log has one will of a client, however many brokers believe that the client is dead."""

    name = "a will is in the log once"

    def __init__(self, mortals: Sequence[Mortal]) -> None:
        self._mortals = {each.name for each in mortals}
        self.told: dict[object, int] = {}  # → its position

    def attach(self, world: World) -> None:
        world.observers.on_entry(LOG.name, self._look)

    def _look(self, entry: Entry) -> None:
        if said_reference(entry.subject) is not None:
            return
        publication = decode_publication(entry.payload)
        if publication.topic.startswith(WILLS):
            number = key_of(publication.payload)
            will: object = number if number[0] in self._mortals else entry.id
            if will in self.told:
                self.broken(f"the will {will} is at {self.told[will]} and at {entry.position}")
            self.told[will] = entry.position


class NotOfTheLiving(Invariant):
    """A broker that heard that a client came again, and got its session there, does not publish an older will of it.
    If a client left in order, its own broker publishes no will of it, if it can have heard. Once every backup knew,
    no broker does, while one of them is left."""

    name = "no will is published of a client that is known to live, or to have left in order"

    def __init__(self, brokers: Brokers, residents: Sequence[Resident]) -> None:
        self._brokers = brokers
        self._residents = {each.name for each in residents}
        self._served: dict[str, list[ServedClient]] = {}  # client → its connections, oldest first
        self._left: dict[
            str, list[Running]
        ] = {}  # will → the brokers that know that its client left in order
        self._calm: dict[str, None] = {}  # clients that began to leave while nothing was wrong
        brokers.on_will.append(self._look)

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_say("connected", self._on_connected)
        world.observers.on_say("leaves", self._on_leaving)
        world.observers.on_say("left", self._on_left)

    def _on_connected(self, client: Address, say: Say) -> None:
        broker = self._brokers.at(str(say.facts["node"]))
        served = None if broker is None else broker.served(client)
        if served is not None and client in self._residents:
            self._served.setdefault(client, []).append(served)

    # ── goodbyes ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_leaving(self, client: Address, say: Say) -> None:
        self._calm.pop(client, None)
        if say.facts["connected"] and self._brokers.is_calm():
            self._calm[client] = None

    def _on_left(self, client: Address, say: Say) -> None:
        connections = self._served.get(client)
        broker = None if not connections else self._brokers.at(connections[-1].node)
        if connections and broker is not None and broker.name == connections[-1].broker:
            if client in self._calm and self._brokers.is_calm() and self._brokers.is_awake(broker):
                self._left[connections[-1].will_id] = [broker]
            look = partial(self._see_who_knows, broker, client, connections[-1].will_id)
            for after_us in LOOKS_US:
                self._world.at(self._world.now_us + after_us, look)

    def _see_who_knows(self, broker: Running, client: str, will_id: str) -> None:
        known = len(self._left.get(will_id, ())) > 1
        if known or not self._brokers.is_running(broker) or not broker.is_void(will_id):
            return
        knowing = [broker]
        for recipient in broker.recipients.values():
            for process in self._brokers.named(recipient.backup):
                copy = process.copies.get(broker.name)
                if copy is None or recipient.degraded or will_id in process.will_ids(client):
                    return
                knowing.append(process)
        if len(knowing) > 1:
            self._left[will_id] = knowing

    # ── wills ───────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, broker: Running, publication: Publication, will_id: str) -> None:
        client = publication.client
        left = self._left.get(will_id, [])
        know = left if len(left) > 1 else [each for each in left if each is broker]
        if any(map(self._brokers.is_running, know)):
            self.broken(f"{broker.node} published the will of {client}, which left its connection in order")
        connections = self._served.get(client, [])
        served = next((each for each in connections if each.will_id == will_id), None)
        if served is None:
            return
        for later in connections[connections.index(served) + 1 :]:
            if later.session == served.session and self._heard(broker, client, served, later):
                self.broken(
                    f"{broker.node} published the will of {client} left at {served.node}, and had heard that it "
                    f"came to {later.node} since"
                )

    def _heard(self, broker: Running, client: str, served: ServedClient, later: ServedClient) -> bool:
        """Whether a broker was told of a later connection: by the client itself, or by the broker that it came to."""
        if broker.node == later.node:
            return broker.began_us < later.since_us
        at_us, at = broker.heard_of(client)
        return at == later.broker != served.broker and at_us > served.since_us


class _Witness(NamedTuple):
    """A backup that knew a will when it went to the log."""

    broker: Running
    primary: str
    process: int  # of the primary, by the series

    def follows(self) -> bool:
        """Whether it has the copy of that process still, and so must know the will."""
        copy = self.broker.copies.get(self.primary)
        return copy is not None and copy.series[1] == self.process


class WillsAreTold(Invariant):
    """The will of a mortal that dies is published, unless all brokers that knew it ended before: also those that ended
    while their CONNACK was on its way to the mortal. A broker that ends alone with a will excuses nothing if it has a
    backup that is in step: CONNACK waits for those. The will of a living mortal is not published, unless its broker was
    taken for lost since the mortal came, with the client behind it, or has ended.

    That a broker had it in its queue for the log does not matter: until the log has it, backups that knew it when it
    went there must know it.
    """

    name = "who dies has its will told, and nobody else"

    def __init__(self, brokers: Brokers, once: WillsOnce, mortals: Sequence[Mortal]) -> None:
        self._brokers = brokers
        self._once = once
        self._mortals = {each.name: each for each in mortals}
        self._lost: dict[tuple[str, int], None] = {}  # wills that nobody knows any more
        self._mourned_us: dict[str, int] = {}  # brokers that were taken for lost → when that was last
        self._lives: dict[str, tuple[Running | None, int]] = {}  # mortal → who let it in, and when
        self._witnesses: dict[
            tuple[str, int], list[_Witness]
        ] = {}  # will → who knew it when it went to the log
        brokers.on_will.append(self._on_will)
        brokers.on_end.append(self._on_end)

    def attach(self, world: World) -> None:
        world.observers.on_entry(LOG.name, self._look)
        self._world = world
        for taken in (STANDS_IN, PLACE_TAKEN):
            world.observers.on_say(taken, self._on_mourned)
        world.observers.on_say("alive", self._on_alive)

    def _on_alive(self, name: Address, say: Say) -> None:
        """It may have come to another process within the same try."""
        mortal = self._mortals[name]
        will = (name, mortal.lived)
        if self._is_known(will):
            self._lost.pop(will, None)
        broker = self._brokers.at(mortal.lived_at)
        self._lives[name] = (
            None if broker is None or broker.served(name) is None else broker,
            self._world.now_us,
        )

    def _on_mourned(self, broker: Address, say: Say) -> None:
        self._mourned_us[str(say.facts["broker"])] = self._world.now_us

    def _may_seem_dead(self, mortal: Mortal) -> bool:
        """Whether a living mortal's broker has ended, or was taken for lost with the mortal behind it."""
        broker, since_us = self._lives.get(mortal.name, (None, 0))
        if broker is None or not self._brokers.is_running(broker):
            return True
        return self._mourned_us.get(broker.name, -1) >= since_us

    def _look(self, entry: Entry) -> None:
        if said_reference(entry.subject) is not None:
            return
        publication = decode_publication(entry.payload)
        mortal = self._mortals.get(publication.client)
        if mortal is not None and publication.topic.startswith(WILLS):
            alive = key_of(publication.payload)[1] == mortal.lived and not mortal.died
            if alive and not self._may_seem_dead(mortal):
                self.broken(f"the will of {mortal.name} is published, which lives")

    def _on_will(self, broker: Running, publication: Publication, will_id: str) -> None:
        if publication.client not in self._mortals:
            return
        will = key_of(publication.payload)
        for each in self._brokers.running():
            copy = each.copies.get(broker.name)
            if copy is not None and will_id in each.will_ids(publication.client):
                witness = _Witness(each, broker.name, copy.series[1])
                self._witnesses.setdefault(will, []).append(witness)

    def _on_end(self, dead: Running) -> None:
        for mortal in self._mortals.values():
            will = (mortal.name, mortal.lived or mortal.tries)
            if self._knows(dead, will) and not self._is_known(will):
                self._lost[will] = None
                if mortal.lived and (backup := self._in_step(dead, mortal.name)):
                    self.broken(f"{dead.node} has ended with the will of {will}, which {backup} should know")

    def _in_step(self, dead: Running, client: str) -> str:
        """A backup that has all that a broker had to say of a client; empty: none."""
        if dead.served(client) is None:
            return ""
        for recipient in dead.recipients.values():
            if dead.says_all_of(client, recipient):
                for process in self._brokers.named(recipient.backup):
                    copy = process.copies.get(dead.name)
                    if copy is not None and copy.series == recipient.series:
                        return process.node
        return ""

    def _is_known(self, will: tuple[str, int]) -> bool:
        running = self._brokers.running()
        return (
            will in self._once.told
            or any(self._knows(each, will) for each in running)
            or any(each.broker in running and each.follows() for each in self._witnesses.get(will, ()))
        )

    def _knows(self, broker: Running, will: tuple[str, int]) -> bool:
        return any(key_of(each.publication.payload) == will for each in broker.wills(will[0]))

    def finish(self, world: World) -> None:
        for name, mortal in self._mortals.items():
            will = (name, mortal.lived)
            if mortal.died and will not in self._once.told and will not in self._lost:
                self.broken(f"{name} has died, and its will was not published")
