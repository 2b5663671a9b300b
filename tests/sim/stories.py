"""Stories that are meant to be read: a few whole processes, one thing that happens to them, and what they say of it.

A story has no other lines than those that tell it: what processes log and programs see, what the leader records, what
becomes of sessions and claims in the store, and what the nemesis does. Every message takes half a millisecond, so that
a story does not change with the number of messages in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tocsin.client.subscription import Subscription
from tocsin.config import Settings
from tocsin.config.broker import Broker
from tocsin.config.recovery import Recovery
from tocsin.core.delivery.stored_session import decode_session
from tocsin.core.machine import Effect, Event, PutKey, Say, StoreFailed
from tocsin.core.shared.stored_group import StoredGroup, decode_group
from tocsin.errors import Conflict
from tocsin.model.network import Address
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Entry
from tocsin.sim.faults.kinds import Fault, unleash
from tocsin.sim.latency import Latency
from tocsin.sim.network import Link
from tocsin.sim.process.machine import SimulatedProcess
from tocsin.sim.process.stage import GROUPS, NAMES, NETWORK, SESSIONS, Stage, configured
from tocsin.sim.runs.transcript import Transcript, describe
from tocsin.sim.scenarios.survival.programs import Pace, Program
from tocsin.sim.world import World
from tocsin.wire.internal.commands import Elected, Joined, Lost, Planned, Promoted, Said, decode_batch

SECOND = 1_000_000
WAY = Link(latency=Latency.constant(500), fifo=True)
SEED = 7


class Reader(Program):
    """Reads what it is subscribed to, each message for a while."""

    def __init__(self, name: str, servers: tuple[str, ...], asks: str, takes_s: float = 0.0) -> None:
        super().__init__(name, servers, Pace())
        self._asks = asks
        self._takes_s = takes_s

    async def run(self, process: SimulatedProcess) -> None:
        async with self._client(process, will=self._will(1)) as client:
            async for message in await client.subscribe(self._asks, qos=1):
                self._say(process, "reads", message=message.text)
                await asyncio.sleep(self._takes_s)


class Writer(Program):
    """Publishes a message every second, from the second second on."""

    def __init__(self, name: str, servers: tuple[str, ...], messages: int, topic: str = "news") -> None:
        super().__init__(name, servers, Pace())
        self._messages = messages
        self._topic = topic

    async def run(self, process: SimulatedProcess) -> None:
        async with self._client(process) as client:
            for number in range(1, self._messages + 1):
                await asyncio.sleep(max(0.0, number + 1 - asyncio.get_running_loop().time()))
                await client.publish(self._topic, f"{self.name} {number}", qos=1)
            await asyncio.get_running_loop().create_future()


class Mover(Reader):
    """Leaves its broker in order, and comes for its session to the next of its servers."""

    def __init__(self, name: str, servers: tuple[str, ...], asks: str, stays_s: float) -> None:
        super().__init__(name, servers, asks)
        self._stays_s = stays_s

    async def run(self, process: SimulatedProcess) -> None:
        servers = self.servers
        for first in range(len(servers)):
            self.servers = servers[first:]
            client = self._client(process)
            await client.connect()
            reading = asyncio.create_task(self._read(process, await client.subscribe(self._asks, qos=1)))
            if first + 1 == len(servers):
                await reading
            await asyncio.sleep(self._stays_s)
            await client.close()
            self._say(process, "has left")
            reading.cancel()
            await asyncio.sleep(2)

    async def _read(self, process: SimulatedProcess, messages: Subscription) -> None:
        async for message in messages:
            self._say(process, "reads", message=message.text)


class Leaver(Program):
    """Has a will, and takes its leave in order, for good."""

    def __init__(self, name: str, servers: tuple[str, ...], leaves_s: float) -> None:
        super().__init__(name, servers, Pace())
        self._leaves_s = leaves_s

    async def run(self, process: SimulatedProcess) -> None:
        async with self._client(process, will=self._will(1), will_delay_s=1):
            await asyncio.sleep(self._leaves_s)
        self._say(process, "has left")


class Telling(Transcript):
    """A transcript of the lines that tell a story."""

    def __init__(self, silent: Sequence[str]) -> None:
        super().__init__()
        self._silent = frozenset(silent)

    def event(self, at_us: int, who: str, event: Event) -> None:
        if isinstance(event, StoreFailed) and isinstance(event.error, Conflict):
            self.add(at_us, who, "is refused: somebody else has written in between")

    def effect(self, at_us: int, who: str, effect: Effect) -> None:
        if isinstance(effect, Say) and effect.level != "debug" and effect.text not in self._silent:
            known = {name: each for name, each in effect.facts.items() if name not in FIGURES}
            facts = " ".join(f"{name}={describe(value)}" for name, value in known.items())
            self.add(at_us, who, f"{effect.text}{': ' if facts else ''}{facts}")

    def text(self) -> str:
        return "".join(
            f"{line.at_us / SECOND:6.1f} s  {line.who:<14} {line.text}\n"
            for line in self
            if line.who != "store"
        )


class Story(msgspec.Struct, frozen=True):
    """Who plays, what happens, and until when it is told. ``silent``: what is said that is not part of it."""

    brokers: tuple[str, ...]
    programs: Callable[[], Sequence[Program]]
    plan: Sequence[Fault]
    until_us: int
    silent: tuple[str, ...] = ()
    coordinators: tuple[str, ...] = ("coordinator-1",)

    def told(self) -> str:
        """The story, as its golden file has it."""
        transcript = Telling((*SILENT, *self.silent))
        world = World(SEED, transcript)
        settings = Settings(
            network=NETWORK, brokers=tuple(map(_configured, self.brokers)), recovery=Recovery(will_grace_s=5)
        )
        stage = Stage(world, settings)
        world.network.link_of = lambda sender, receiver: WAY
        stage.add_coordinators(*self.coordinators)
        stage.add_brokers()
        for program in self.programs():
            stage.add_program(program.name, program.run)
        _watch(world)
        unleash(world, list(self.plan))
        try:
            world.run_until(self.until_us)
        finally:
            world.close()
        return transcript.text()


# Said at every step, or of no consequence for any of the stories.
SILENT = (
    "took",
    "follows",
    "link is up",
    "link is down",
    "a broker lacks a backup",
    "how many sessions are stored is not known",
    "session is not stored yet",
)
# Facts that differ with every detail of what came before.
FIGURES = ("silent_ms", "patience_ms", "took_ms", "position")


def _configured(name: str) -> Broker:
    return configured(name, name.split("-")[0], "standby" if name.endswith("spare") else "edge")


def _watch(world: World) -> None:
    """Tell what becomes of the network, of sessions and of groups in the store."""

    def on_command(entry: Entry) -> None:
        if entry.subject == NAMES.commands_subject:
            for command in decode_batch(entry.payload).commands:
                for words in _recorded(command):
                    world.tell("the leader", words)

    def on_session(node: Address, put: PutKey, revision: int) -> None:
        session = decode_session(put.value)
        at = f"is at {session.broker}" if session.broker else "is nobody's"
        known = (session.epoch, session.broker, tuple(session.subscriptions))
        if sessions.get(session.client) != known:
            sessions[session.client] = known
            wants = ", ".join(session.subscriptions) or "nothing"
            world.tell(
                node, f"stores that {session.client} {at}, epoch {session.epoch}, subscribed to {wants}"
            )

    def on_group(node: Address, put: PutKey, revision: int) -> None:
        try:
            group = decode_group(put.value)
        except UNREADABLE:
            return  # a broker's sign of life
        for words in _claimed(groups.get(group.name), group):
            world.tell(node, f"stores that {words}")
        groups[group.name] = group

    sessions: dict[str, object] = {}
    groups: dict[str, StoredGroup] = {}
    world.observers.on_entry(NAMES.commands.name, on_command)
    world.observers.on_write(SESSIONS.name, on_session)
    world.observers.on_write(GROUPS.name, on_group)


def _recorded(command: object) -> Iterable[str]:
    match command:
        case Elected(coordinator=coordinator):
            yield f"records that {coordinator} leads"
        case Said(broker=broker, commands=commands) if any(isinstance(each, Joined) for each in commands):
            yield f"records that {broker} has joined"
        case Lost(broker=broker):
            yield f"records that {broker} is lost"
        case Promoted(broker=broker, standby=standby):
            yield f"records that {standby} takes the place of {broker}"
        case Planned(backups=backups):
            for broker, local, remote in backups:
                yield f"records that {broker} is backed by {local or 'nobody'} and {remote or 'nobody'}"


def _claimed(before: StoredGroup | None, group: StoredGroup) -> Iterable[str]:
    had = {} if before is None else before.claims
    for client, claims in group.claims.items():
        for claim in claims:
            if claim not in had.get(client, ()):
                yield f"{client} has message {claim.position} of group {group.name}"
