"""The promises about messages: all of them, in order, at QoS 2 once; repeats only of messages that nobody has stored as
settled.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.machine import Say
from tocsin.model.network import Address
from tocsin.model.publication import Publication
from tocsin.ports import Entry
from tocsin.sim.process.messages import Receipts, Written, key_in
from tocsin.sim.process.packets import Key
from tocsin.sim.process.stage import LOG
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.survival.programs import WILLS, Listener, Resident, Subscriber
from tocsin.sim.scenarios.survival.promises.looking import Brokers, Running
from tocsin.sim.scenarios.survival.promises.ownership import Sessions
from tocsin.sim.world import World
from tocsin.wire.mqtt.topics import matches


class Messages(Sessions):
    """Residents get all that they are subscribed to, critical messages and the others each in their order; on one
    connection nothing twice. A message is due that is stored behind SUBACK, once the store has the subscription: a
    broker that is cut off from it says so. After an unsubscribe nothing is due any more."""

    name = "subscribers get everything, in order, at QoS 2 once"

    def __init__(self, brokers: Brokers, written: Written, residents: Sequence[Resident]) -> None:
        self._brokers = brokers
        self._written = written
        self._residents = {each.name: each for each in residents}
        self._since: dict[Address, dict[str, int]] = {}  # resident → filter → positions beyond are its due
        self._unstored: dict[Address, dict[str, None]] = {}  # SUBACK came, and the store does not have them
        self._receipts = Receipts(written, self._is_due, self.broken)
        self._told: dict[tuple[Address, Key], None] = {}

    def attach(self, world: World) -> None:
        super().attach(world)
        observers = world.observers

        def subscribed(who: Address, say: Say) -> None:
            self._unstored.setdefault(who, {})[str(say.facts["topic_filter"])] = None
            session = self._brokers.session(who)
            if session is not None:
                self.written(who, session)

        def unsubscribing(who: Address, say: Say) -> None:
            for known in (self._since, self._unstored):
                known.get(who, {}).pop(str(say.facts["topic_filter"]), None)

        def begin_anew(who: Address, say: Say) -> None:
            """The client subscribes again, to all that it had."""
            self._unstored.setdefault(who, {}).update(dict.fromkeys(self._since.pop(who, {})))

        observers.on_say("subscribed", subscribed)
        observers.on_say("unsubscribing", unsubscribing)
        observers.on_say("session lost", begin_anew)
        observers.on_say("took", self._on_took)
        observers.on_say("told", self._on_told)

    def written(self, node: Address, session: StoredSession) -> None:
        unstored = self._unstored.get(session.client, {})
        for name in [each for each in unstored if each in session.subscriptions]:
            del unstored[name]
            last = self._brokers.world.store.logs[LOG.name].last_position
            self._since.setdefault(session.client, {}).setdefault(name, last)

    def _on_told(self, who: Address, say: Say) -> None:
        self._told[who, key_in(say)] = None

    def _on_took(self, who: Address, say: Say) -> None:
        if who in self._residents:
            self._receipts.take(who, say)

    def _is_due(self, who: Address, position: int, topic: str) -> bool:
        filters = self._since.get(who, {})
        return any(position > since and matches(each, topic) for each, since in filters.items())

    def finish(self, world: World) -> None:
        for who in self._residents:
            if who not in self._since:
                self.broken(f"{who} could not subscribe")
            for position, key, topic, _ in self._written.entries:
                if self._is_due(who, position, topic) and (who, key) not in self._told:
                    self.broken(f"{who} was never told of {key}, which is stored at {position}")


class Shared(Invariant):
    """A client with a query gets everything that is stored since it subscribed; of a group, one member does.

    One thing may be missed, as the reference says (``docs/reference/streams.md``, *in which order*). A broker that no
    coordinator has answered lately, or for five seconds, lets messages go on before others know of their stream. A
    broker that has the answer to a query, and gets such a message before it hears that the stream joined, passes the
    client by. A client that is behind, or whose query is not answered yet, is due the message: then the metadata in
    the message decides.
    """

    name = "a query and a group get everything, at QoS 2 once"

    def __init__(self, brokers: Brokers, written: Written, subscribers: Sequence[Subscriber]) -> None:
        self._written = written
        self._subscribers = {each.name: each for each in subscribers}
        self._since: dict[str, int] = {}  # who, or which group → what is stored behind it is due
        self._told: dict[tuple[str, Key], int] = {}
        self._passed_by: dict[tuple[str, int], None] = {}  # a client with a query, and a position
        brokers.on_unclear.append(self._on_unclear)

    def attach(self, world: World) -> None:
        log = world.store.logs[LOG.name]

        def begin(who: Address, say: Say) -> None:
            self._since.setdefault(self._who(who), log.last_position)

        world.observers.on_say("joined", begin)
        world.observers.on_say("told", self._look)

    def _on_unclear(self, broker: Running, entry: Entry, publication: Publication) -> None:
        for name, subscriber in self._subscribers.items():
            if not subscriber.group and broker.passes_by(name, publication):
                self._passed_by[name, entry.position] = None

    def _who(self, name: str) -> str:
        return self._subscribers[name].group or name

    def _look(self, who: Address, say: Say) -> None:
        if who in self._subscribers:
            key = (self._who(who), key_in(say))
            self._told[key] = self._told.get(key, 0) + 1

    def finish(self, world: World) -> None:
        for subscriber in self._subscribers.values():
            who = self._who(subscriber.name)
            if who not in self._since:
                self.broken(f"{who} could not subscribe")
            for position, key, topic, qos in self._written.entries:
                if not matches(subscriber.due, topic):
                    continue
                told = self._told.get((who, key), 0)
                due = position > self._since[who] and (who, position) not in self._passed_by
                if due and not told:
                    self.broken(f"{who} was never told of {key}, which is stored at {position}")
                if qos == subscriber.qos == 2 and told > 1:
                    self.broken(f"{who} was told of {key} {told} times, at QoS 2")


class NothingGivenUp(Invariant):
    """After UNSUBACK a client gets of those topics only what the log had by then, until it subscribes again; if the
    store has it, which a broker that is cut off says that it has not. The client asks again then."""

    name = "nothing comes of a topic that was unsubscribed from, but what the log had before"

    def __init__(self, brokers: Brokers, written: Written, residents: Sequence[Resident]) -> None:
        self._brokers = brokers
        self._written = written
        self._residents = {each.name: each for each in residents}
        self._left: dict[Address, dict[str, int]] = {}  # client → filter → where the log was at UNSUBACK

    def attach(self, world: World) -> None:
        world.observers.on_say("subscribing", self._on_subscribing)
        world.observers.on_say("unsubscribed", self._on_unsubscribed)
        world.observers.on_say("heard that it is stored", self._on_stored)
        world.observers.on_say("took", self._on_took)

    def _on_stored(self, client: Address, say: Say) -> None:
        if not say.facts["wanted"] and client in self._residents:
            self._on_unsubscribed(client, say)

    def _on_subscribing(self, client: Address, say: Say) -> None:
        self._left.get(client, {}).pop(str(say.facts["topic_filter"]), None)

    def _on_unsubscribed(self, client: Address, say: Say) -> None:
        name, session = str(say.facts["topic_filter"]), self._brokers.session(client)
        if session is not None and name not in session.subscriptions:
            last = self._brokers.world.store.logs[LOG.name].last_position
            self._left.setdefault(client, {})[name] = last

    def _on_took(self, client: Address, say: Say) -> None:
        left = self._left.get(client)
        if not left:
            return
        key, topic = key_in(say), str(say.facts["topic"])
        if any(matches(each, topic) for each in self._residents[client].filters if each not in left):
            return
        known = max((last for each, last in left.items() if matches(each, topic)), default=0)
        if self._written.first[key] > known:
            self.broken(f"{client} got message {key} on {topic}, and has unsubscribed from {sorted(left)}")


class OnlyUnsettledAgain(Sessions):
    """Duplicates lie in (eta, t]: what the session's cell had as settled when its owner took it is not sent again.

    ``eta`` is how far the cell was then, ``t`` how far an earlier owner had delivered.
    """

    name = "what is stored as settled is not delivered again"

    def __init__(self, brokers: Brokers, written: Written, residents: Sequence[Resident]) -> None:
        self._brokers = brokers
        self._written = written
        self._residents = {each.name for each in residents}
        self._taken: dict[tuple[str, int], StoredSession] = {}  # session and epoch → as it was taken
        self._epochs: dict[
            Address, tuple[object, tuple[str, int]]
        ] = {}  # client → connection → session, epoch

    def attach(self, world: World) -> None:
        super().attach(world)
        world.observers.on_say("connected", self._on_connected)
        world.observers.on_say("took", self._on_took)

    def written(self, node: Address, session: StoredSession) -> None:
        self._taken.setdefault((session.uid, session.epoch), session)

    def _on_connected(self, client: Address, say: Say) -> None:
        broker = self._brokers.at(str(say.facts["node"]))
        served = None if broker is None else broker.served(client)
        self._epochs.pop(client, None)
        if served is not None and served.session:
            self._epochs[client] = (say.facts["connection"], (served.session, served.epoch))

    def _on_took(self, client: Address, say: Say) -> None:
        connection, taken = self._epochs.get(client, (None, ("", 0)))
        if client not in self._residents or connection != say.facts["connection"]:
            return
        key, session = key_in(say), self._taken[taken]
        progress = session.progress
        if key in self._written.critical and session.critical_messages is not None:
            progress = session.critical_messages
        positions = [position for position, each, _, _ in self._written.entries if each == key]
        if all(_settled(progress, position) for position in positions):
            self.broken(f"{client} got message {key} of {positions} in epoch {taken[1]}: {progress}")


def _settled(progress: Progress, position: int) -> bool:
    return position < progress.next and position not in progress.unsettled


class ToldOnce(Invariant):
    """Behind the client's filter for repeats there is nothing twice, as long as the program runs that has it.

    A will that a cut-off cluster says aloud, at QoS 0, does not count: the log may bring it as well (decision 032).
    """

    name = "behind the client's filter nothing comes twice"

    def __init__(self, written: Written, listeners: Sequence[Listener]) -> None:
        self._written = written
        self._told: dict[tuple[Address, object, object, Key], int] = {}
        self._listeners = {each.name for each in listeners}

    def attach(self, world: World) -> None:
        world.observers.on_say("told", self._on_told)
        world.observers.on_say("session lost", self._on_lost)

    def _on_lost(self, client: Address, say: Say) -> None:
        """Its new session may bring what the old one brought."""
        self._told = {each: times for each, times in self._told.items() if each[0] != client}

    def _on_told(self, client: Address, say: Say) -> None:
        aloud = not say.facts["qos"] and str(say.facts["topic"]).startswith(WILLS)
        if client not in self._listeners or aloud:
            return
        key = key_in(say)
        told = (client, say.facts["instance"], say.facts["asks"], key)
        times = self._told[told] = self._told.get(told, 0) + 1
        # A publisher at QoS 1 that hears nothing publishes again: the log may have several.
        most = self._written.copies.get(key, 0)
        if times > most and say.facts["qos"]:
            self.broken(f"{client} was told of {key} {times} times, and there are {most}")


class Heard(Invariant):
    """When all is calm, what is published at QoS 0 is heard once by everybody who listens."""

    name = "what is published when all is calm is heard once"

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        self._spoken: dict[Key, None] = {}
        self._heard: dict[tuple[str, Key], int] = {}

    def attach(self, world: World) -> None:
        world.observers.on_say("spoke", self._on_spoken)
        world.observers.on_say("heard", self._on_heard)

    def _on_spoken(self, who: Address, say: Say) -> None:
        self._spoken[key_in(say)] = None

    def _on_heard(self, who: Address, say: Say) -> None:
        key = (who, key_in(say))
        self._heard[key] = self._heard.get(key, 0) + 1

    def finish(self, world: World) -> None:
        if not self._spoken:
            self.broken("nobody published anything when all was calm")
        for listener in self._listeners:
            for key in self._spoken:
                times = self._heard.get((listener.name, key), 0)
                if times != 1:
                    self.broken(f"{listener.name} heard {key} {times} times")
