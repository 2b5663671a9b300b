"""A broker and its backups over a network that loses, repeats and overtakes, with crashes: every promise is checked at
each step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import msgspec

from tocsin.core.filters import filter_type
from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Machine,
    Received,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from tocsin.core.replication.backup import Backup
from tocsin.core.replication.gamma import PREPARED, option_of
from tocsin.core.replication.primary import Primary
from tocsin.core.replication.signals import (
    Altered,
    Awaited,
    BackupsSet,
    Came,
    Policy,
    Prepare,
    PrimariesSet,
    Released,
    Unprepare,
)
from tocsin.model.network import Scheme
from tocsin.model.publication import Publication
from tocsin.wire.internal.replication import (
    LOCAL,
    Applied,
    Behind,
    Bequest,
    Declined,
    Head,
    Option,
    Positions,
    Replication,
    decode_replication,
    encode_replication,
)

PRIMARY = "p"
BACKUPS = ("north", "south", "east")
PLANS = (
    ("north", "south"),
    ("north", None),
    (None, "south"),
    ("east", "south"),
    ("north", "east"),
    (None, None),
)
CLIENTS = ("a", "b", "c", "d")
NAMES = ("x", "$share/g/y", "$query/k = 1", "$channel/Near/5", "$channel/Near/6")
POLICY = Policy(period_us=1_000_000, wait_us=300_000)
Parts = tuple[Head, dict[str, Option]]  # of a client, without its positions


class State:
    """Γ, as plain as it can be."""

    def __init__(self) -> None:
        self.heads: dict[str, Head] = {}
        self.options: dict[str, dict[str, Option]] = {}
        self.at: dict[str, Positions] = {}
        self.voids: dict[str, str] = {}
        self.volumes: dict[str, int] = {}

    def clients(self) -> Iterable[str]:
        return tuple(self.heads)

    def head(self, client: str) -> Head | None:
        return self.heads.get(client)

    def names(self, client: str) -> Iterable[str]:
        return tuple(self.options.get(client, ()))

    def option(self, client: str, name: str) -> Option | None:
        return self.options.get(client, {}).get(name)

    def positions(self, client: str) -> Positions | None:
        return self.at.get(client)

    def volume(self, client: str) -> int:
        return self.volumes.get(client, 0)

    def void(self, client: str) -> str:
        return self.voids.get(client, "")

    def voided(self) -> Iterable[str]:
        return tuple(self.voids)

    def parts(self, client: str) -> Parts | None:
        head = self.heads.get(client)
        return None if head is None else (head, dict(self.options[client]))


class Node:
    """A machine with its timers."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.timers: dict[str, int] = {}


