"""The promises about the copies at backups."""

from __future__ import annotations

from typing import NamedTuple

from tocsin.core.machine import Say
from tocsin.core.replication.gamma import Copy
from tocsin.core.replication.recipient import Recipient
from tocsin.model.network import Address
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.promises.bequests import WillsOnce
from tocsin.sim.scenarios.survival.promises.looking import LEFT_BEHIND, Brokers, Running
from tocsin.sim.world import World
from tocsin.wire.internal.replication import Role, Series


class _Backed(NamedTuple):
    """A backup that a broker had, and kept in step, when a client asked for something."""

    broker: Running
    role: Role
    backup: str
    series: Series


class BackupsKnow(Invariant):
    """At SUBACK and UNSUBACK every backup has what they say, and the client's will: each that its broker had when the
    client asked, has still, and that was not behind since. One that has caught up while the answer is on its way to the
    client has all but the next update, and nobody waited for it.

    Unless the backup's process has ended since: its copy is gone with it, and the broker will hear of that; or a later
    process has the broker's name too, or had, and wrote over the copy: the broker will hear of that when it says its
    next word.

    A will that the log has need not be known any more. A backup that took the broker for lost, and got no answer from
    it, has published it though the client stayed connected: the broker and its backups hold it to be settled.
    """

    name = "what is acknowledged, every backup has that is not behind"

    def __init__(self, brokers: Brokers, wills: WillsOnce) -> None:
        self._brokers = brokers
        self._wills = wills
        self._asked: dict[
            tuple[str, str], tuple[int, list[_Backed]]
        ] = {}  # client, filter → when, and the backups that were in step
        self._left_behind_us: dict[
            tuple[Address, str], int
        ] = {}  # a broker's node, its backup → when it went on without it last

    def attach(self, world: World) -> None:
        self._world = world
        observers = world.observers
        observers.on_say(LEFT_BEHIND, self._on_left_behind)
        observers.on_say("subscribing", self._on_asked)
        observers.on_say("unsubscribing", self._on_asked)
        observers.on_say("subscribed", lambda client, say: self._on_answer(client, say, wanted=True))
        observers.on_say("unsubscribed", lambda client, say: self._on_answer(client, say, wanted=False))

    def _on_left_behind(self, node: Address, say: Say) -> None:
        self._left_behind_us[node, str(say.facts["backup"])] = self._world.now_us

    def _on_asked(self, client: Address, say: Say) -> None:
        in_step = [
            _Backed(broker, role, each.backup, each.series)
            for broker in self._brokers.running()
            for role, each in broker.recipients.items()
            if _in_step(each)
        ]
        self._asked[client, str(say.facts["topic_filter"])] = self._world.now_us, in_step

    def _on_answer(self, client: Address, say: Say, *, wanted: bool) -> None:
        name = str(say.facts["topic_filter"])
        asked_us, in_step = self._asked.pop((client, name))
        for backed in in_step:
            if self._left_behind_us.get((backed.broker.node, backed.backup), -1) >= asked_us:
                continue
            if not self._is_so(backed, client, name, wanted):
                continue
            copies = self._copies(backed, asked_us)
            if copies is None:
                continue
            if not any(_has(copy, client, name) == wanted for copy in copies):
                has = "has" if wanted else "has no longer"
                self.broken(
                    f"{client} was told that it {has} {name} at {backed.broker.name}, and its {backed.role} backup "
                    f"{backed.backup} does not know"
                )
            served = backed.broker.served(client)
            if served is None or served.will_id in self._wills.told:
                continue
            if served.will_id not in ("", *(_will_id(copy, client) for copy in copies)):
                self.broken(
                    f"{client} was told of a subscription, and {backed.backup} does not have its will"
                )

    def _is_so(self, backed: _Backed, client: str, name: str, wanted: bool) -> bool:
        """Whether that broker has the client, as it was told, and this backup in step."""
        broker = backed.broker
        if not self._brokers.is_running(broker) or broker.is_cut_off or broker.served(client) is None:
            return False
        if not self._brokers.is_awake(broker):
            return False  # another broker answered: a process that stands still has old news of the client
        recipient = broker.recipients.get(backed.role)
        if recipient is None or recipient.series != backed.series or recipient.degraded:
            return False
        return (name in broker.clientele.get(client, {})) == wanted

    def _copies(self, backed: _Backed, asked_us: int) -> list[Copy] | None:
        """The copies of that broker at the processes of a backup's name; None if nothing is promised of them."""
        if self._brokers.ended_us.get(backed.backup, -1) >= asked_us:
            return None
        processes = [each for each in self._brokers.named(backed.backup) if each.began_us <= asked_us]
        copies = [copy for each in processes if (copy := each.copies.get(backed.broker.name)) is not None]
        overwritten = any(each.series > backed.series for each in copies)
        return None if overwritten or not processes else copies


def _has(copy: Copy, client: str, name: str) -> bool:
    replica = copy.clients.get(client)
    return replica is not None and name in replica.subscriptions


def _will_id(copy: Copy, client: str) -> str:
    """The will of the connection that a copy knows of."""
    replica = copy.clients.get(client)
    return "" if replica is None or replica.head.will is None else replica.head.will.record_id


def _in_step(recipient: Recipient) -> bool:
    return recipient.whole and not recipient.degraded and not recipient.declined


class CopiesAgree(Invariant):
    """In the end every copy is what its broker has: nothing is missing, and nothing comes to life again."""

    name = "in the end backups have what their brokers have, and nothing else"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def finish(self, world: World) -> None:
        for broker in self._brokers.running():
            for backup in broker.recipients.values():
                for process in self._brokers.named(backup.backup):
                    self._compare(broker, process.copies.get(broker.name), backup)

    def _compare(self, broker: Running, copy: Copy | None, backup: Recipient) -> None:
        clientele, where = broker.clientele, f"{broker.name} at {backup.backup}"
        if copy is None or backup.degraded:
            self.broken(f"there is no copy of {where}, or it is behind")
        if sorted(copy.clients) != sorted(clientele):
            self.broken(f"the copy of {where} has {sorted(copy.clients)}, not {sorted(clientele)}")
        for client, replica in copy.clients.items():
            if replica.subscriptions != clientele[client]:
                self.broken(
                    f"the copy of {where} has {sorted(replica.subscriptions)} of {client}, not "
                    f"{sorted(clientele[client])}"
                )
            if replica.head != broker.head(client):
                self.broken(f"the copy of {where} has {replica.head} of {client}, not {broker.head(client)}")
