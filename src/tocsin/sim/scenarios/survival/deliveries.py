"""What is promised of messages and results: all of them, in order; again only what nobody has stored as settled."""

from __future__ import annotations

from typing import cast

from tocsin.core.delivery import Progress
from tocsin.core.machine import Say
from tocsin.core.stored_session import StoredSession
from tocsin.model.message import Address
from tocsin.model.results import place
from tocsin.ports import Entry
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.channels.wire import FILES, NOTICES, notice_of, part_of
from tocsin.sim.scenarios.durable.promises import Taken, Written
from tocsin.sim.scenarios.durable.wire import LOG, Key
from tocsin.sim.scenarios.survival.clients import Resident
from tocsin.sim.scenarios.survival.ownership import Sessions
from tocsin.sim.world import World
from tocsin.wire.topics import matches


class Messages(Taken):
    """Those of the message log, at residents. Of what one unsubscribes from nothing is due to it any more."""

    subscriber = Resident

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_say("unsubscribing", self._on_unsubscribing)

    def _on_unsubscribing(self, client: Address, say: Say) -> None:
        self._since.get(client, {}).pop(str(say.facts.get("topic_filter")), None)


class NothingGivenUp(Invariant):
    """After UNSUBACK a client gets of those topics only what the log had by then, until it subscribes again."""

    name = "nothing comes of a topic that was unsubscribed from, but what the log had before"

    def __init__(self, written: Written) -> None:
        self._written = written
        self._left: dict[Address, dict[str, int]] = {}  # client → filter → where the log was at UNSUBACK

    def attach(self, world: World) -> None:
        self._world = world
        world.observers.on_say("subscribing", self._on_subscribing)
        world.observers.on_say("unsubscribed", self._on_unsubscribed)
        world.observers.on_say("took", self._on_took)

    def _on_subscribing(self, client: Address, say: Say) -> None:
        self._left.get(client, {}).pop(str(say.facts.get("topic_filter")), None)

    def _on_unsubscribed(self, client: Address, say: Say) -> None:
        if "topic_filter" in say.facts:
            last = self._world.store.logs[LOG.name].last_position
            self._left.setdefault(client, {})[str(say.facts["topic_filter"])] = last

    def _on_took(self, client: Address, say: Say) -> None:
        left = self._left.get(client)
        if not left or "key" not in say.facts:
            return
        key, resident = cast(Key, say.facts["key"]), self._world.machine(client)
        assert isinstance(resident, Resident)
        topic = self._written.topics[key]
        if any(matches(each, topic) for each in resident.filters if each not in left):
            return
        known = max((last for each, last in left.items() if matches(each, topic)), default=0)
        if self._written.first[key] > known:
            self.broken(f"{client} got message {key} on {topic}, and has unsubscribed from {sorted(left)}")


class OnlyUnsettledAgain(Sessions):
    """Duplicates lie in (eta, t]: what the session's cell had as settled when its owner took it is not sent again.

    ``eta`` is how far the cell was then, ``t`` how far an earlier owner had delivered.
    """

    name = "what is stored as settled is not delivered again"

    def __init__(self, written: Written) -> None:
        self._written = written
        self._taken: dict[
            tuple[object, int], StoredSession
        ] = {}  # session and epoch → the session, as it was taken
        # Client and connection → the session and its epoch.
        self._epochs: dict[tuple[str, int], tuple[object, int]] = {}
        self._critical: dict[int, bool] = {}  # result → whether it is
        self._places: dict[int, int] = {}  # tick → the place at which its notice begins

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_say("began", self._on_began)
        world.observers.on_say("took", self._on_took)
        world.observers.on_entry(FILES.name, self._on_file)
        world.observers.on_entry(NOTICES.name, self._on_notice)

    def written(self, node: Address, session: StoredSession) -> None:
        self._taken.setdefault((session.uid, session.epoch), session)

    def _on_file(self, entry: Entry) -> None:
        part = part_of(entry)
        self._critical.update((part.tick * 1_000 + row.ordinal, row.critical) for row in part.rows)

    def _on_notice(self, entry: Entry) -> None:
        self._places[notice_of(entry).tick] = place(entry.position, 0)

    def _on_began(self, broker: Address, say: Say) -> None:
        facts = say.facts
        connection = (str(facts["client"]), cast(int, facts["connection"]))
        self._epochs[connection] = (facts["uid"], cast(int, facts["epoch"]))

    def _on_took(self, client: Address, say: Say) -> None:
        uid, epoch = self._epochs[client, cast(int, say.facts["connection"])]
        session = self._taken[uid, epoch]
        if "key" in say.facts:
            key = cast(Key, say.facts["key"])
            self._look_at_message(client, epoch, session, key)
            return
        number = cast(int, say.facts["number"])
        where = self._places[number // 1_000] + number % 1_000
        progress = session.critical if self._critical[number] and session.critical else session.results
        if progress is not None and _settled(progress, where):
            self.broken(f"{client} got result {number} at {where} in epoch {epoch}: {progress}")

    def _look_at_message(self, client: Address, epoch: int, session: StoredSession, key: Key) -> None:
        progress = session.progress
        if key in self._written.critical and session.critical_messages is not None:
            progress = session.critical_messages
        positions = [position for position, each, _ in self._written.entries if each == key]
        if all(_settled(progress, position) for position in positions):
            self.broken(f"{client} got message {key} of {positions} in epoch {epoch}: {progress}")


def _settled(progress: Progress, position: int) -> bool:
    return position < progress.next and position not in progress.unsettled


class ToldOnce(Invariant):
    """Behind the client's filter for repeats there is nothing twice, and nothing is lost in it.

    A client whose session was lost has a new one, which may bring what the old one brought.
    """

    name = "behind the client's filter nothing comes twice, and nothing is missing"

    def __init__(self, written: Written) -> None:
        self._written = written
        self._took: dict[tuple[Address, object], None] = {}
        self._told: dict[tuple[Address, object], int] = {}
        self._before: dict[tuple[Address, object], None] = {}  # told, in an earlier session

    def attach(self, world: World) -> None:
        world.observers.on_say("took", self._on_took)
        world.observers.on_say("told", self._on_told)
        world.observers.on_say("session lost", self._on_lost)

    def _on_lost(self, client: Address, say: Say) -> None:
        over = [each for each in self._told if each[0] == client and each[1] in self._written.copies]
        for each in over:
            del self._told[each]
            self._before[each] = None

    def _on_took(self, client: Address, say: Say) -> None:
        self._took[client, _what(say)] = None

    def _on_told(self, client: Address, say: Say) -> None:
        what = _what(say)
        times = self._told[client, what] = self._told.get((client, what), 0) + 1
        # A publisher at QoS 1 that hears nothing publishes again: the log may have several.
        most = self._written.copies[cast(Key, what)] if "key" in say.facts else 1
        if times > most:
            self.broken(f"{client} was told {what} {times} times, and there are {most}")

    def finish(self, world: World) -> None:
        for client, what in self._took:
            if (client, what) not in self._told and (client, what) not in self._before:
                self.broken(f"{client} took {what}, and its filter kept it")


def _what(say: Say) -> object:
    return say.facts["key"] if "key" in say.facts else (say.facts["name"], say.facts["number"])
