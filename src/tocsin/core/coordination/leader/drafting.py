"""Drafting: how commands become records of the log, with the notices that follow from them; and clearance: which
brokers must know a change before its publisher's broker may send on.

**Drafting.** Brokers that are told the same share the encoded items of their notices: in a large network most news is
for nearly all.

A batch and its notices are one append: all of it is durable, or nothing. Only if they are too much for one append do
the last notices follow in further ones; should the leader die in between, their brokers find a gap in the numbers and
ask for everything.

**Clearance.** A command may concern other brokers: a stream joins their queries, a route begins at them. If messages of
that stream were sent before these brokers know, the first would be lost. So a draft says which notices a command needs
to have been seen (``Heard``). Each broker says which notice it has applied, and when all that a command concerns have,
the broker that said the command is told that the way is **clear** (``ClearanceWaits``).

A client may move in the meantime, or another may publish on the same topic: then another broker says something of a
stream that the state has already, and that nobody has to be told of once more. It is not clear before the first is. So
a wait knows what it is **about**, and what is said of the same inherits whatever is still missing.

Brokers that spoke together of nothing but their filters share one wait: many do when a part of a large network fails.

Clearance is a courtesy and no promise: a broker goes on by itself after a while, and a new leader knows nothing of what
its predecessor waited for. Waits are kept for FORGET_US at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.state import NOBODY, Outcome, State
from tocsin.ports import BATCH_MAX, Record
from tocsin.wire.internal.commands import ClientBack, Logged, Said, Streams, encode_batch
from tocsin.wire.internal.notices import Item, encode_item, encode_items, encode_notice

NOTICE_MAX_BYTES: Final = 256 << 10  # bytes of items in one notice, before the item that exceeds it
APPEND_MAX_BYTES: Final = 4 << 20  # half of what the store takes at once
FORGET_US: Final = 6_000_000  # longer than any broker waits
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


class Cleared(NamedTuple):
    """Every affected broker knows all commands of a broker up to a number."""

    broker: str
    incarnation: int
    number: int


class _Wait:
    __slots__ = ("about", "missing", "since_us", "then")

    def __init__(
        self,
        then: dict[str, Cleared],
        missing: dict[str, int],
        since_us: int,
        about: Collection[str],
    ) -> None:
        self.then = then  # speaker → what is clear for it
        self.missing = missing  # brokers that have not seen what they have to, and the notices
        self.since_us = since_us
        self.about = about


class ClearanceWaits:
    """Tracks which brokers must apply a change before it is clear, for one leader."""

    def __init__(self) -> None:
        self._waits: dict[str, deque[_Wait]] = {}  # speaker → its waits, oldest first
        self._seen: dict[str, int] = {}  # broker → the last notice that it has applied
        # Broker → what waits for it to have seen which notice, in order.
        self._awaited: dict[str, deque[tuple[int, _Wait]]] = {}
        # What waits are about → the last of them: it has inherited what those before it miss.
        self._about: dict[str, _Wait] = {}
        self._recent: deque[_Wait] = deque()  # the waits that are about something, oldest first

    def has_seen(self, broker: str) -> bool:
        """Whether a broker has applied any notice, as far as this leader knows."""
        return broker in self._seen

    def waits(self, speaker: str, about: Collection[str] = ()) -> bool:
        """Whether an earlier command of this broker, or one about the same, is not clear."""
        return speaker in self._waits or any(each in self._about for each in about)

    def add(
        self,
        speaker: str,
        incarnation: int,
        number: int,
        needs: Mapping[str, int],
        now_us: int,
        about: Collection[str] = (),
    ) -> list[Cleared]:
        """Commands up to ``number`` are clear once each of these brokers has seen its notice; return the brokers that
        are clear now.

        A broker may have seen it before the leader hears that its append is done.
        """
        return self._add({speaker: Cleared(speaker, incarnation, number)}, needs, now_us, about)

    def add_row(self, speakers: Iterable[Cleared], needs: Mapping[str, int], now_us: int) -> list[Cleared]:
        """The same for several that spoke together, and have to wait for the same."""
        return self._add({each.broker: each for each in speakers}, needs, now_us, ())

    def _add(
        self, then: dict[str, Cleared], needs: Mapping[str, int], now_us: int, about: Collection[str]
    ) -> list[Cleared]:
        seen = self._seen
        missing = {each: notice for each, notice in needs.items() if seen.get(each, 0) < notice}
        for each in about:
            if (before := self._about.get(each)) is not None:
                for broker, notice in before.missing.items():
                    missing[broker] = max(notice, missing.get(broker, 0))
        if len(then) == 1:
            missing.pop(next(iter(then)), None)  # it is told in order, and goes on when it has been
        wait = _Wait(then, missing, now_us, about)
        for speaker in then:
            self._waits.setdefault(speaker, deque()).append(wait)
        for broker, notice in missing.items():
            _insert(self._awaited.setdefault(broker, deque()), notice, wait)
        if missing and about:
            self._about.update(dict.fromkeys(about, wait))
            self._recent.append(wait)
        return [clear for speaker in then for clear in self._advance(speaker)]

    def saw(self, broker: str, notice: int) -> list[Cleared]:
        """A broker has applied its notices up to this one; return the brokers that are clear now."""
        self._seen[broker] = max(notice, self._seen.get(broker, 0))
        awaited = self._awaited.get(broker, deque())
        clear: list[Cleared] = []
        while awaited and awaited[0][0] <= notice:
            _, wait = awaited.popleft()
            wait.missing.pop(broker, None)
            if not wait.missing:
                self._settle(wait)
                for speaker in wait.then:
                    clear += self._advance(speaker)
        if not awaited:
            self._awaited.pop(broker, None)
        return clear

    def gone(self, broker: str) -> list[Cleared]:
        """Nobody waits for this broker any more, and it waits for nobody."""
        self._waits.pop(broker, None)
        awaited = self._awaited.get(broker)
        clear = self.saw(broker, awaited[-1][0]) if awaited else []
        self._seen.pop(broker, None)  # its notices begin again at 1
        return clear

    def forget(self, now_us: int) -> None:
        """Give up on what has waited for too long."""
        for speaker, waits in list(self._waits.items()):
            while waits and now_us - waits[0].since_us > FORGET_US:
                waits.popleft()
            if not waits:
                del self._waits[speaker]
        for broker, awaited in list(self._awaited.items()):
            while awaited and now_us - awaited[0][1].since_us > FORGET_US:
                awaited.popleft()
            if not awaited:
                del self._awaited[broker]

        while self._recent and now_us - self._recent[0].since_us > FORGET_US:
            self._settle(self._recent.popleft())

    def _settle(self, wait: _Wait) -> None:
        """Nobody inherits anything of this wait any more."""
        for each in wait.about:
            if self._about.get(each) is wait:
                del self._about[each]

    def _advance(self, speaker: str) -> list[Cleared]:
        waits = self._waits.get(speaker)
        clear: list[Cleared] = []
        while waits and not waits[0].missing:
            clear = [waits.popleft().then[speaker]]
        if waits is not None and not waits:
            del self._waits[speaker]
        return clear


def _insert(awaited: deque[tuple[int, _Wait]], notice: int, wait: _Wait) -> None:
    """Behind all that wait for the same notice or an earlier one: mostly at the end."""
    if not awaited or awaited[-1][0] <= notice:
        awaited.append((notice, wait))
    else:
        awaited.insert(bisect_right(awaited, notice, key=itemgetter(0)), (notice, wait))
