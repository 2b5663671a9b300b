"""What an interest costs the leader where a few brokers publish: routes at these only, or at every broker.

The network is that of ``tiers``; PUBLISHERS of its edge brokers publish all topics, each topic at one. Then further
interests come, each in a batch of its own, with the records that the leader would append. *Everywhere* is the way
before: every broker has the routes of every filter. Both run in this process, in turn, and see the same interests.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tocsin.core.coordination.leader.drafting import Drafter
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.state import State
from tocsin.core.forwarding.origins import Origins
from tocsin.wire.internal.commands import BrokerCommand, Interests, Said, Streams, encode_command

if TYPE_CHECKING:
    from bench.tiers import Size

PUBLISHERS: Final = 20
COMING: Final = 300  # interests, and streams
ROUNDS: Final = 3


class Everywhere(Origins):
    """Every broker publishes everything, as far as routes know."""

    def __init__(self, brokers: Collection[str]) -> None:
        super().__init__()
        self._brokers = brokers

    def holds(self, scope: str, broker: str) -> bool:
        return True

    def brokers(self, scope: str) -> Collection[str]:
        return self._brokers

    def publish(self, topic: str, broker: str) -> list[str]:
        super().publish(topic, broker)
        return []


class Row(msgspec.Struct):
    """One kind of change, as medians of rounds: what each of them costs."""

    leader_us: float
    notices: float
    bytes: float


class Desk:
    """A leader's drafting, one command at a time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._count = 0
        self._drafter = Drafter(StoreNames("bench"), 1, self._next)
        self.took_s = 0.0
        self.notices = self.size = 0

    def _next(self) -> str:
        self._count += 1
        return str(self._count)

    def say(self, broker: str, command: BrokerCommand) -> None:
        member = self._state.members[broker]
        said = Said(broker, member.incarnation, member.applied + 1, (command,))
        began = time.process_time()
        draft = self._drafter.draft(self._state, 0, [(said, encode_command(said))], 0, lambda *_: False)
        self.took_s += time.process_time() - began
        records = [record for append in draft.appends for record in append]
        self.notices += len(records) - 1
        self.size += sum(len(record.payload) for record in records)

    def row(self, count: int) -> Row:
        return Row(self.took_s * 1e6 / count, self.notices / count, self.size / count)


def interests_come(size: Size, state: State) -> Row:
    """Subscribers at edges want topics that others want, and nobody there."""
    desk, wanted = Desk(state), size.topics * 2
    for number in range(COMING):
        edge, first = size.edges[number * 7 % len(size.edges)].id, number * 3 % len(size.topics)
        filters = state.members[edge].filters
        desk.say(edge, Interests((next(each for each in wanted[first:] if each not in filters),)))
    return desk.row(COMING)


def topics_are_wanted_first(size: Size, state: State) -> Row:
    """Subscribers want published topics that nobody wanted before."""
    for number in range(COMING):
        _publish(state, size.edges[number % PUBLISHERS].id, f"fresh/{number}")
    desk = Desk(state)
    for number in range(COMING):
        desk.say(size.edges[-1 - number % 50].id, Interests((f"fresh/{number}",)))
    return desk.row(COMING)


def streams_come(size: Size, state: State) -> Row:
    """Clients at other edges begin to publish on topics that are wanted."""
    desk = Desk(state)
    for number in range(COMING):
        edge = size.edges[PUBLISHERS + number % (len(size.edges) - PUBLISHERS)].id
        topic = size.topics[number * 3 % len(size.topics)]
        desk.say(edge, Streams(f"client-{number}", 60, ((topic, {}),)))
    return desk.row(COMING)


def _publish(state: State, edge: str, topic: str) -> None:
    member = state.members[edge]
    streams = Streams(f"publisher-{topic}", 60, ((topic, {}),))
    state.apply(0, (Said(edge, 1, member.applied + 1, (streams,)),))


CASES: Final = {
    "an interest comes": interests_come,
    "a topic is wanted first": topics_are_wanted_first,
    "a stream comes": streams_come,
}


Network = Callable[[bool], State]  # with routes everywhere, or not


def compare(size: Size, network: Network) -> dict[str, dict[str, Row]]:
    """By case: *everywhere*, and *where it is published*."""
    rows: dict[str, dict[str, list[Row]]] = {}
    for _ in range(ROUNDS):
        for way in ("everywhere", "where it is published"):
            for name, case in CASES.items():
                state = published(size, network(way == "everywhere"))
                rows.setdefault(name, {}).setdefault(way, []).append(case(size, state))
    return {name: {way: _median(found) for way, found in ways.items()} for name, ways in rows.items()}


def _median(rows: Sequence[Row]) -> Row:
    return Row(*(statistics.median(getattr(row, name) for row in rows) for name in Row.__struct_fields__))


def published(size: Size, state: State) -> State:
    """With publishers."""
    for number, topic in enumerate(size.topics):
        _publish(state, size.edges[number % PUBLISHERS].id, topic)
    return state


def show(size: Size, network: Network, found: dict[str, dict[str, Row]]) -> None:
    print(f"\nroutes where topics are published: {PUBLISHERS} edge brokers publish; each change")
    print(f"{'':26}{'routes':>24}{'leader µs':>11}{'notices':>9}{'bytes':>9}")
    for name, ways in found.items():
        for way, row in ways.items():
            print(f"{name:26}{way:>24}{row.leader_us:>11,.0f}{row.notices:>9.1f}{row.bytes:>9,.0f}")
    plans = (published(size, network(each)).interest.plan for each in (True, False))
    held = [sum(len(plan.routes(edge.id)) for edge in size.edges) for plan in plans]
    print(f"routes that edge brokers hold: {held[0]:,} everywhere, {held[1]:,} where they are published")
