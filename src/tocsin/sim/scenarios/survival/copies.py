"""What is promised of the copies at backups."""

from __future__ import annotations

from tocsin.core.replication.copy import Copy
from tocsin.core.replication.gamma import option_of
from tocsin.core.replication.recipient import Recipient
from tocsin.model.results import decode_subscription
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.channels.wire import SUBSCRIPTIONS, meant_by
from tocsin.sim.scenarios.survival.broker import SurvivalBroker
from tocsin.sim.scenarios.survival.ledger import Ledger, Promise
from tocsin.sim.world import World
from tocsin.wire.replication import LOCAL
from tocsin.wire.topics import CHANNEL_PREFIX


class BackupsKnow(Invariant):
    """A SUBACK or UNSUBACK that is not marked degraded means that every backup has what it says.

    Unless the subscription has changed since; or the backup's process has ended since: its copy is gone with it, and
    the broker will hear of that; or another process has the broker's name too, or had, and wrote over the copy: the
    broker will hear of that when it says its next word.
    """

    name = "what is acknowledged and not degraded, every backup has"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        ledger.on_acknowledged.append(self._look)

    def _look(self, promise: Promise, synced: bool) -> None:
        if not synced or self._ledger.version(promise.client, promise.name) != promise.version:
            return
        if self._ledger.world.machine(promise.broker.node) is not promise.broker:
            return
        for backup in promise.broker.replicating.primary.recipients.values():
            if self._ledger.ended_us.get(backup.backup, -1) >= promise.since_us:
                continue
            copies = self._copies(promise.broker, backup)
            if any(copy.stream > backup.stream for copy in copies):
                continue
            if not any(self._has(copy, promise) for copy in copies):
                has = "has" if promise.wanted else "has no longer"
                self.broken(
                    f"{promise.client} was told that it {has} {promise.name} at {promise.broker.address}, "
                    f"and its {backup.role} backup {backup.backup} does not know"
                )

    def _copies(self, broker: SurvivalBroker, backup: Recipient) -> list[Copy]:
        processes = self._ledger.processes(backup.backup)
        copies = [each.replicating.backup.copies.get(broker.address) for each in processes]
        return [copy for copy in copies if copy is not None]

    def _has(self, copy: Copy, promise: Promise) -> bool:
        replica = copy.clients.get(promise.client)
        has = replica is not None and promise.name in replica.subscriptions
        return has == promise.wanted


class CopiesAgree(Invariant):
    """In the end every copy is what its broker has: nothing is missing, and nothing comes to life again."""

    name = "in the end backups have what their brokers have, and nothing else"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def finish(self, world: World) -> None:
        for broker in self._ledger.brokers():
            for backup in broker.replicating.primary.recipients.values():
                for process in self._ledger.processes(backup.backup):
                    self._compare(broker, process.replicating.backup.copies.get(broker.address), backup)
        self._look_at_standbys(world)

    def _compare(self, broker: SurvivalBroker, copy: Copy | None, backup: Recipient) -> None:
        gamma, where = broker.replicating.clientele, f"{broker.address} at {backup.backup}"
        if copy is None or backup.degraded:
            self.broken(f"there is no copy of {where}, or it is behind")
        if sorted(copy.clients) != sorted(gamma.clients()):
            self.broken(f"the copy of {where} has {sorted(copy.clients)}, not {sorted(gamma.clients())}")
        for client, replica in copy.clients.items():
            wanted = {name: option_of(each) for name, each in gamma.subscriptions(client).items()}
            if replica.subscriptions != wanted:
                self.broken(
                    f"the copy of {where} has {sorted(replica.subscriptions)} of {client}, not {sorted(wanted)}"
                )
            if replica.head != gamma.head(client):
                self.broken(f"the copy of {where} has {replica.head} of {client}, not {gamma.head(client)}")

    def _look_at_standbys(self, world: World) -> None:
        """Standby cells are those of channels that a local backup's primaries have, and that it does not hold."""
        table = world.store.tables[SUBSCRIPTIONS.name]
        cells = [table.get(key, world.now_us) for key in table.keys("", world.now_us)]
        held = [decode_subscription(cell.value) for cell in cells if cell is not None]
        earnest = {(each.k, each.broker) for each in held if not each.standby}
        there = {(each.k, each.broker) for each in held if each.standby}
        wanted: set[tuple[str, str]] = set()
        for broker in self._ledger.brokers():
            for copy in broker.replicating.backup.copies.values():
                if copy.role == LOCAL:
                    names = [name for name in copy.channels if name.startswith(CHANNEL_PREFIX)]
                    wanted |= {(meant_by(name), broker.address) for name in names}
        if there != wanted - earnest:
            self.broken(f"standby cells: {sorted(there)}; wanted: {sorted(wanted - earnest)}")
