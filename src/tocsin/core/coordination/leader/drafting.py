"""Drafting: how commands become records of the log, with the notices that follow from them.

Brokers that are told the same share the encoded items of their notices: in a large network most news is for nearly all.

A batch and its notices are one append: all of it is durable, or nothing. Only if they are too much for one append do
the last notices follow in further ones; should the leader die in between, their brokers find a gap in the numbers and
ask for everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Final

import msgspec

from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.state import NOBODY, Outcome, State
from tocsin.ports import BATCH_MAX, Record
from tocsin.wire.internal.commands import ClientBack, Logged, Said, Streams, encode_batch
from tocsin.wire.internal.notices import Item, encode_item, encode_items, encode_notice

NOTICE_MAX_BYTES: Final = 256 << 10  # bytes of items in one notice, before the item that exceeds it
APPEND_MAX_BYTES: Final = 4 << 20  # half of what the store takes at once
NOTHING: Final[Set[str]] = frozenset()


class Heard(msgspec.Struct, frozen=True):
    """The clearance that a broker's commands in a draft need: which brokers have to see which notice."""

    incarnation: int
    applied: int
    needs: Mapping[str, int]  # shared by brokers that spoke together: perhaps with the broker's own
    clear: bool  # the notice itself says that they are clear
    about: Set[str]  # the clients that publish, and the topics


class Draft(msgspec.Struct, frozen=True):
    """The next append: its records, and for each broker the notices that must be seen before its commands are clear."""

    appends: list[tuple[Record, ...]]
    heard: dict[str, Heard]


class Drafter:
    """Makes the records of one leader."""

    def __init__(self, places: StoreNames, epoch: int, record_id: Callable[[], str]) -> None:
        self._places = places
        self._epoch = epoch
        self._record_id = record_id  # never the same twice, of nobody else's

    def draft(
        self,
        state: State,
        at_us: int,
        commands: Sequence[tuple[Logged, msgspec.Raw]],
        previous: int,
        waits: Callable[[str, Collection[str]], bool],
    ) -> Draft:
        """Apply the commands to the state, and write down what that means. ``waits``: whether an earlier command of a
        broker, or about the same, is not clear yet."""
        outcome = state.apply(at_us, [command for command, _ in commands])
        speakers = [broker for broker in outcome.concerned if broker in state.members]
        runs = _runs(outcome, speakers)
        numbers: dict[str, int] = {}
        for broker, parts in runs.items():
            numbers[broker] = state.members[broker].noticed = state.members[broker].noticed + len(parts)
        heard: dict[str, Heard] = {}
        clear: dict[str, int] = {}
        about, sharing = _about(commands)
        needed: dict[int, dict[str, int]] = {}  # by identity of who is concerned: speakers of a row share it
        for broker in speakers:
            member = state.members[broker]
            concerned = outcome.concerned[broker]
            if broker in sharing:
                others = (outcome.concerned.get(each, NOBODY) for each in sharing[broker])
                concerned = concerned.union(*others) - {broker}
                needs = {each: numbers[each] for each in sorted(concerned) if each in numbers}
            else:
                needs = needed.get(id(concerned)) or {}
                if not needs:
                    needs = {each: numbers[each] for each in sorted(concerned) if each in numbers}
                    needed[id(concerned)] = needs
            alone = not needs.keys() - {broker}
            clear_now = alone and not waits(broker, about.get(broker, NOTHING))
            heard[broker] = Heard(
                member.incarnation, member.applied, needs, clear_now, about.get(broker, NOTHING)
            )
            if heard[broker].clear:
                clear[broker] = member.applied
        asked: set[str] = set()
        for each in {id(each.needs): each.needs for each in heard.values()}.values():
            asked.update(each)
        records = [
            Record(
                self._places.commands_subject,
                encode_batch(
                    epoch=self._epoch,
                    at_us=at_us,
                    previous=previous,
                    commands=tuple(raw for _, raw in commands),
                    notices=tuple(numbers.items()),
                ),
                self._record_id(),
            )
        ]
        for broker, parts in runs.items():
            records += self._notices(
                state, broker, parts, clear.get(broker, 0), broker in outcome.fresh, broker in asked
            )
        return Draft(_appends(records), heard)

    def _notices(
        self,
        state: State,
        broker: str,
        parts: tuple[msgspec.Raw, ...],
        clear: int,
        fresh: bool,
        ask: bool,
    ) -> list[Record]:
        member = state.members[broker]
        last = len(parts) - 1
        return [
            Record(
                self._places.notices_subject(broker),
                encode_notice(
                    incarnation=member.incarnation,
                    number=member.noticed - last + part,
                    epoch=self._epoch,
                    applied=member.applied,
                    clear=clear,
                    fresh=fresh and part == 0,
                    more=part < last,
                    ask=ask and part == last,
                    items=items,
                ),
                self._record_id(),
            )
            for part, items in enumerate(parts)
        ]


