"""The state as bytes, in pieces that a log takes, and back.

What follows from the rest (routes, which streams satisfy which queries, what brokers want for how many reasons) is
not kept, but worked out again: a snapshot can be wrong only about what was said.

Cost: linear in brokers, clients, streams and queries, to write and to read; ``bench/coordinator.py`` measures both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tocsin.core.coordination.presence import Client, Keys, Stream
from tocsin.core.coordination.state import Member, State, wants_messages
from tocsin.errors import Malformed
from tocsin.model.network import BrokerInfo
from tocsin.wire.commands import Limits

PIECE_BYTES: Final = 512 << 10


class _Member(msgspec.Struct, array_like=True, gc=False):
    info: BrokerInfo
    incarnation: int
    applied: int
    noticed: int
    filters: list[str]
    queries: list[str]


class _Client(msgspec.Struct, array_like=True, gc=False):
    id: str
    broker: str
    cluster: str
    expiry_s: int
    epoch: int
    until_us: int | None


class _Stream(msgspec.Struct, array_like=True, gc=False):
    topic: str
    keys: Keys
    origin: Keys
    publishers: list[str]
    permanent: bool
    after: int
    absent_us: int | None


class _Snapshot(msgspec.Struct, array_like=True, gc=False):
    epoch: int
    clock_us: int
    commands: int
    limits: Limits
    lives: list[tuple[str, int]]  # in order: the oldest are forgotten first
    members: list[_Member]
    clients: list[_Client]
    streams: list[_Stream]
    queries: list[tuple[str, str]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Snapshot)


def take(state: State) -> list[bytes]:
    """A snapshot, in pieces."""
    presence = state.presence
    data = _encoder.encode(
        _Snapshot(
            state.epoch,
            state.clock_us,
            state.commands,
            state.limits,
            list(state.lives.items()),
            [
                _Member(m.info, m.incarnation, m.applied, m.noticed, list(m.filters), list(m.queries))
                for m in state.members.values()
            ],
            [
                _Client(name, c.broker, c.cluster, c.expiry_s, c.epoch, c.until_us)
                for name, c in presence.clients.items()
            ],
            [
                _Stream(topic, s.keys, s.origin, list(s.publishers), s.permanent, s.after, s.absent_us)
                for topic, s in presence.streams.items()
            ],
            [(query, state.matching.text(query)) for query in sorted(state.askers)],
        )
    )
    return [data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES)]


def restore(pieces: Iterable[bytes]) -> State:
    """The state that was taken; ``Malformed`` if these are not its pieces."""
    try:
        told = _decoder.decode(b"".join(pieces))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise Malformed(f"not a snapshot: {error}") from None
    state = State()
    state.epoch, state.clock_us, state.commands = told.epoch, told.clock_us, told.commands
    state.limits = told.limits
    state.lives = dict(told.lives)
    _restore_presence(state, told)
    for query, text in told.queries:
        state.matching.add(query, text)
    for topic, metadata in state.presence.all_present():
        state.matching.change(topic, None, metadata)
    for each in told.members:
        state.interest.join(each.info)  # all of them first, so that routes are worked out once
    for each in told.members:
        _restore_member(state, each)
    state.interest.settle()
    return state


def _restore_presence(state: State, told: _Snapshot) -> None:
    for each in told.clients:
        client = Client(each.broker, each.cluster, each.expiry_s, each.epoch)
        client.until_us = each.until_us
        state.presence.restore_client(each.id, client)
    for one in told.streams:
        stream = Stream()
        stream.keys, stream.origin, stream.publishers = one.keys, one.origin, dict.fromkeys(one.publishers)
        stream.permanent, stream.after, stream.absent_us = one.permanent, one.after, one.absent_us
        state.presence.restore_stream(one.topic, stream)


def _restore_member(state: State, told: _Member) -> None:
    member = state.members[told.info.id] = Member(told.info, told.incarnation)
    member.applied, member.noticed = told.applied, told.noticed
    member.filters, member.queries = dict.fromkeys(told.filters), dict.fromkeys(told.queries)
    state.interest.want(told.info.id, member.filters)
    for query in member.queries:
        state.askers.setdefault(query, {})[told.info.id] = None
        if wants_messages(query):
            state.interest.want(told.info.id, state.matching.topics(query))
