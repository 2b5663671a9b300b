"""What is promised of wills: of whom dies there is one, of whom is alive or left in order there is none.

A will is of one connection, by whose number it is known. Who publishes it may be wrong about a client of which nothing
was heard; that is what a delay is for. Nobody publishes the will of one that it heard of since.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, cast

from tocsin.core.machine import Say
from tocsin.core.replication.copy import Copy
from tocsin.model.message import Address
from tocsin.model.publication import Publication, decode_publication
from tocsin.ports import Entry
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.durable.wire import LOG
from tocsin.sim.scenarios.survival.bequeathing import WILLS
from tocsin.sim.scenarios.survival.broker import SurvivalBroker
from tocsin.sim.scenarios.survival.ledger import Ledger, Promise
from tocsin.sim.world import World

Life = tuple[str, int]  # a client and the number of its connection


def life_of(publication: Publication) -> Life:
    """Whose will that is."""
    return publication.topic.removeprefix(WILLS), int(publication.payload)


class WillsOnce(Invariant):
    """Whoever believes that a client is dead, its own broker and those that stand in for it: the log has one will."""

    name = "a will is in the log once"

    def __init__(self) -> None:
        self.told: dict[Life, int] = {}  # → its position

    def attach(self, world: World) -> None:
        world.observers.on_entry(LOG.name, self._look)

    def _look(self, entry: Entry) -> None:
        publication = decode_publication(entry.payload)
        if publication.topic.startswith(WILLS):
            life = life_of(publication)
            if life in self.told:
                self.broken(f"the will of {life} is at {self.told[life]} and at {entry.position}")
            self.told[life] = entry.position


class NotOfTheLiving(Invariant):
    """A broker that was told that a client came again, and got its session there, does not publish an older will of it;
    and nobody does of one that left in order, once every backup knew, while one of those who knew it is left."""

    name = "no will is published of a client that is known to live, or to have left in order"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._left: dict[Life, list[SurvivalBroker]] = {}  # whoever knows
        self._attended: set[Life] = set()
        ledger.on_will.append(self._look)
        ledger.on_left.append(self._leave)

    def attach(self, world: World) -> None:
        world.observers.on_say("attends", self._attend)

    def _attend(self, broker: Address, say: Say) -> None:
        self._attended.add((str(say.facts["client"]), cast(int, say.facts["connection"])))

    def _leave(self, broker: SurvivalBroker, client: str, connection: int) -> None:
        backups = [each.backup for each in broker.replicating.primary.recipients.values()]
        processes = [process for name in backups for process in self._ledger.processes(name)]
        knowing = [
            each
            for each in processes
            if (copy := each.replicating.backup.copies.get(broker.address))
            and not _copied(copy, (client, connection))
        ]
        self._left[client, connection] = [broker, *knowing]

    def _look(self, broker: SurvivalBroker, publication: Publication) -> None:
        client, connection = life_of(publication)
        newest = broker.heard_of.get(client, 0)
        heard = next((n for n in range(connection + 1, newest + 1) if (client, n) in self._attended), 0)
        if heard:
            self.broken(
                f"{broker.node} published the will of {client} on its connection {connection}, and had heard that "
                f"it came on its connection {heard}"
            )
        running = self._ledger.brokers()
        if any(each in running for each in self._left.get((client, connection), ())):
            self.broken(
                f"{broker.node} published the will of {client}, and it left connection {connection} in order"
            )


class WillsAreCopied(Invariant):
    """A SUBACK or UNSUBACK that is not degraded means that every backup has the client's will, too.

    Unless the backup's process has ended since the client came, or another process has the broker's name too, or had,
    and wrote over the copy.
    """

    name = "what is acknowledged and not degraded: every backup has the client's will"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        ledger.on_acknowledged.append(self._look)

    def _look(self, promise: Promise, synced: bool) -> None:
        broker, service = promise.broker, promise.broker.services.get(promise.client)
        if not synced or service is None or service.will is None:
            return
        if self._ledger.processes(broker.address) != [broker]:
            return
        life = (service.client, service.stream.connection)
        for backup in broker.replicating.primary.recipients.values():
            if self._ledger.ended_us.get(backup.backup, -1) >= service.came_us:
                continue
            processes = self._ledger.processes(backup.backup)
            copies = [each.replicating.backup.copies.get(broker.address) for each in processes]
            if any(copy is not None and copy.stream > backup.stream for copy in copies):
                continue
            if not any(copy is not None and _copied(copy, life) for copy in copies):
                self.broken(f"{life} was told of {promise.name}, and {backup.backup} has no will of it")


class _Witness(NamedTuple):
    """A backup that knew a will when it went to the log."""

    broker: SurvivalBroker
    primary: str
    process: int  # of the primary, by the stream

    def follows(self) -> bool:
        """Whether it has the copy of that process still, and so must know the will."""
        copy = self.broker.replicating.backup.copies.get(self.primary)
        return copy is not None and copy.stream[1] == self.process


class WillsAreTold(Invariant):
    """Of a client that dies the will is published, though one of those who knew it ends: its broker, or who waits.

    That it had it in its queue for the log does not matter: until the log has it, backups that knew it when it went
    there must know it. If a second one ends as well, or nobody else knew, it may be lost.
    """

    name = "whoever dies has its will published"

    def __init__(self, once: WillsOnce, ledger: Ledger, mortals: tuple[str, ...]) -> None:
        self._once = once
        self._ledger = ledger
        self._mortals = mortals
        self._dead: dict[Life, bool] = {}  # → whether nobody knew its will at some time before it was told
        self._ended: Counter[Life] = Counter()  # → processes that knew it and ended before it was told
        self._witnesses: dict[Life, list[_Witness]] = {}  # → who knew it when it went to the log
        ledger.on_will.append(self._on_will)

    def attach(self, world: World) -> None:
        world.observers.on_say("dies", self._on_death)
        world.observers.on_life(self._on_life)

    def _on_death(self, client: Address, say: Say) -> None:
        life = (client, cast(int, say.facts["connection"]))
        self._dead[life] = not self._is_known(life)

    def _on_will(self, broker: SurvivalBroker, publication: Publication) -> None:
        life, primary = life_of(publication), broker.address
        copies = [(each, each.replicating.backup.copies.get(primary)) for each in self._ledger.brokers()]
        self._witnesses.setdefault(life, []).extend(
            _Witness(each, primary, copy.stream[1])
            for each, copy in copies
            if copy is not None and _copied(copy, life)
        )

    def _on_life(self, node: Address, happening: str) -> None:
        process = self._ledger.newest.get(node)
        if happening not in ("crashed", "stopped") or process is None:
            return
        for client in self._mortals:
            for life in dict.fromkeys(_lives(process, client)):
                self._ended[life] += life not in self._once.told
        for life in self._dead:
            self._look(life)

    def _look(self, life: Life) -> None:
        """Whether nobody knows it, of those that have to publish it."""
        self._dead[life] = self._dead[life] or not (life in self._once.told or self._is_known(life))

    def _is_known(self, life: Life) -> bool:
        running = self._ledger.brokers()
        return any(life in _lives(broker, life[0]) for broker in running) or any(
            each.broker in running and each.follows() for each in self._witnesses.get(life, ())
        )

    def finish(self, world: World) -> None:
        for life, lost in self._dead.items():
            if not lost and self._ended[life] < 2 and life not in self._once.told:
                self.broken(f"{life} has died, and its will was not published")


def _lives(broker: SurvivalBroker, client: str) -> list[Life]:
    """Those of a client of which a broker has the will."""
    service, waits = broker.services.get(client), broker.bequeathing.wills.unsettled(client)
    known = [None if waits is None else waits.publication]
    for copy in broker.replicating.backup.copies.values():
        if client in copy.clients:
            will = copy.clients[client].head.will
            known.append(None if will is None else will.publication)
    lives = [life_of(each) for each in known if each is not None]
    if service is not None and service.will is not None:
        lives.append((client, service.stream.connection))
    return lives


def _copied(copy: Copy, life: Life) -> bool:
    replica = copy.clients.get(life[0])
    will = None if replica is None else replica.head.will
    return will is not None and life_of(will.publication) == life
