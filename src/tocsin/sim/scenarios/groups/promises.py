"""The promises of groups, for all members and however often the groups end.

Three things are not promised, as MQTT 5 does not promise them either (sections 4.6 and 4.8.2). A message at QoS 1
that a member gave back comes to another member late, out of order. A message at QoS 2 ends with the session of the
member that had it. The messages that a group leaves when its last member ends are dropped.
"""

from __future__ import annotations

from typing import cast

from tocsin.core.machine import Say
from tocsin.core.shared.stored_group import StoredGroup, decode_group, decode_incarnation, incarnation_key
from tocsin.core.shared.stored_group import group_key as key_of
from tocsin.model.network import Address
from tocsin.ports import Change
from tocsin.sim.process.messages import AcknowledgedIsDurable, Written
from tocsin.sim.process.packets import Key
from tocsin.sim.process.stage import GROUPS
from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.scenarios.durable.promises import message_key
from tocsin.sim.scenarios.durable.sessions import Doors, OnlyTheUsurpedStop, SessionsLast
from tocsin.sim.world import World
from tocsin.wire.mqtt.topics import matches


class Cells(Invariant):
    """Notes every write of the groups' cells. Every position is in one place."""

    name = "a message is one member's at a time, and no two groups' of one name"

    def __init__(self, names: tuple[str, ...], visitors: tuple[Address, ...], written: Written) -> None:
        self.given_back: set[int] = set()  # positions that were free at any time
        self.claimed: set[int] = set()  # … that were anybody's
        self.visited: set[int] = (
            set()
        )  # … that were a visitor's at QoS 2: they may have ended with its session
        self.left: set[int] = set()  # … that were unclaimed, or not settled, when their group ended
        self.visitors = visitors
        self._written = written
        self._filters = {name: name.split("/", 2)[2] for name in names}
        self._names = {key_of(name): name for name in names}
        self._now: dict[str, StoredGroup] = {}  # by name
        self._firsts: dict[str, list[int]] = {name: [] for name in names}  # where groups of a name began
        self._reached = dict.fromkeys(names, 1)  # everything below was some group's of the name, or before it

    def attach(self, world: World) -> None:
        world.observers.on_change(GROUPS.name, self._look)

    def first_of(self, name: str, position: int) -> int:
        """Where the group of this name began that has a position."""
        return max((first for first in self._firsts[name] if first <= position), default=0)

    def unsettled(self, name: str) -> set[int]:
        """The positions that a group has not settled now."""
        group = self._now.get(name)
        return set() if group is None else {*group.free, *_all_claimed(group)}

    def _look(self, change: Change) -> None:
        name = self._names.get(change.key)
        if name is None:
            return
        before = self._now.pop(name, None)
        if change.kind != "put":
            if before is not None:
                self.left.update(before.free, _all_claimed(before))
            return
        group = self._now[name] = decode_group(change.value)
        self._look_at_claims(group)
        if group.begun and (before is None or not before.begun):
            self._look_at_beginning(group)
        elif before is not None:
            self._look_at_progress(before, group)
        self._reached[name] = max(self._reached[name], group.next)

    def _look_at_claims(self, group: StoredGroup) -> None:
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
                if not group.first <= claim.position < group.next:
                    self.broken(
                        f"position {claim.position} is claimed, and {group.name} "
                        f"has {group.first} to {group.next - 1}"
                    )
                seen[claim.position] = client
                self.claimed.add(claim.position)
                if client in self.visitors and claim.qos == 2:
                    self.visited.add(claim.position)

    def _look_at_beginning(self, group: StoredGroup) -> None:
        if group.first < self._reached[group.name]:
            self.broken(
                f"{group.name} begins at {group.first}, and the last one had all below {self._reached[group.name]}"
            )
        if group.first != group.next:
            self.broken(f"{group.name} begins at {group.first}, and is at {group.next} at once")
        self._firsts[group.name].append(group.first)

    def _look_at_progress(self, before: StoredGroup, group: StoredGroup) -> None:
        """Nobody passes by a message of the group's."""
        if group.first != before.first or group.next < before.next:
            self.broken(f"{group.name} went from {before.next} to {group.next}")
        for position, _, topic, _ in self._written.entries:
            passed = before.next <= position < group.next and matches(self._filters[group.name], topic)
            if passed and position not in group.free and position not in _all_claimed(group):
                self.broken(f"{group.name} went from {before.next} to {group.next}, past {position}")


