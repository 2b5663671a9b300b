"""Histories of commands for tests of what follows from them."""

from __future__ import annotations

from hypothesis import strategies as st

from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.model.stream import LISTING, PERMANENT
from tocsin.query import parse
from tocsin.wire.internal.commands import (
    Batch,
    BrokerCommand,
    ClientAway,
    ClientBack,
    ClientGone,
    Elected,
    Interests,
    Joined,
    Left,
    Limits,
    Logged,
    Lost,
    Planned,
    Promoted,
    Queries,
    Refreshed,
    Said,
    Streams,
)

SECOND_US = 1_000_000
LIMITS = Limits(keep_s=20)
NORTH, SOUTH, HUB = (
    BrokerInfo("north", "n", Role.EDGE, "127.0.0.1", 1, (Entrance(Scheme.MQTT, "n:1"),)),
    BrokerInfo("south", "s", Role.EDGE, "127.0.0.1", 2, (Entrance(Scheme.MQTT, "s:1"),)),
    BrokerInfo("hub", "s", Role.ROUTING, "127.0.0.1", 3, (Entrance(Scheme.MQTT, "h:1"),)),
)
INFOS = {info.id: info for info in (NORTH, SOUTH, HUB)}
TEXTS = ("kind = 'lamp'", "room > 1", "NOT EXISTS kind", "cluster = 'n'", "client = 'anna' AND EXISTS room")
QUERIES = tuple((query.id, query.text) for query in map(parse, TEXTS))
LISTED = (LISTING + QUERIES[0][0], QUERIES[0][1])

_names = st.sampled_from(("anna", "ben"))
_topics = st.sampled_from(("a", "b", "c/d"))
_expiries = st.sampled_from((0, 5, 3_600))
_epochs = st.integers(0, 3)
_diffs = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(("lamp", "door", None)),
        "room": st.sampled_from((1, 2.5, "2", True, None)),
        PERMANENT: st.sampled_from((True, False, None)),
        "topic": st.just("no"),
    },
)
_filters = st.lists(st.sampled_from(("a", "a/#", "c/+")), max_size=2).map(tuple)
commands: st.SearchStrategy[BrokerCommand] = st.one_of(
    st.builds(Interests, _filters, _filters),
    st.builds(
        Queries,
        st.lists(st.sampled_from((*QUERIES, LISTED)), max_size=2).map(tuple),
        st.lists(st.sampled_from([query for query, _ in (*QUERIES, LISTED)]), max_size=1).map(tuple),
    ),
    st.builds(
        Streams,
        st.just("") | _names,
        _expiries,
        st.lists(st.tuples(_topics, _diffs), min_size=1, max_size=2).map(tuple),
        st.integers(0, 9),
        _epochs,
    ),
    st.builds(ClientAway, _names, _expiries, st.integers(0, 9), _epochs),
    st.builds(ClientBack, _names, _expiries, _epochs),
    st.builds(ClientGone, _names, st.integers(0, 9), _epochs),
    st.just(Left()),
)


class History:
    """Makes batches in which brokers number their commands as they should, unless they are told not to."""

    def __init__(self) -> None:
        self._incarnations_of: dict[str, tuple[int, int]] = {}  # broker → incarnation, next number
        self._incarnations = 0
        self._at_us = 0
        self._position = 0

    def batch(self, acts: list[tuple[str, str, BrokerCommand]], seconds: int) -> Batch:
        self._at_us += seconds * SECOND_US
        commands = tuple(self._logged(*act) for act in acts)
        self._position += 1
        if self._position == 1:
            commands = (Elected("c", LIMITS), *commands)
        return Batch(1, self._at_us, self._position - 1, commands)

    def _logged(self, broker: str, kind: str, command: BrokerCommand) -> Logged:
        if kind == "join" or broker not in self._incarnations_of:
            self._incarnations += 1
            self._incarnations_of[broker] = (self._incarnations, 2)
            return Said(broker, self._incarnations, 1, (Joined(INFOS[broker]),))
        incarnation, number = self._incarnations_of[broker]
        match kind:
            case "lose":
                return Lost(broker, incarnation)
            case "refresh":
                return Refreshed(broker, incarnation)
            case "plan":  # whatever chance says: each is backed by the next two, beginning somewhere
                names = sorted(INFOS)
                turn = (len(str(command)) + number) % 3
                return Planned(
                    tuple(
                        (
                            name,
                            names[(at + turn) % 3] if turn else None,
                            names[(at + 2) % 3] if number % 2 else None,
                        )
                        for at, name in enumerate(names)
                    )
                )
            case "promote":
                return Promoted(sorted(INFOS)[number % 3], broker)
            case "repeat":
                return Said(broker, incarnation, max(1, number - 1), (command,))
            case "skip":
                return Said(broker, incarnation, number + 1, (command,))
            case "stale":
                return Said(broker, incarnation - 1, 1, (Joined(INFOS[broker]), command))
        self._incarnations_of[broker] = (incarnation, number + 1)
        return Said(broker, incarnation, number, (command,))


_kinds = st.sampled_from(
    ("say",) * 12 + ("join", "lose", "lose", "plan", "plan", "promote", "refresh", "repeat", "skip", "stale")
)
_acts = st.tuples(st.sampled_from(sorted(INFOS)), _kinds, commands)
batches: st.SearchStrategy[list[Batch]] = st.lists(
    st.tuples(st.lists(_acts, max_size=3), st.integers(0, 12)), min_size=1, max_size=25
).map(lambda drawn: _made(drawn))


def _made(drawn: list[tuple[list[tuple[str, str, BrokerCommand]], int]]) -> list[Batch]:
    history = History()
    return [history.batch(acts, seconds) for acts, seconds in drawn]
