"""The store as nodes see it: one server at the address ``STORE``, with the faults that a real cluster shows.

It keeps its data in ``store.memory.state``, the reference of the contract. A request travels there, is applied, and its
answer travels back, as on a connection that loses nothing but can be cut. Faults:

- a **cut**: a request or an answer that meets one is gone, and the asker learns ``OutcomeUnknown`` at its deadline;
- no **leader**: requests are refused (``StoreUnavailable``) or lost, answers under way are lost, nothing expires, and
  every follow and watch is interrupted;
- **weather**: requests refused, lost, applied without an answer, or applied late, after the asker gave up on them;
- **old news**: a server that led, and stood still while another was elected, is asked by some before it has heard of
  that. A plain read is answered with what there was when it fell silent; a fresh one late, or not in time.

A request that was applied late is the reason why a machine has to fence its writes, not only watch its lease.

The store has a **clock** of its own, which can jump ahead. Cells and the ids that logs remember expire by that clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec

from tocsin.core.machine import (
    Append,
    DeleteKey,
    Effect,
    Event,
    FollowLog,
    GetKey,
    PutKey,
    ReadLog,
    Stored,
    StoreFailed,
    TrimLog,
    WatchTable,
)
from tocsin.errors import OutcomeUnknown, StoreUnavailable, TocsinError
from tocsin.model.network import Address
from tocsin.ports import READ_MAX, LogSpec, TableSpec
from tocsin.sim.chance import MILLION
from tocsin.sim.network import STORE
from tocsin.sim.node import Node
from tocsin.sim.process.signals import Look, Select
from tocsin.sim.tails import Follow, Selecting, Tails, Watch
from tocsin.store.memory.state import LogState, TableState

if TYPE_CHECKING:
    from tocsin.sim.world import World

DEADLINE_US = 5 * MILLION  # how long an asker waits for an answer
EXPIRY_RETRY_US = MILLION // 10  # how soon a server without a leader looks again

_Asked = tuple[int, Any, int]  # the asker's start, the effect, when it was asked
Kept = tuple[dict[str, LogState], dict[str, TableState]]


class StoreWeather(msgspec.Struct, frozen=True):
    """The effect of a fault on requests, each rate in parts per million."""

    refuse_ppm: int = 0  # answered at once that the store is not available
    lose_ppm: int = 0  # never applied; the asker learns only that no answer came
    mute_ppm: int = 0  # applied, and the answer is lost
    slow_us: int = 0  # each waits up to so long before it is applied


class StoreServer:
    """The logs, the tables, and what is wrong with them just now."""

    def __init__(self, world: World) -> None:
        self.logs: dict[str, LogState] = {}
        self.tables: dict[str, TableState] = {}
        self.weather: list[StoreWeather] = []
        self.deadline_us = DEADLINE_US
        self.leaderless = 0  # how many faults keep it without a leader
        self.tails = Tails(world, self)
        self._world = world
        self._chance = world.chances.of("store")
        self._term = 0  # grows with every leader that is lost: its answers under way are lost too
        self._published: dict[
            str, int
        ] = {}  # log or table → the position or revision that observers have seen
        self._expiries: dict[str, int] = {}  # table → when its next look at expiry is scheduled, by its clock
        self._ahead_us = 0  # of its clock
        self._silent: dict[
            tuple[Address, ...], Kept
        ] = {}  # nodes that ask a server that stands still → that server's data
        self._old: dict[Address, Kept] = {}  # node that asks a deposed leader unawares → that server's data
        self._execute: dict[type[Effect], Callable[[Any], Any]] = {
            Append: self._append,
            ReadLog: self._read,
            TrimLog: self._trim,
            GetKey: self._get,
            PutKey: self._put,
            DeleteKey: self._delete,
            Look: self._look,
        }

    @property
    def clock_us(self) -> int:
        """The store's clock."""
        return self._world.schedule.now_us + self._ahead_us

    def jump(self, ahead_us: int) -> None:
        """Its clock jumps ahead; what is past its time by then expires."""
        self._ahead_us += ahead_us
        self._expiries.clear()
        for name, table in self.tables.items():
            if self.leaderless:
                self._look_later(name, table, self.clock_us + EXPIRY_RETRY_US)
            else:
                self.settle(name)

    def open_log(self, spec: LogSpec) -> None:
        if spec.name in self.logs:
            raise ValueError(f"the log {spec.name!r} is open already")
        self.logs[spec.name] = LogState(spec)
        self._published["log " + spec.name] = 0

    def open_table(self, spec: TableSpec) -> None:
        if spec.name in self.tables:
            raise ValueError(f"the table {spec.name!r} is open already")
        self.tables[spec.name] = TableState(spec)
        self._published["table " + spec.name] = 0

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, node: Node, effect: Any) -> None:
        """Carry out a store effect of a node."""
        self._check_name(node, effect)
        world = self._world
        now_us = world.schedule.now_us
        request = (node.starts, effect, now_us)
        if not world.network.calm and world.network.blocked(node.address, STORE):
            self._leave_unknown(node, request, "does not get")
            return
        at_us = now_us + world.network.delay_us(node.address, STORE)
        world.schedule.at(at_us, self._arrive, node, request)

    def _check_name(self, node: Node, effect: Any) -> None:
        known: dict[str, Any] = self.logs
        name = getattr(effect, "log", None)
        if name is None:
            known, name = self.tables, effect.table
        if name not in known:
            raise self._world.raised(node, effect.cause, LookupError(f"no log or table {name!r} was opened"))

    def _arrive(self, node: Node, request: _Asked) -> None:
        world, chance = self._world, self._chance
        if not world.network.calm and world.network.blocked(node.address, STORE):
            self._leave_unknown(node, request, "does not get")
            return
        wait_us = 0
        for weather in self.weather:
            if weather.refuse_ppm and chance.happens(weather.refuse_ppm):
                self._refuse(node, request, "refused under load")
                return
            if weather.lose_ppm and chance.happens(weather.lose_ppm):
                self._leave_unknown(node, request, "loses")
                return
            if weather.slow_us:
                wait_us += chance.below(weather.slow_us)
        if wait_us:
            world.schedule.at(world.schedule.now_us + wait_us, self._apply, node, request)
        else:
            self._apply(node, request)

    def _apply(self, node: Node, request: _Asked) -> None:
        world = self._world
        _, effect, asked_us = request
        if self.leaderless:
            if self._chance.below(2):
                self._refuse(node, request, "no leader")
            else:
                self._leave_unknown(node, request, "has no leader for")
            return
        old = self._old.get(node.address)
        if old is not None and getattr(effect, "fresh", False) and self._chance.below(2):
            self._leave_unknown(node, request, "cannot tell in time")
            return
        event: Event
        value: Any
        try:
            if old is not None and _is_plain_read(effect):
                value = self._recall(effect, old)
            else:
                value = self._execute[type(effect)](effect)
            event = Stored(request=effect.request, value=value, cause=effect.cause)
            if type(effect) is PutKey:
                for hook in world.observers.writes.get(effect.table, ()):
                    hook(node.address, effect, value)
        except TocsinError as error:
            event = StoreFailed(request=effect.request, error=error, cause=effect.cause)
        if world.transcript is not None:
            late = " late" if world.now_us - asked_us > self.deadline_us else ""
            world.tell(
                "store", f"applies {effect.request} of {node.address}{late}: {_result(event)}", effect.cause
            )
        for weather in self.weather:
            if weather.mute_ppm and self._chance.happens(weather.mute_ppm):
                self._leave_unknown(node, request, "does not answer")
                return
        at_us = world.schedule.now_us + world.network.delay_us(STORE, node.address)
        if at_us > asked_us + self.deadline_us:
            self._leave_unknown(node, request, "answers too late")
            return
        world.schedule.at(at_us, self._return, node, (request, event, self._term))

    def _return(self, node: Node, answer: tuple[_Asked, Event, int]) -> None:
        request, event, term = answer
        network = self._world.network
        if term != self._term:
            self._leave_unknown(node, request, "lost its leader before the answer to")
        elif not network.calm and network.blocked(STORE, node.address):
            self._leave_unknown(node, request, "cannot reach the asker of")
        else:
            self._world.answer(node, (request[0], event))

    def _refuse(self, node: Node, request: _Asked, reason: str) -> None:
        _, effect, _ = request
        if self._world.transcript is not None:
            self._world.tell("store", f"refuses {effect.request} of {node.address}: {reason}", effect.cause)
        error = StoreUnavailable(_operation(effect), reason)
        event = StoreFailed(request=effect.request, error=error, cause=effect.cause)
        at_us = self._world.now_us + self._world.network.delay_us(STORE, node.address)
        self._world.schedule.at(at_us, self._return, node, (request, event, self._term))

    def _leave_unknown(self, node: Node, request: _Asked, what: str) -> None:
        """The asker hears nothing, and gives up at its deadline."""
        starts, effect, asked_us = request
        if self._world.transcript is not None:
            self._world.tell("store", f"{what} {effect.request} of {node.address}", effect.cause)
        error = OutcomeUnknown(_operation(effect), self.deadline_us / MILLION)
        event = StoreFailed(request=effect.request, error=error, cause=effect.cause)
        self._world.schedule.at(asked_us + self.deadline_us, self._world.answer, node, (starts, event))

    def _recall(self, effect: GetKey | ReadLog | Look, known: Kept) -> object:
        """Answer a plain read with old news."""
        logs, tables = known
        if isinstance(effect, GetKey):
            return tables[effect.table].get(effect.key, self.clock_us)
        if isinstance(effect, Look):
            state = logs[effect.log] if effect.log is not None else tables[effect.table or ""]
            return effect.what(state, self.clock_us)
        return logs[effect.log].read(effect.subject, effect.start, effect.limit)

    # ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────

    def _append(self, effect: Append) -> tuple[int, ...]:
        log = self.logs[effect.log]
        positions = log.append(effect.records, self.clock_us, effect.expected)
        self._publish_log(effect.log, log)
        return positions

    def _read(self, effect: ReadLog) -> object:
        log = self.logs[effect.log]
        log.expire(self.clock_us)
        return log.read(effect.subject, effect.start, effect.limit)

    def _trim(self, effect: TrimLog) -> int:
        return self.logs[effect.log].trim(self.clock_us, before=effect.before, subject=effect.subject)

    def _get(self, effect: GetKey) -> object:
        return self.tables[effect.table].get(effect.key, self.clock_us)

    def _put(self, effect: PutKey) -> int:
        table, now_us = self.tables[effect.table], self.clock_us
        try:
            if effect.revision is None:
                return table.put(effect.key, effect.value, now_us, effect.ttl_us)
            return table.compare_and_set(effect.key, effect.value, effect.revision, now_us, effect.ttl_us)
        finally:  # also after a Conflict: the write may have found something that had expired
            self._publish_table(effect.table, table)

    def _delete(self, effect: DeleteKey) -> None:
        table = self.tables[effect.table]
        try:
            table.delete(effect.key, self.clock_us, effect.revision)
        finally:
            self._publish_table(effect.table, table)

    def _look(self, effect: Look) -> Any:
        state = self.logs[effect.log] if effect.log is not None else self.tables[effect.table or ""]
        return effect.what(state, self.clock_us)

    def _publish_log(self, name: str, log: LogState) -> None:
        start = self._published["log " + name] + 1
        while start <= log.last_position:
            page = log.read(">", max(start, log.oldest), READ_MAX)
            for entry in page.entries:
                for hook in self._world.observers.entries.get(name, ()):
                    hook(entry)
                self.tails.entry(name, entry)
            start = page.next
        self._published["log " + name] = log.last_position

    def _publish_table(self, name: str, table: TableState) -> None:
        revision = self._published["table " + name]
        self._published["table " + name] = table.revision
        for change in table.changes_since(revision) or ():
            for hook in self._world.observers.changes.get(name, ()):
                hook(change)
            self.tails.change(name, change)
        when_us = table.next_expiry_us
        if when_us is not None and when_us < self._expiries.get(name, when_us + 1):
            self._look_later(name, table, when_us)

    def _look_later(self, name: str, table: TableState, when_us: int) -> None:
        self._expiries[name] = when_us
        at_us = max(self._world.schedule.now_us, when_us - self._ahead_us)
        self._world.schedule.at(at_us, self._expire, name, table)

    def _expire(self, name: str, table: TableState) -> None:
        if self.leaderless:
            self._look_later(name, table, self.clock_us + EXPIRY_RETRY_US)
            return
        self._expiries.pop(name, None)
        self.settle(name)

    def settle(self, name: str) -> None:
        """Let what is past its time in a table expire, and tell it, before somebody looks."""
        table = self.tables[name]
        for change in table.expire(self.clock_us):
            self._world.tell("store", f"{change.key} of table {name} expires")
        self._publish_table(name, table)

    # ── follows, watches and faults ──────────────────────────────────────────────────────────────────────────

    def follow(self, node: Node, effect: FollowLog) -> None:
        self._check_name(node, effect)
        self.tails.add(Follow(node, effect))

    def select(self, node: Node, effect: Select) -> None:
        self._check_name(node, effect)
        self.tails.add(Selecting(node, effect))

    def watch(self, node: Node, effect: WatchTable) -> None:
        self._check_name(node, effect)
        self.tails.add(Watch(node, effect))

    def lose_leader(self) -> None:
        self.leaderless += 1
        self._term += 1
        self.tails.interrupt()

    def fall_silent(self, askers: tuple[Address, ...]) -> None:
        """The server that leads stands still, and remembers what there is; those will ask it when it goes on."""
        self._silent[askers] = deepcopy((self.logs, self.tables))

    def wake_deposed(self, askers: tuple[Address, ...]) -> None:
        """It goes on, and does not know that another leads."""
        known = self._silent.pop(askers, None)
        if known is not None:
            self._old.update(dict.fromkeys(askers, known))

    def hear_of_successor(self, askers: Iterable[Address]) -> None:
        for asker in askers:
            self._old.pop(asker, None)

    def find_leader(self) -> None:
        """One fault less keeps it without a leader; no error if a heal came first."""
        self.leaderless = max(0, self.leaderless - 1)

    def heal(self) -> None:
        self.leaderless = 0
        self._silent.clear()
        self._old.clear()
        self.weather.clear()
        self.tails.heal()


def _is_plain_read(effect: Any) -> bool:
    """Whether a deposed leader would answer a request by itself."""
    if isinstance(effect, Look):
        return not effect.fresh and not effect.writes
    return isinstance(effect, GetKey | ReadLog) and not effect.fresh


def _operation(effect: Any) -> str:
    where = getattr(effect, "log", None)
    return f"{type(effect).__name__} on {effect.table if where is None else where}"


def _result(event: Event) -> str:
    if isinstance(event, StoreFailed):
        return str(event.error)
    return "done"
