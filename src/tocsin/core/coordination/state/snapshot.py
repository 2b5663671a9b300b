"""The state as bytes, in pieces that fit a log, and back.

Derived state (routes, which streams satisfy which queries, counts of interests) is not kept, but computed again: a
snapshot can be wrong only about what brokers declared.

A snapshot is a sequence of items, each about one thing, in an order in which each can be put back when it is read:
the head, incarnations, clients, queries, streams, what lingers of them, tiers, members, their interests, takeovers,
and cut links.
A piece holds whole items, so that neither reading nor working out has to be done at once: ``rebuild`` gives way after
each slice of them.

Cost: linear in brokers, clients, streams and queries, to write and to read; ``bench/coordinator.py`` measures both.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from tocsin.core.coordination.names import SLICE
from tocsin.core.coordination.state.backups import Backups, Vacancy
from tocsin.core.coordination.state.publishers import Client, Keys, Stream
from tocsin.core.coordination.state.state import Member, State, wants_messages
from tocsin.core.forwarding.origins import Lingering
from tocsin.core.tiers.slots import Slots
from tocsin.errors import Malformed
from tocsin.model.network import BrokerInfo
from tocsin.model.versions import LEVEL_0_1_0, Levels, Packed
from tocsin.wire.internal.commands import Limits, split
from tocsin.wire.internal.slots import SlotMoves

PIECE_BYTES: Final = 512 << 10  # before the item that passes it


class _Item(msgspec.Struct, array_like=True, gc=False):
    """Base of what a snapshot holds; none is larger than half of what a record may be."""


class _Head(_Item, array_like=True, tag=0, gc=False):
    items: int  # that follow
    epoch: int
    clock_us: int
    commands: int
    limits: Limits
    level: int = 0
    led: Levels = LEVEL_0_1_0
    told: int = 0


class _Incarnation(_Item, array_like=True, tag=1, gc=False):
    """In order: the oldest are forgotten first."""

    broker: str
    incarnation: int


class _Client(_Item, array_like=True, tag=2, gc=False):
    id: str
    broker: str
    cluster: str
    expiry_s: int
    epoch: int
    until_us: int | None


class _Query(_Item, array_like=True, tag=3, gc=False):
    id: str
    text: str


class _Stream(_Item, array_like=True, tag=4, gc=False):
    topic: str
    keys: Keys
    origin: Keys
    publishers: tuple[str, ...]
    permanent: bool
    after: int
    absent_us: int | None
    owner: str = ""


class _Publishers(_Item, array_like=True, tag=5, gc=False):
    """Further ones, of a stream that has very many."""

    topic: str
    publishers: tuple[str, ...]


class _Member(_Item, array_like=True, tag=6, gc=False):
    info: BrokerInfo
    incarnation: int
    applied: int
    noticed: int
    speaks: Levels = LEVEL_0_1_0


class _Filters(_Item, array_like=True, tag=7, gc=False):
    """Some of what a member wants."""

    broker: str
    filters: tuple[str, ...]


class _Asked(_Item, array_like=True, tag=8, gc=False):
    """Some of the queries that a member asks."""

    broker: str
    queries: tuple[str, ...]


class _Plan(_Item, array_like=True, tag=9, gc=False):
    """The backups of a broker."""

    broker: str
    backups: Backups


class _Vacancy(_Item, array_like=True, tag=10, gc=False):
    """The stand-in for a lost broker. In order: the oldest are forgotten first."""

    broker: str
    vacancy: Vacancy


class _Promotion(_Item, array_like=True, tag=12, gc=False):
    standby: str
    broker: str


class _Epoch(_Item, array_like=True, tag=11, gc=False):
    """The epoch of takeovers."""

    epoch: int


class _Cut(_Item, array_like=True, tag=13, gc=False):
    """The links of a broker that are cut, and the ways around."""

    broker: str
    around: dict[str, tuple[str, ...]]


class _Shunned(_Item, array_like=True, tag=14, gc=False):
    hubs: tuple[str, ...]


class _Debt(_Item, array_like=True, tag=15, gc=False):
    """The debt of a user for the notices that its clients caused."""

    user: str
    size: int
    at_us: int


class _Tier(_Item, array_like=True, tag=16, gc=False):
    """The slots of a tier. In front of the members: who is in it follows from them."""

    tier: str
    moves: SlotMoves
    apart: dict[str, tuple[str, ...]] = {}


class _Lingers(_Item, array_like=True, tag=17, gc=False):
    """Some of the topics that are published at a broker no more, and of which it still has routes."""

    broker: str
    due_us: int
    topics: tuple[str, ...]
    older: bool


_AnyItem = (
    _Head
    | _Incarnation
    | _Client
    | _Query
    | _Stream
    | _Publishers
    | _Member
    | _Filters
    | _Asked
    | _Plan
    | _Vacancy
    | _Epoch
    | _Promotion
    | _Cut
    | _Shunned
    | _Debt
    | _Tier
    | _Lingers
)

_encoder = msgspec.msgpack.Encoder()
PIECE: Final = Packed("a piece of a snapshot", msgspec.msgpack.Decoder(list[_AnyItem]))

# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────


def take(state: State) -> list[bytes]:
    """A snapshot, in pieces. The first waits for its head: how many items there are is known last."""
    first: list[msgspec.Raw] | None = None
    pieces: list[bytes] = []
    run: list[msgspec.Raw] = []
    size = count = 0
    for item in _items(state):
        count += 1
        raw = _encoder.encode(item)
        run.append(msgspec.Raw(raw))
        size += len(raw)
        if size >= PIECE_BYTES:
            if first is None:
                first = run
            else:
                pieces.append(PIECE.write(run))
            run, size = [], 0
    if first is None:
        first = run
    elif run:
        pieces.append(PIECE.write(run))
    head = _Head(
        count,
        state.epoch,
        state.clock_us,
        state.commands,
        state.limits,
        state.level,
        state.led,
        state.told,
    )
    return [PIECE.write([msgspec.Raw(_encoder.encode(head)), *first]), *pieces]


def _items(state: State) -> Iterator[_Item]:
    presence = state.presence
    for broker, incarnation in state.incarnations.items():
        yield _Incarnation(broker, incarnation)
    for name, c in presence.clients.items():
        yield _Client(name, c.broker, c.cluster, c.expiry_s, c.epoch, c.until_us)
    for query in sorted(state.askers):
        yield _Query(query, state.text(query))
    for topic, s in presence.streams.items():
        first, *further = split(list(s.publishers), _bytes)
        yield _Stream(topic, s.keys, s.origin, first, s.permanent, s.after, s.absent_us, s.owner)
        for run in further:
            yield _Publishers(topic, run)
    for broker, lingering in state.interest.plan.origins.lingering():
        for older, topics in enumerate((lingering.newer, lingering.older)):
            for run in split(list(topics), _bytes) if topics else ():
                yield _Lingers(broker, lingering.due_us, run, bool(older))
    for tier, table in sorted(state.tiers.tables.items()):
        slots = table.slots
        pairs = zip(slots.carriers, slots.deputies, strict=True)
        yield _Tier(tier, SlotMoves.of(dict(enumerate(pairs))), dict(slots.apart))
    for m in state.members.values():
        yield _Member(m.info, m.incarnation, m.applied, m.noticed, m.speaks)
    for broker, member in state.members.items():
        for filters in split(list(member.filters), _bytes):
            yield _Filters(broker, filters)
        for queries in split(list(member.queries), _bytes):
            yield _Asked(broker, queries)
    for broker, backups in state.survival.plan.items():
        yield _Plan(broker, backups)
    for broker, vacancy in state.survival.vacancies.items():
        yield _Vacancy(broker, vacancy)
    for standby, broker in state.survival.promotions.items():
        yield _Promotion(standby, broker)
    yield _Epoch(state.survival.epoch)
    for broker, around in state.detours.rows.items():
        yield _Cut(broker, around)
    if state.interest.plan.shunned:
        yield _Shunned(tuple(sorted(state.interest.plan.shunned)))
    for user, (size, at_us) in state.spending.debts.items():
        yield _Debt(user, size, at_us)


def _bytes(text: str) -> int:
    return 4 * len(text) + 8  # at most four bytes a character


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def restore(pieces: Iterable[bytes]) -> State:
    """The state that was taken; ``Malformed`` if these are not its pieces."""
    rebuilding = rebuild(pieces, SLICE)
    while True:
        try:
            next(rebuilding)
        except StopIteration as done:
            state: State = done.value
            return state


def rebuild(pieces: Iterable[bytes], size: int) -> Generator[None, None, State]:
    """The same in slices of that many items, or streams of a query; what it yields says nothing."""
    state = State()
    expected: int | None = None
    number = spent = 0
    for piece in pieces:
        for item in PIECE.read(piece):
            if isinstance(item, _Head):
                expected = item.items
                state.epoch, state.clock_us, state.commands = item.epoch, item.clock_us, item.commands
                state.level, state.led = item.level, item.led
                state.limits, state.told = item.limits, item.told
                continue
            number += 1
            try:
                for cost in _put_back(state, item, size):
                    spent += cost
                    if spent >= size:
                        spent = 0
                        yield
            except KeyError as error:
                raise Malformed(f"not a snapshot: it does not say who {error} is") from None
    state.interest.demand.settle()
    if number != expected:
        raise Malformed(f"not a snapshot: {number} items of {expected}")
    return state


def _put_back(state: State, item: _AnyItem, size: int) -> Iterator[int]:
    """Do so, and say in between what it has cost."""
    yield 1
    match item:
        case _Incarnation(broker=broker, incarnation=incarnation):
            state.incarnations[broker] = incarnation
        case _Client():
            client = Client(item.broker, item.cluster, item.expiry_s, item.epoch)
            client.until_us = item.until_us
            state.presence.restore_client(item.id, client)
        case _Query():
            state.admit(item.id, item.text)
        case _Stream():
            _put_back_stream(state, item)
        case _Publishers(topic=topic, publishers=publishers):
            state.presence.restore_publishers(topic, publishers)
            state.interest.publish(state.presence.placed(), state.clock_us)
        case _Lingers():
            topics = dict.fromkeys(item.topics)
            newer, older = ({}, topics) if item.older else (topics, {})
            state.interest.plan.origins.restore(item.broker, Lingering(item.due_us, newer, older))
        case _Member(info=info):
            member = Member(info, item.incarnation, item.speaks)
            member.applied, member.noticed = item.applied, item.noticed
            state.enter(member)
            state.interest.join(info)
        case _Filters(broker=broker, filters=filters):
            state.members[broker].filters.update(dict.fromkeys(filters))
            yield from _want(state, broker, filters, size)
        case _Asked(broker=broker, queries=queries):
            for query in queries:
                state.members[broker].queries[query] = None
                state.askers.setdefault(query, {})[broker] = None
                if wants_messages(query):
                    yield from _want(state, broker, state.matching.topics(query), size)
        case _Plan(broker=broker, backups=backups):
            state.survival.restore(broker, backups)
        case _Vacancy(broker=broker, vacancy=vacancy):
            state.survival.vacancies[broker] = vacancy
        case _Promotion(standby=standby, broker=broker):
            state.survival.promotions[standby] = broker
        case _Epoch(epoch=epoch):
            state.survival.epoch = epoch
        case _Cut(broker=broker, around=around):
            state.detours.rows[broker] = around
        case _Shunned(hubs=hubs):
            state.interest.shun(hubs)
            state.interest.settle()
        case _Tier(tier=tier, moves=moves, apart=apart):
            state.tiers.restore(tier, Slots().after(moves.each(), apart))
        case _Debt(user=user):
            state.spending.debts[user] = (item.size, item.at_us)


def _put_back_stream(state: State, told: _Stream) -> None:
    stream = Stream()
    stream.keys, stream.origin = told.keys, told.origin
    stream.permanent, stream.after, stream.absent_us = told.permanent, told.after, told.absent_us
    stream.owner = told.owner
    state.presence.restore_stream(told.topic, stream)
    state.presence.restore_publishers(told.topic, told.publishers)
    state.interest.publish(state.presence.placed(), state.clock_us)
    if stream.absent_us is None:
        state.matching.change(told.topic, None, stream.metadata)


def _want(state: State, broker: str, texts: Sequence[str], size: int) -> Iterator[int]:
    """One reason more for each of these; nobody is told of the routes that follow."""
    for start in range(0, len(texts), size):
        run = texts[start : start + size]
        state.interest.want(broker, run)
        state.interest.settle()
        yield len(run)
