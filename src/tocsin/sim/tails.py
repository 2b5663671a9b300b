"""Follows, selections and watches: the events of a log or table for its readers, in order and without gaps.

A tail is a connection that remembers how far it got. Its events arrive in order. A cut, a sleeping node, a lost
leader or a lag of its own interrupts it; it connects again by itself and goes on where it was. A watch may then have
missed something: it resumes from its revision, or begins again with ``reset``, as chance has it, for a consumer must
bear both.

A selection tells how far it is: a while after the log has grown by what does not match, or when it is hastened. What it
says then is true at the store; it arrives behind everything that was sent before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tocsin.core.machine import Event, Followed, FollowLog, Watched, WatchTable
from tocsin.errors import Trimmed
from tocsin.model.network import Address
from tocsin.ports import READ_MAX, Begun, Change, Entry, Reached
from tocsin.sim.network import STORE
from tocsin.sim.node import Node, Status
from tocsin.sim.process.signals import Select, Selected
from tocsin.store.rules import is_wild, matches

if TYPE_CHECKING:
    from tocsin.sim.store import StoreServer
    from tocsin.sim.world import World

# A connection dials again within a second, after two at most.
RECONNECT_MAX_US = 1_000_000
# A server tells how far a selection is with one of its heartbeats, which come every two seconds.
BEAT_MAX_US = 2_000_000

Item = Entry | Change | Begun | Reached


class Tail:
    """The base of follows and watches."""

    def __init__(self, node: Node, key: str, name: str) -> None:
        self.node = node
        self.starts = node.starts  # of the asker; a tail ends with it
        self.key = key  # a new tail with the same key replaces this one
        self.name = name  # of the log or table
        self.ended = False
        self.session = 0  # grows with every connection: what an earlier one carried does not arrive
        self.connected = False
        self.last_arrival_us = 0  # nothing later arrives before this


class Follow(Tail):
    """A follow of a log."""

    def __init__(self, node: Node, effect: FollowLog) -> None:
        super().__init__(node, f"{node.address} follows {effect.log}", effect.log)
        self.subject = effect.subject
        self.next = effect.start  # the position after the last that arrived
        self.number = 0  # grows with every follow that is added


class Selecting(Tail):
    """The reading of a selection."""

    def __init__(self, node: Node, effect: Select) -> None:
        super().__init__(node, selecting_key(node, effect.number), effect.log)
        self.patterns = effect.patterns
        self.next = effect.start  # the position after the last that arrived
        self.number = effect.number
        self.sent = 0  # what is told on this connection goes up to here
        self.beats = False  # a heartbeat is under way
        self._known: dict[str, bool] = {}  # subject → whether it matches

    def matches(self, subject: str) -> bool:
        known = self._known.get(subject)
        if known is None:
            known = self._known[subject] = any(matches(each, subject) for each in self.patterns)
        return known


def selecting_key(node: Node, number: int) -> str:
    return f"{node.address} of start {node.starts} selects #{number}"


class Watch(Tail):
    """A watch of a table."""

    def __init__(self, node: Node, effect: WatchTable) -> None:
        super().__init__(node, f"{node.address} watches {effect.table} {effect.prefix}", effect.table)
        self.prefix = effect.prefix
        self.cause = effect.cause
        self.revision: int | None = None  # of the last change that arrived; None if only a reset will do


class Tails:
    """All follows and watches of a store."""

    def __init__(self, world: World, store: StoreServer) -> None:
        self._world = world
        self._store = store
        self._chance = world.chances.of("tails")
        self._tails: dict[str, Tail] = {}
        # By log and subject, each in the order of coming: where many follow one log, each has a subject of its own.
        self._follows: dict[tuple[str, str], list[Follow]] = {}
        self._wild: dict[str, list[Follow]] = {}  # by log: those whose subjects have wildcards
        self._added = 0  # follows, ever
        self._selections: dict[str, list[Selecting]] = {}  # by log
        self._watches: dict[str, list[Watch]] = {}
        self._held: list[Address] = []  # nodes that hear nothing for now, once for each fault that has it so

    def add(self, tail: Follow | Selecting | Watch) -> None:
        before = self._tails.get(tail.key)
        if before is not None:
            self._end(before)
        self._tails[tail.key] = tail
        if isinstance(tail, Follow):
            self._added += 1
            tail.number = self._added
            self._siblings(tail).append(tail)
        elif isinstance(tail, Selecting):
            self._selections.setdefault(tail.name, []).append(tail)
        else:
            self._watches.setdefault(tail.name, []).append(tail)
        at_us = self._world.now_us + self._world.network.delay_us(tail.node.address, STORE)
        self._world.schedule.at(at_us, self._connect, tail, None)

    def end_watch(self, node: Address, table: str) -> None:
        """Tell a node no more of a whole table that it watches."""
        watch = self._tails.pop(f"{node} watches {table} ", None)
        if watch is not None:
            self._end(watch)

    def entry(self, log: str, entry: Entry) -> None:
        """A log has a new entry."""
        found = self._follows.get((log, entry.subject), [])
        wild = [each for each in self._wild.get(log, ()) if matches(each.subject, entry.subject)]
        if wild:
            found = sorted((*found, *wild), key=lambda each: each.number)
        for follow in found:
            if follow.connected:
                self._carry(follow, entry)
        for selecting in self._selections.get(log, ()):
            if not selecting.connected:
                continue
            if selecting.matches(entry.subject):
                self._carry(selecting, entry)
                selecting.sent = entry.position
            else:
                self._beat_later(selecting)

    def hasten(self, node: Node, number: int) -> None:
        """A node wants to know how far a selection is."""
        if self._unreachable(node):
            return
        selecting = self._tails.get(selecting_key(node, number))
        if selecting is not None:
            at_us = self._world.now_us + self._world.network.delay_us(node.address, STORE)
            self._world.schedule.at(at_us, self._tell_reached, selecting, selecting.session)

    def deselect(self, node: Node, number: int) -> None:
        """A node reads a selection no longer."""
        selecting = self._tails.get(selecting_key(node, number))
        if selecting is not None:
            self._end(selecting)

    def _beat_later(self, selecting: Selecting) -> None:
        if not selecting.beats:
            selecting.beats = True
            at_us = self._world.now_us + self._chance.below(BEAT_MAX_US)
            self._world.schedule.at(at_us, self._beat, selecting, selecting.session)

    def _beat(self, selecting: Selecting, session: int) -> None:
        selecting.beats = False
        self._tell_reached(selecting, session)

    def _tell_reached(self, tail: Tail, session: int) -> None:
        assert isinstance(tail, Selecting)
        end = self._store.logs[tail.name].last_position
        if tail.connected and tail.session == session and end > tail.sent:
            tail.sent = end
            self._carry(tail, Reached(end))

    def change(self, table: str, change: Change) -> None:
        """A table has changed."""
        for watch in self._watches.get(table, ()):
            if watch.connected and change.key.startswith(watch.prefix):
                self._carry(watch, change)

    def interrupt(self) -> None:
        """Break every connection."""
        for tail in list(self._tails.values()):
            self._break(tail)

    def reset_watches(self) -> None:
        """Break every watch, and have it begin again with a reset."""
        for tail in list(self._tails.values()):
            if isinstance(tail, Watch):
                tail.revision = None
                self._break(tail)

    def hold(self, node: Address) -> None:
        """Break what a node has, and keep it broken."""
        self._held.append(node)
        for tail in list(self._tails.values()):
            if tail.node.address == node:
                self._break(tail)

    def let_go(self, node: Address) -> None:
        """One fault less keeps a node from hearing; no error if a heal came first."""
        if node in self._held:
            self._held.remove(node)

    def is_held(self, node: Address) -> bool:
        return node in self._held

    def heal(self) -> None:
        self._held.clear()

    # ── one tail ─────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, tail: Tail) -> None:
        tail.ended = True
        tail.connected = False
        if self._tails.get(tail.key) is tail:
            del self._tails[tail.key]
        if isinstance(tail, Follow):
            self._siblings(tail).remove(tail)
        elif isinstance(tail, Selecting):
            self._selections[tail.name].remove(tail)
        elif isinstance(tail, Watch):
            self._watches[tail.name].remove(tail)

    def _siblings(self, follow: Follow) -> list[Follow]:
        """Those among whom a follow is found."""
        if is_wild(follow.subject):
            return self._wild.setdefault(follow.name, [])
        return self._follows.setdefault((follow.name, follow.subject), [])

    def _break(self, tail: Tail) -> None:
        if tail.connected:
            tail.connected = False
            tail.session += 1
            if isinstance(tail, Watch):
                self._world.tell("store", f"interrupts what {tail.key}")
            self._connect_later(tail)

    def _connect_later(self, tail: Tail) -> None:
        at_us = self._world.now_us + 1 + self._chance.below(RECONNECT_MAX_US)
        self._world.schedule.at(at_us, self._connect, tail, None)

    def _connect(self, tail: Tail, _: None) -> None:
        if tail.ended or tail.connected:
            return
        if tail.starts != tail.node.starts:
            self._end(tail)
            return
        held = self.is_held(tail.node.address)
        if held or self._store.leaderless or self._unreachable(tail.node):
            self._connect_later(tail)
            return
        if isinstance(tail, Follow):
            tail.connected = True
            self._catch_up(tail)
        elif isinstance(tail, Selecting):
            tail.connected = True
            self._begin_selecting(tail)
        elif isinstance(tail, Watch):
            self._store.settle(tail.name)
            tail.connected = True
            self._begin(tail)

    def _unreachable(self, node: Node) -> bool:
        network = self._world.network
        if node.status is Status.ASLEEP:
            return True
        return not network.calm and (
            network.blocked(node.address, STORE) or network.blocked(STORE, node.address)
        )

    def _catch_up(self, follow: Follow) -> None:
        log = self._store.logs[follow.name]
        start = follow.next
        while True:
            try:
                page = log.read(follow.subject, start, READ_MAX)
            except Trimmed as error:
                start = error.oldest
                continue
            for entry in page.entries:
                self._carry(follow, entry)
            start = page.next
            if start > page.last:
                return

    def _begin_selecting(self, selecting: Selecting) -> None:
        log = self._store.logs[selecting.name]
        selecting.beats, selecting.sent = False, selecting.next - 1
        self._carry(selecting, Begun(log.last_position))
        start = max(selecting.next, log.oldest)
        while start <= log.last_position:
            page = log.read(">", start, READ_MAX)
            for entry in page.entries:
                if selecting.matches(entry.subject):
                    self._carry(selecting, entry)
                    selecting.sent = entry.position
            start = page.next
        if log.last_position > selecting.sent:
            self._beat_later(selecting)

    def _begin(self, watch: Watch) -> None:
        table = self._store.tables[watch.name]
        if watch.revision is not None and self._chance.below(2):
            missed = table.changes_since(watch.revision)
            if missed is not None:
                for change in missed:
                    if change.key.startswith(watch.prefix):
                        self._carry(watch, change)
                return
        watch.revision = None
        for change in table.snapshot(watch.prefix, self._world.store.clock_us):
            self._carry(watch, change)

    def _carry(self, tail: Tail, item: Item) -> None:
        schedule = self._world.schedule
        at_us = schedule.now_us + self._world.network.delay_us(STORE, tail.node.address)
        tail.last_arrival_us = max(at_us, tail.last_arrival_us)
        schedule.at(tail.last_arrival_us, self._hand_over, tail, (tail.session, item))

    def _hand_over(self, tail: Tail, carried: tuple[int, Item]) -> None:
        session, item = carried
        if tail.ended or session != tail.session:
            return
        if tail.starts != tail.node.starts:
            self._end(tail)
            return
        if self._unreachable(tail.node):
            self._break(tail)
            return
        event: Event
        if isinstance(tail, Selecting):
            assert not isinstance(item, Change)
            if not isinstance(item, Begun):
                tail.next = item.position + 1
            event = Selected(number=tail.number, item=item)
        elif isinstance(item, Entry):
            assert isinstance(tail, Follow)
            tail.next = item.position + 1
            event = Followed(log=tail.name, entry=item, cause=item.id)
        else:
            assert isinstance(tail, Watch)
            assert isinstance(item, Change)
            if item.kind == "ready" or tail.revision is not None:
                tail.revision = item.revision
            event = Watched(table=tail.name, change=item, cause=tail.cause)
        self._world.answer(tail.node, (tail.starts, event))
