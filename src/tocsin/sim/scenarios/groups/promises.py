"""What groups promise."""

from __future__ import annotations

from typing import cast

from tocsin.core.machine import Say
from tocsin.core.stored_group import StoredGroup, decode_group, group_key
from tocsin.model.message import Address
from tocsin.ports import Change
from tocsin.sim.invariants import Invariant
from tocsin.sim.scenarios.durable.promises import AcknowledgedIsDurable, SessionsLast, Written
from tocsin.sim.scenarios.durable.wire import LOG, Key
from tocsin.sim.scenarios.groups.broker import GROUPS
from tocsin.sim.world import World
from tocsin.wire.topics import matches


class Cells(Invariant):
    """What the groups' cells have said so far, and that every position is in one place."""

    name = "a message is one member's at a time"

    def __init__(self, names: tuple[str, ...], visitor: Address) -> None:
        self.visitor = visitor  # whose claims at QoS 2 may end with its session
        self.given_back: set[int] = set()  # positions that were free at any time
        self.visited: set[int] = set()  # … and those that the visitor has claimed at QoS 2
        self.lasting = {name: False for name in names}  # whether somebody that lasts has been a member
        self._keys = {group_key(name): name for name in names}

    def attach(self, world: World) -> None:
        world.observers.on_change(GROUPS.name, self._look)

    def _look(self, change: Change) -> None:
        if change.kind != "put" or change.key not in self._keys:
            return
        group = decode_group(change.value)
        self.lasting[group.name] |= any(client != self.visitor for client in group.members)
        self.given_back.update(group.free)
        seen: dict[int, str] = dict.fromkeys(group.free, "nobody")
        for client, claims in group.claims.items():
            if client not in group.members:
                self.broken(f"{client} has claims, and is no member of {group.name}")
            for claim in claims:
                if claim.position in seen:
                    self.broken(
                        f"position {claim.position} is {client}'s and {seen[claim.position]}'s in {group.name}"
                    )
                if claim.position >= group.next:
                    self.broken(f"position {claim.position} is claimed, and {group.name} is at {group.next}")
                seen[claim.position] = client
                if client == self.visitor and claim.qos == 2:
                    self.visited.add(claim.position)


class Shared(Invariant):
    """What members take: each message somebody, in order, and at QoS 2 one of them once."""

    name = "a group gets everything, in order, at QoS 2 once"

    def __init__(self, names: tuple[str, ...], written: Written, cells: Cells) -> None:
        self._written = written
        self._cells = cells
        self._filters = {name: name.split("/", 2)[2] for name in names}
        self._since: dict[str, int] = {}  # group → positions beyond are its due
        self._taken: dict[Key, dict[Address, int]] = {}  # message → who took it, at which QoS
        self._last: dict[tuple[Address, str], int] = {}  # the newest position that was new to a member

    def attach(self, world: World) -> None:
        log = world.store.logs[LOG.name]

        def subscribed(who: Address, say: Say) -> None:
            if who != self._cells.visitor:  # a group without anybody that lasts ends with its last member
                self._since.setdefault(str(say.facts["topic_filter"]), log.last_position)

        world.observers.on_say("subscribed", subscribed)
        world.observers.on_say("took", self._look)

    def _group_of(self, topic: str) -> str:
        return next(name for name, topic_filter in self._filters.items() if matches(topic_filter, topic))

    def _look(self, member: Address, say: Say) -> None:
        key, qos = cast(Key, say.facts["key"]), cast(int, say.facts["qos"])
        takers = self._taken.setdefault(key, {})
        group = self._group_of(self._written.topics[key])
        if not self._cells.lasting[group]:
            return  # such a group ends with its last member, and the next of its name is another
        if qos == 2:
            before = [who for who, at in takers.items() if at == 2]
            if before:
                self.broken(f"message {key} was taken at QoS 2 by {before[0]} and by {member}")
        first = member not in takers
        takers[member] = max(qos, takers.get(member, 0))
        position = self._written.first[key]
        if first and self._written.copies[key] == 1 and position not in self._cells.given_back:
            self._keep_order(member, group, key, position)

    def _keep_order(self, member: Address, group: str, key: Key, position: int) -> None:
        last = self._last.get((member, group), 0)
        if position < last:
            self.broken(f"{member} took message {key} of position {position} after {last}")
        self._last[member, group] = position

    def finish(self, world: World) -> None:
        for name in self._filters:
            if name not in self._since:
                self.broken(f"nobody could subscribe to {name}")
        for position, key, topic in self._written.entries:
            due = position > self._since[self._group_of(topic)]
            if due and key not in self._taken and position not in self._cells.visited:
                self.broken(f"nobody got message {key} of position {position}")


class NothingLeft(Invariant):
    """In the end every group has everything behind it."""

    name = "a group has settled everything in the end"

    def __init__(self, names: tuple[str, ...], visitor: Address) -> None:
        self._names = names
        self._visitor = visitor

    def finish(self, world: World) -> None:
        for name in self._names:
            cell = world.store.tables[GROUPS.name].get(group_key(name), world.now_us)
            if cell is None:
                self.broken(f"{name} is gone, and has members")
            self._look(decode_group(cell.value))

    def _look(self, group: StoredGroup) -> None:
        if group.claims or group.free:
            self.broken(f"{group.name} has not settled {group.claims}, and not given out {group.free}")
        away = [client for client, member in group.members.items() if not member.life]
        if away:
            self.broken(f"{', '.join(away)} is there, and {group.name} does not know it")
        if self._visitor in group.members:
            self.broken(f"{self._visitor} is gone, and {group.name} does not know it")


def promises(names: tuple[str, ...], visitor: Address) -> list[Invariant]:
    written, cells = Written(), Cells(names, visitor)
    return [
        written,
        cells,
        AcknowledgedIsDurable(written),
        Shared(names, written, cells),
        SessionsLast(),
        NothingLeft(names, visitor),
    ]
