"""The promises of the counter."""

from __future__ import annotations

from tocsin.core.machine import Say
from tocsin.model.network import Address
from tocsin.ports import Entry
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.counter.clients import Client
from tocsin.sim.scenarios.counter.messages import LOG, Added, Counted, Key, Notice, fact
from tocsin.sim.world import World


class OneHistory(Invariant):
    """The log reads as if one process had written it."""

    name = "the log is one history"

    def __init__(self) -> None:
        self.counts: dict[Key, int] = {}
        self._epoch = 0

    def attach(self, world: World) -> None:
        world.observers.on_entry(LOG.name, self._look)

    def _look(self, entry: Entry) -> None:
        what = fact(entry.payload)
        if what.epoch < self._epoch:
            self.broken(f"position {entry.position} is of epoch {what.epoch}, after epoch {self._epoch}")
        self._epoch = what.epoch
        if isinstance(what, Added):
            if what.key in self.counts:
                self.broken(f"increment {what.number} of {what.client} is counted twice")
            if what.count != len(self.counts) + 1:
                self.broken(
                    f"position {entry.position} says {what.count} after {len(self.counts)} increments"
                )
            self.counts[what.key] = what.count


class AcknowledgedIsDurable(Invariant):
    """Every answer that a client got is in the log, with the same value."""

    name = "what is acknowledged is durable"

    def __init__(self, history: OneHistory) -> None:
        self._history = history

    def attach(self, world: World) -> None:
        world.observers.on_delivery(Counted, self._look)

    def _look(self, sender: Address, client: Address, message: Counted) -> None:
        count = self._history.counts.get((client, message.number))
        if count is None:
            self.broken(
                f"{sender} acknowledged increment {message.number} of {client}; the log does not have it"
            )
        if count != message.count:
            self.broken(
                f"{client} was told {message.count} for increment {message.number}; the log says {count}"
            )


class OneHolder(Invariant):
    """An epoch has one holder."""

    name = "an epoch has one holder"

    def __init__(self) -> None:
        self._holders: dict[object, Address] = {}

    def attach(self, world: World) -> None:
        world.observers.on_say("holds", self._look)

    def _look(self, server: Address, say: Say) -> None:
        epoch = say.facts["epoch"]
        first = self._holders.setdefault(epoch, server)
        if first != server:
            self.broken(f"{first} and {server} both hold epoch {epoch}")


class NoticesInOrder(Invariant):
    """The listener hears of every increment, each for the first time in order."""

    name = "every increment is told, in order"

    def __init__(self, history: OneHistory) -> None:
        self._history = history
        self._told = 0

    def attach(self, world: World) -> None:
        world.observers.on_delivery(Notice, self._look)

    def _look(self, sender: Address, listener: Address, message: Notice) -> None:
        if message.count > self._told + 1:
            self.broken(f"{listener} was told {message.count} before {self._told + 1}")
        self._told = max(self._told, message.count)

    def finish(self, world: World) -> None:
        if self._told != len(self._history.counts):
            self.broken(f"in the end the listener knows of {self._told} of {len(self._history.counts)}")


class EveryoneIsServed(Invariant):
    """Once nothing fails any more, every client gets what it asked for."""

    name = "every client is served in the end"

    def finish(self, world: World) -> None:
        for address in world.addresses:
            client = world.machine(address)
            if isinstance(client, Client) and not client.done:
                self.broken(f"{address} waits for increment {client.counted + 1}")


def promises() -> list[Invariant]:
    history = OneHistory()
    return [
        history,
        AcknowledgedIsDurable(history),
        OneHolder(),
        NoticesInOrder(history),
        EveryoneIsServed(),
    ]