def _about(
    commands: Sequence[tuple[Logged, msgspec.Raw]],
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The clients that publish, and the topics, of which each broker says something; and the brokers that say something
    of the same as each."""
    about: dict[str, set[str]] = {}
    speakers: dict[str, set[str]] = {}  # by what they speak of
    for said, _ in commands:
        if not isinstance(said, Said):
            continue
        for each in said.commands:
            found = (
                [f"client {each.client}"] if isinstance(each, Streams | ClientBack) and each.client else []
            )
            if isinstance(each, Streams):
                found += [f"topic {topic}" for topic, _ in each.changes]
            about.setdefault(said.broker, set()).update(found)
            for what in found:
                speakers.setdefault(what, set()).add(said.broker)
    sharing: dict[str, set[str]] = {}
    for brokers in speakers.values():
        if len(brokers) > 1:
            for broker in brokers:
                sharing.setdefault(broker, set()).update(brokers)
    return about, sharing


def _runs(outcome: Outcome, speakers: Iterable[str]) -> dict[str, tuple[msgspec.Raw, ...]]:
    """The items of each broker, cut into notices and encoded; brokers that are told the same share them."""
    encoded: dict[int, msgspec.Raw] = {}  # by identity: an item may be in several announcements
    cut: dict[tuple[int, ...], tuple[msgspec.Raw, ...]] = {}  # by announcements
    runs: dict[str, tuple[msgspec.Raw, ...]] = {}
    for broker in sorted({*outcome.told, *speakers}):
        numbers = tuple(outcome.told.get(broker, ()))
        parts = cut.get(numbers)
        if parts is None:
            parts = cut[numbers] = _cut([_encoded(item, encoded) for item in outcome.items_of(broker)])
        runs[broker] = parts
    return runs


def _cut(items: Iterable[msgspec.Raw]) -> tuple[msgspec.Raw, ...]:
    """One notice's worth of items after the other; at least one, which may be empty."""
    parts: list[msgspec.Raw] = []
    run: list[msgspec.Raw] = []
    size = 0
    for raw in items:
        if size > NOTICE_MAX_BYTES:
            parts.append(encode_items(run))
            run, size = [], 0
        run.append(raw)
        size += len(memoryview(raw))
    return (*parts, encode_items(run))


def _encoded(item: Item, encoded: dict[int, msgspec.Raw]) -> msgspec.Raw:
    raw = encoded.get(id(item))
    if raw is None:
        raw = encoded[id(item)] = encode_item(item)
    return raw


def _appends(records: list[Record]) -> list[tuple[Record, ...]]:
    appends: list[list[Record]] = [[]]
    size = 0
    for record in records:
        size += len(record.payload)
        if appends[-1] and (len(appends[-1]) == BATCH_MAX or size > APPEND_MAX_BYTES):
            appends.append([])
            size = len(record.payload)
        appends[-1].append(record)
    return [tuple(append) for append in appends]