class History:
    """``backup`` makes a backup; give one with a bug to see it found."""

    def __init__(
        self,
        *,
        policy: Policy = POLICY,
        backup: Callable[[str], Backup] = Backup,
        primary: type[Primary] = Primary,
    ) -> None:
        self.policy = policy
        self.make_backup = backup
        self.make_primary = primary
        self.now_us = 0
        self.count = 0
        self.incarnation = 0
        self.plan: tuple[str | None, str | None] = ("north", "south")
        self.messages: list[tuple[str, bytes]] = []  # under way: to whom, and what
        self.nodes: dict[str, Node] = {name: Node(backup(name)) for name in BACKUPS}
        self.prepared: dict[tuple[str, str], set[str]] = {}  # (backup, primary) → names
        self.restart()

    def restart(self) -> None:
        """The broker begins anew: its clients are gone, but those of stored sessions."""
        self.state = State()
        self.past: dict[str, list[Parts | None]] = {each: [None] for each in CLIENTS}
        # (backup, client) → the newest of its past that the backup had at some time
        self.had: dict[tuple[str, str], int] = {}
        self.waiting: dict[int, tuple[str, int, int]] = {}  # ticket → client, which of its past, by when
        self.incarnation += 1
        self.nodes[PRIMARY] = Node(self.make_primary(PRIMARY, self.state, self.policy))
        self.tell(PRIMARY, Started(incarnation=self.incarnation))
        self.set_plan(self.plan)

    @property
    def primary(self) -> Primary:
        machine = self.nodes[PRIMARY].machine
        assert isinstance(machine, Primary)
        return machine

    def backup(self, name: str) -> Backup:
        machine = self.nodes[name].machine
        assert isinstance(machine, Backup)
        return machine

    def set_plan(self, plan: tuple[str | None, str | None]) -> None:
        self.plan = plan
        self.tell(PRIMARY, BackupsSet(local=plan[0], remote=plan[1], epoch=1))
        for name in BACKUPS:
            self.tell(name, PrimariesSet(primaries=(PRIMARY,) if name in plan else ()))

    # ── machines ────────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, node: str, event: Event) -> None:
        for effect in self.nodes[node].machine.handle(event, self.now_us):
            self.carry_out(node, effect)
        if node != PRIMARY:
            self.look_at(node)

    def carry_out(self, node: str, effect: Effect) -> None:
        match effect:
            case Send(to=to, message=message):
                self.messages.append((to.removeprefix("broker/"), encode_replication(node, "", message)))
            case SetTimer(name=name, delay_us=delay_us):
                self.nodes[node].timers[name] = self.now_us + delay_us
            case CancelTimer(name=name):
                self.nodes[node].timers.pop(name, None)
            case Released(tickets=tickets, synced=synced):
                for ticket in tickets:
                    self.released(ticket, synced)
            case Prepare(primary=primary, names=names):
                held = self.prepared.setdefault((node, primary), set())
                assert not held & set(names), "prepared twice"
                held.update(names)
            case Unprepare(primary=primary, names=names):
                held = self.prepared[node, primary]
                assert held >= set(names), "what was not prepared cannot be given up"
                held.difference_update(names)

    def released(self, ticket: int, synced: bool) -> None:
        client, index, by_us = self.waiting.pop(ticket)
        assert self.now_us <= by_us, "kept waiting for too long"
        if synced and client in self.state.heads:  # of one that went nobody is left to be told
            for name in filter(None, self.plan):
                self.look_at(name)
                had = self.had.get((name, client), 0)
                assert had >= index, f"told to be synced, and {name} never had it"

    def look_at(self, name: str) -> None:
        """What a backup has now, it had; and what it prepared is what the definition says."""
        backup = self.backup(name)
        copy = backup.copies.get(PRIMARY)
        for client in CLIENTS:
            replica = None if copy is None else copy.clients.get(client)
            parts = None if replica is None else (replica.head, replica.subscriptions)
            past = self.past[client]
            for index in range(len(past) - 1, self.had.get((name, client), 0), -1):
                if past[index] == parts:
                    self.had[name, client] = index
                    break
        wanted = set[str]()
        if copy is not None and copy.role == LOCAL:
            names = {each for one in copy.clients.values() for each in one.subscriptions}
            wanted = {each for each in names if filter_type(each) in PREPARED}
        assert self.prepared.get((name, PRIMARY), set()) == wanted, "S1 and S2 are not what they should be"

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def happen(self, what: str, number: int) -> None:
        client, name = CLIENTS[number % len(CLIENTS)], NAMES[number % len(NAMES)]
        match what:
            case "come":
                self.count += 1
                self.state.heads[client] = self.head()
                self.state.options[client] = {}
                self.note(client)
                self.tell(PRIMARY, Came(client=client))
            case "go" if client in self.state.heads:
                for of in (self.state.heads, self.state.options, self.state.at):
                    of.pop(client, None)
                self.note(client)
                self.tell(PRIMARY, Altered(client=client))
            case "leave" if client in self.state.heads:
                self.state.heads[client] = msgspec.structs.replace(self.head(), connected=False)
                self.note(client)
                self.tell(PRIMARY, Altered(client=client))
            case "subscribe" if client in self.state.heads:
                self.count += 1
                self.state.options[client][name] = Option(qos=1, since=self.count)
                self.note(client)
                self.tell(PRIMARY, Altered(client=client, names=(name,)))
            case "unsubscribe" if name in self.state.options.get(client, ()):
                del self.state.options[client][name]
                self.note(client)
                self.tell(PRIMARY, Altered(client=client, names=(name,)))
            case "move" if client in self.state.heads:
                at = self.state.at.get(client, Positions())
                self.state.at[client] = Positions(at.messages + 1, at.results + 2, at.critical)
            case "await" if client in self.state.heads:
                self.count += 1
                by_us = self.now_us + self.policy.wait_us
                self.waiting[self.count] = (client, len(self.past[client]) - 1, by_us)
                self.tell(PRIMARY, Awaited(client=client, ticket=self.count))
            case "deliver" | "repeat" | "lose" if self.messages:
                which = number % len(self.messages)
                message = self.messages[which] if what == "repeat" else self.messages.pop(which)
                if what != "lose":
                    self.deliver(*message)
            case "calm":
                self.calm(rounds=number % 5)
            case "wait":
                self.pass_time((10, 100, 1_000, 1_000, 20_000, 400_000, 3_000_000)[number % 7])
            case "crash":
                crashed = BACKUPS[number % len(BACKUPS)]
                self.nodes[crashed] = Node(self.make_backup(crashed))
                self.prepared = {key: names for key, names in self.prepared.items() if key[0] != crashed}
            case "restart" if number % 3 == 0:
                self.restart()
            case "plan":
                self.set_plan(PLANS[number % len(PLANS)])

    def head(self) -> Head:
        self.count += 1
        will = (
            Bequest(Publication("will", b"%d" % self.count, 1, "c"), self.count) if self.count % 2 else None
        )
        return Head(True, Scheme.WS, self.count, f"s{self.count}", "user", will)

    def note(self, client: str) -> None:
        self.past[client].append(self.state.parts(client))

    def deliver(self, to: str, data: bytes) -> None:
        envelope = decode_replication(data)
        if not isinstance(envelope.message, Applied | Behind | Declined) or to == PRIMARY:
            self.tell(to, Received(sender=envelope.sender, message=envelope.message))

    def pass_time(self, delay_us: int) -> None:
        end_us = self.now_us + delay_us
        while True:
            due = [
                (at, node, name)
                for node, of in self.nodes.items()
                for name, at in of.timers.items()
                if at <= end_us
            ]
            if not due:
                break
            at_us, node, name = min(due)
            self.now_us = max(self.now_us, at_us)
            del self.nodes[node].timers[name]
            self.tell(node, TimerFired(name=name))
        self.now_us = end_us

    def calm(self, rounds: int) -> None:
        """The network does what it should, for a while."""
        for _ in range(rounds):
            for message in self.messages[:]:
                self.messages.remove(message)
                self.deliver(*message)
            self.pass_time(1_000)

    def settle(self) -> None:
        """The network heals, brokers that began anew learn whom they back, and nothing happens any more."""
        for name in BACKUPS:
            self.tell(name, PrimariesSet(primaries=(PRIMARY,) if name in self.plan else ()))
        for _ in range(300):
            while self.messages:
                self.deliver(*self.messages.pop(0))
            self.pass_time(500_000)

    def check_settled(self) -> None:
        assert not self.waiting, "nobody waits for ever"
        for role, name in zip(("local", "remote"), self.plan, strict=True):
            if name is None:
                continue
            copy = self.backup(name).copies[PRIMARY]
            assert copy.role == role and copy.whole
            known = {each.client: each for each in self.backup(name).take_over(PRIMARY)}
            assert known.keys() == self.state.heads.keys()
            for client, standing in known.items():
                options = {key: option_of(each) for key, each in standing.subscriptions.items()}
                assert (standing.head, options) == self.state.parts(client)
                assert standing.positions == self.state.at.get(client, Positions())
        for name in set(BACKUPS) - set(self.plan):
            assert PRIMARY not in self.backup(name).copies, "a copy that nobody needs is kept"
        figures = self.primary.statistics()
        assert (
            figures["backups_degraded"] == figures["backups_behind"] == figures["positions_out_of_sync"] == 0
        )


WEIGHTS = {"come": 3, "go": 1, "leave": 1, "subscribe": 6, "unsubscribe": 2, "move": 3, "await": 6, "wait": 8}
WEIGHTS |= {"deliver": 12, "repeat": 1, "lose": 1, "crash": 1, "restart": 1, "plan": 1, "calm": 5}
HAPPENINGS = tuple(what for what, weight in WEIGHTS.items() for _ in range(weight))


def random_history(history: History, seed: int, steps: int) -> None:
    """Live through one, and settle."""
    chance = random.Random(seed)
    for _ in range(steps):
        history.happen(chance.choice(HAPPENINGS), chance.randrange(60))
    history.settle()
    history.check_settled()


__all__ = ["CLIENTS", "HAPPENINGS", "NAMES", "PRIMARY", "History", "Replication", "State", "random_history"]
