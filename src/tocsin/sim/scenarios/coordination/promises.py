"""The promises of coordination."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.participant.participant import Participant
from tocsin.core.coordination.state.state import State
from tocsin.model.network import Address, Route
from tocsin.model.stream import Value
from tocsin.ports import Entry
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.coordination.clients import Clients
from tocsin.sim.scenarios.coordination.model import Model
from tocsin.sim.scenarios.coordination.shells import Message, Shell, Shells
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Elected, Said, Streams, decode_batch
from tocsin.wire.internal.notices import decode_notice


class OneHistory(Invariant):
    """The log has one writer at a time: batches form a chain, epochs and the numbers of notices grow."""

    name = "the log is one history"

    def __init__(self, log: str, subject: str) -> None:
        self.model = Model()
        self.marks: set[Value | None] = set()  # of the changes that are in the log
        self.log = log
        self.subject = subject
        self._position = 0
        self._epoch = 0
        self._notices: dict[tuple[str, int], tuple[int, int]] = {}

    def attach(self, world: World) -> None:
        world.observers.on_entry(self.log, self._look)

    def _look(self, entry: Entry) -> None:
        if entry.subject != self.subject:
            self._look_at_notice(entry)
            return
        batch = decode_batch(entry.payload)
        if batch.previous != self._position:
            self.broken(f"the batch at {entry.position} follows {batch.previous}, not {self._position}")
        elected = any(isinstance(each, Elected) for each in batch.commands)
        if batch.epoch != self._epoch + elected:
            self.broken(f"epoch {batch.epoch} at {entry.position} comes after {self._epoch}")
        self._position, self._epoch = entry.position, batch.epoch
        self.model.apply(batch)
        for said in batch.commands:
            if isinstance(said, Said):
                for command in said.commands:
                    if isinstance(command, Streams):
                        self.marks.update(diff.get("mark") for _, diff in command.changes if diff)

    def _look_at_notice(self, entry: Entry) -> None:
        broker = entry.subject.rpartition(".")[2]
        notice = decode_notice(entry.payload)
        number, epoch = self._notices.get((broker, notice.incarnation), (0, 0))
        if notice.number <= number or notice.epoch < epoch or notice.epoch != self._epoch:
            self.broken(
                f"notice {notice.number} of epoch {notice.epoch} for {broker} at {entry.position} "
                f"comes after {number} of epoch {epoch}"
            )
        self._notices[broker, notice.incarnation] = (notice.number, notice.epoch)


class SettledIsKept(Invariant):
    """A change of which a broker was told that it is settled is in the log."""

    name = "what is acknowledged is in the log"

    def __init__(self, shells: Shells, history: OneHistory) -> None:
        shells.on_settled.append(self._look)
        self._history = history

    def _look(self, address: Address, shell: Shell, ticket: int) -> None:
        for each in range(shell.settled + 1, ticket + 1):
            command = shell.said[each]
            if isinstance(command, Streams):
                for topic, diff in command.changes:
                    if diff and diff.get("mark") not in self._history.marks:
                        self.broken(
                            f"{address} was told so of change {each} of {topic}; the log does not have it"
                        )


class TakesTurns(Invariant):
    """Per broker, query and stream: joined, left, joined … and the tables follow the machine."""

    name = "joined and left take turns"

    def __init__(self, world: World, shells: Shells) -> None:
        self._world = world
        self._shells = shells
        shells.on_turn.append(self._look)

    def _look(self, address: Address, what: str, query: str, topic: str) -> None:
        shell = self._shells.shells[address]
        inside = topic in shell.sets.get(query, {})
        if inside == (what == "joined"):
            self.broken(f"{address} hears that {topic} {what} {query} and {'has' if inside else 'lacks'} it")


class Agreement(Invariant):
    """In the end all replicas have the same state, and every broker what follows from it."""

    name = "everybody agrees in the end"

    def __init__(self, shells: Shells, clients: Clients, history: OneHistory) -> None:
        self._shells = shells
        self._clients = clients
        self._history = history

    def finish(self, world: World) -> None:
        model = self._history.model
        machines = [world.machine(address) for address in world.addresses]
        replicas = [machine for machine in machines if isinstance(machine, Coordinator)]
        leaders = [each.name for each in replicas if each.leader is not None]
        if len(leaders) != 1:
            self.broken(f"there are {len(leaders)} leaders: {leaders}")
        for replica in replicas:
            self._look_at_replica(replica.name, replica.replica, model)
        plan = replicas[0].replica.interest.plan
        for address, info in self._shells.infos.items():
            participant = world.machine(address)
            assert isinstance(participant, Participant)
            routes = plan.routes(info.id) if info.id in model.brokers else None
            self._look_at_broker(address, participant, routes, model)
        self._look_at_clients(model)

    def _look_at_replica(self, name: str, state: State, model: Model) -> None:
        present = dict(state.presence.all_present())
        if present != model.present():
            self.broken(f"{name} has other streams than the log says: {_first(present, model.present())}")
        kept = {topic: stream.keys for topic, stream in state.presence.streams.items()}
        expected = {topic: stream.keys for topic, stream in model.streams.items()}
        if kept != expected:
            self.broken(f"{name} keeps other metadata than the log says: {_first(kept, expected)}")
        if set(state.members) != set(model.brokers):
            self.broken(f"{name} has other brokers than the log says: {sorted(state.members)}")
        needed, possible = model.routes(lingering=False), model.routes(lingering=True)
        for broker, routes in needed.items():
            known = state.interest.plan.routes(broker)
            if not routes <= known <= possible[broker]:
                wrong = sorted(map(str, (routes - known) | (known - possible[broker])))
                self.broken(f"{name} has other routes for {broker} than follow from the log: {wrong}")
        for query in state.askers:
            if state.matching.topics(query) != sorted(model.query_set(state.matching.text(query))):
                self.broken(f"{name} has other streams for {state.matching.text(query)} than the log says")

    def _look_at_broker(
        self,
        address: Address,
        participant: Participant,
        routes: frozenset[Route] | None,
        model: Model,
    ) -> None:
        shell, broker = self._shells.shells[address], address.partition("/")[2]
        if routes is None:
            self.broken(f"{address} is not known")
        if set(shell.routes) != routes or set(participant.routes) != routes:
            self.broken(f"{address} has {len(shell.routes)} routes that should be {len(routes)}")
        known = model.brokers[broker]
        if known.filters != set(participant.interests):
            self.broken(f"{address} wants {sorted(participant.interests)}, and the log says {known.filters}")
        if known.queries != dict(participant.queries):
            self.broken(f"{address} asks {sorted(participant.queries)}, and the log says otherwise")
        for query, text in participant.queries.items():
            expected = model.told(query, text)
            if shell.sets.get(query) != expected:
                self.broken(f"{address} has for {text}: {_first(shell.sets.get(query) or {}, expected)}")
        for topic, keys in model.described_at(broker).items():
            if shell.described.get(topic) != keys:
                self.broken(
                    f"{address} has another word of {topic} than the log: {shell.described.get(topic)}"
                )
        if shell.held or shell.settled != shell.tickets:
            self.broken(f"{address} waits: {len(shell.held)} messages, {shell.tickets} changes")

    def _look_at_clients(self, model: Model) -> None:
        for name, client in self._clients.connected().items():
            known = model.clients.get(name)
            for topic in client.topics:
                stream = model.streams.get(topic)
                if stream is None or name not in stream.publishers:
                    self.broken(f"{name} publishes on {topic}, and the log does not say so")
            if client.topics and (known is None or known.until_us is not None):
                self.broken(f"{name} is connected, and the log says that it is away")


class MessagesArrive(Invariant):
    """Where nothing fails, a stream's first message reaches everybody whom its change made want it, once."""

    name = "no message is lost while a stream joins"

    def __init__(self, shells: Shells, clients: Clients, history: OneHistory) -> None:
        shells.on_delivered.append(self._take)
        self._shells = shells
        self._clients = clients
        self._history = history
        self._taken: dict[tuple[Address, str, int], int] = {}

    def attach(self, world: World) -> None:
        self._world = world

    def finish(self, world: World) -> None:
        for message in self._clients.messages:
            self._expect(message)

    def _take(self, address: Address, query: str, message: Message) -> None:
        key = (address, query, message.number)
        self._taken[key] = self._taken.get(key, 0) + 1
        if self._taken[key] > 1 and not self._world.plan:
            self.broken(f"{address} got message {message.number} of {message.topic} twice for {query}")

    def _expect(self, message: Message) -> None:
        topic = message.topic
        if self._world.plan or self._clients.changed_us[topic] != message.at_us:
            return  # something failed, or the stream is another by now
        for address, shell in self._shells.shells.items():
            for query, known_us in shell.known_us.items():
                wanted = known_us < message.at_us and topic in shell.sets[query]
                if wanted and (address, query, message.number) not in self._taken:
                    self.broken(f"{address} never got message {message.number} of {topic} for {query}")


def _first(have: Mapping[str, object], want: Mapping[str, object]) -> str:
    """The first difference, as text."""
    for key in sorted({*have, *want}):
        if have.get(key) != want.get(key):
            return f"{key} is {have.get(key)} and should be {want.get(key)}"
    return "nothing"