class Shared(Invariant):
    """Some member takes each message, in order; at QoS 2 one member takes it once."""

    name = "a group gets everything, in order, at QoS 2 once"

    def __init__(self, lasting: tuple[str, ...], fleeting: str, written: Written, cells: Cells) -> None:
        self._written = written
        self._cells = cells
        self._lasting = lasting
        self._fleeting = fleeting
        self._filters = {name: name.split("/", 2)[2] for name in (*lasting, fleeting)}
        self._since: dict[str, int] = {}  # group → positions beyond are its due, because it does not end
        self._visits: dict[
            tuple[Address, object, str], int
        ] = {}  # … a visitor's, on a connection, of a group
        self._taken: dict[Key, dict[Address, int]] = {}  # message → the members that took it, at which QoS
        self._last: dict[tuple[Address, str], int] = {}  # the newest position that was new to a member

    def attach(self, world: World) -> None:
        def subscribed(who: Address, say: Say) -> None:
            if who not in self._cells.visitors:
                self._since.setdefault(str(say.facts["topic_filter"]), self._written.end(world))

        def visits(who: Address, say: Say) -> None:
            visit = (who, say.facts["connection"], str(say.facts["topic_filter"]))
            self._visits.setdefault(visit, self._written.end(world))

        world.observers.on_say("subscribed", subscribed)
        world.observers.on_say("visits", visits)
        world.observers.on_say("took", self._look)

    def _group_of(self, topic: str) -> str:
        return next(name for name, topic_filter in self._filters.items() if matches(topic_filter, topic))

    def _look(self, member: Address, say: Say) -> None:
        key, qos = cast(Key, say.facts["key"]), cast(int, say.facts["qos"])
        takers = self._taken.setdefault(key, {})
        group = self._group_of(self._written.topics[key])
        if qos == 2:
            before = [who for who, at in takers.items() if at == 2]
            if before:
                self.broken(f"message {key} was taken at QoS 2 by {before[0]} and by {member}")
        first = member not in takers
        takers[member] = max(qos, takers.get(member, 0))
        if self._written.copies[key] > 1:
            return  # the publisher was not answered, and published it again
        position = self._written.first[key]
        self._keep_to_one(member, say.facts["connection"], group, position)
        if first and position not in self._cells.given_back:
            self._keep_order(member, group, key, position)

    def _keep_to_one(self, member: Address, connection: object, group: str, position: int) -> None:
        """A member's group does not end unnoticed: what was published in between would be missing."""
        visit = self._visits.get((member, connection, group))
        began = self._cells.first_of(group, position)
        if visit is not None and began > visit + 1:
            self.broken(
                f"{member} was a member of {group} when the log was at {visit}, and is now of one from {began} on"
            )

    def _keep_order(self, member: Address, group: str, key: Key, position: int) -> None:
        last = self._last.get((member, group), 0)
        if position < last:
            self.broken(f"{member} took message {key} of position {position} after {last}")
        self._last[member, group] = position

    def finish(self, world: World) -> None:
        for name in self._lasting:
            if name not in self._since:
                self.broken(f"nobody could subscribe to {name}")
        # Visitors that were at brokers which crashed are still in the cell, if nobody came since.
        excused = self._cells.visited | self._cells.left | self._cells.unsettled(self._fleeting)
        for position, key, topic, _ in self._written.entries:
            since = self._since.get(self._group_of(topic))
            due = (since is not None and position > since) or position in self._cells.claimed
            if due and key not in self._taken and position not in excused:
                self.broken(f"nobody got message {key} of position {position}")


class NothingLeft(Invariant):
    """In the end every group has everything behind it, and one without members is gone."""

    name = "a group has settled everything in the end"

    def __init__(self, lasting: tuple[str, ...], fleeting: str, visitors: tuple[Address, ...]) -> None:
        self._lasting = lasting
        self._fleeting = fleeting
        self._visitors = visitors

    def finish(self, world: World) -> None:
        table = world.store.tables[GROUPS.name]
        for name in self._lasting:
            cell = table.get(key_of(name), world.now_us)
            if cell is None:
                self.broken(f"{name} is gone, and has members")
            self._look(decode_group(cell.value))
        cell = table.get(key_of(self._fleeting), world.now_us)
        members = {} if cell is None else decode_group(cell.value).members
        for client, member in members.items():
            incarnation = table.get(incarnation_key(member.incarnation), world.now_us)
            if (
                incarnation is not None and decode_incarnation(incarnation.value) == member.incarnation
            ):  # else nobody is there to see it
                self.broken(f"{client} is gone, and {self._fleeting} does not know it")

    def _look(self, group: StoredGroup) -> None:
        if group.claims or group.free:
            self.broken(f"{group.name} has not settled {group.claims}, and not given out {group.free}")
        away = [client for client, member in group.members.items() if not member.incarnation]
        if away:
            self.broken(f"{', '.join(away)} is there, and {group.name} does not know it")
        for visitor in self._visitors:
            if visitor in group.members:
                self.broken(f"{visitor} is gone, and {group.name} does not know it")


def _all_claimed(group: StoredGroup) -> list[int]:
    return [claim.position for claims in group.claims.values() for claim in claims]


def promises(lasting: tuple[str, ...], fleeting: str, visitors: tuple[Address, ...]) -> list[Invariant]:
    """Those of groups that share messages."""
    written = Written(message_key)
    return [*promises_of_groups(lasting, fleeting, visitors, written), AcknowledgedIsDurable(written)]


def promises_of_groups(
    lasting: tuple[str, ...], fleeting: str, visitors: tuple[Address, ...], written: Written
) -> list[Invariant]:
    """Those of groups, whatever they share: ``written`` notes it."""
    cells, doors = Cells((*lasting, fleeting), visitors, written), Doors()
    return [
        written,
        cells,
        doors,
        Shared(lasting, fleeting, written, cells),
        SessionsLast(doors),
        OnlyTheUsurpedStop(doors),
        NothingLeft(lasting, fleeting, visitors),
    ]
