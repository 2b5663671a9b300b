"""The network's state: everything that follows from the command log.

Brokers with what they want, queries with their streams, clients with what they publish, and the routes. ``apply``
takes the commands of one batch and says what each broker has to be told. It depends on nothing but the state and
the batch, so that every replica that applied the same log is the same.

Where several commands in a row are about brokers and their filters alone, what follows is worked out once for all of
them (a **row**): brokers that are lost together are one change of routes, and not one each.

Invariants:

- the matching holds exactly the queries of the brokers and the streams that are present;
- the demand (``interest``) counts for exactly the filters that brokers ask about. To them these are queries, too, with
  ids of their own (``asks_demand``);
- a broker wants its filters, and each stream of each of its queries whose messages are asked for, for one reason each;
- a query for messages is told the topics of streams, and a listing their metadata as well;
- for each broker the commands of one incarnation were applied, 1, 2, 3 … without a gap; incarnations only grow.

Costs: see ``presence``, ``matching`` and ``interest``; a change of a query's streams costs the brokers that ask it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from tocsin.core.coordination.state.backups import Backups, Survival
from tocsin.core.coordination.state.detours import Detours
from tocsin.core.coordination.state.interest import Interest
from tocsin.core.coordination.state.matching import Matching, Turn
from tocsin.core.coordination.state.publishers import Keys, PublisherDirectory
from tocsin.core.coordination.state.spending import Spending
from tocsin.core.coordination.state.tiers import Tiers
from tocsin.core.streams.demand import anybody
from tocsin.model.network import BrokerInfo
from tocsin.model.stream import DEMAND, LISTING, SYSTEM_KEYS, Diff
from tocsin.model.versions import LEVEL_0_1_0, Levels, common, fits
from tocsin.wire.internal import notices
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
    Placed,
    Planned,
    Promoted,
    Queries,
    Raised,
    Refreshed,
    Rerouted,
    Said,
    Shunned,
    Streams,
    split,
)

# Brokers that are gone, whose incarnations are remembered; far more than a network has names for brokers.
LIVES_MAX: Final = 4_096
STEP_BYTES: Final = 400  # that a step of a question counts as: the leader takes 2 µs for it
NOBODY: Final[frozenset[str]] = frozenset()


class Member:
    """A broker that is there."""

    __slots__ = ("applied", "filters", "incarnation", "info", "noticed", "queries", "speaks")

    def __init__(self, info: BrokerInfo, incarnation: int, speaks: Levels = LEVEL_0_1_0) -> None:
        self.info = info
        self.speaks = speaks
        self.incarnation = incarnation
        self.applied = 0  # number of the last of its commands
        self.noticed = 0  # number of the last of its notices
        self.filters: dict[str, None] = {}
        self.queries: dict[str, None] = {}


class Outcome:
    """The consequences of a batch of commands: what each broker is told, in order, and of whom others have to hear.

    Most of what happens in a large network is news for nearly everybody, and the same news. So what is told at once is
    kept once (an **announcement**), with who hears it, and a broker has the numbers of its announcements. Brokers with
    the same numbers are told the same: their notices are worked out and encoded once (``drafting``).

    Invariant: of two announcements to one broker the earlier has the smaller number.
    """

    def __init__(self) -> None:
        self.announcements: list[Sequence[notices.Item]] = []
        self.told: dict[str, list[int]] = {}  # broker → its announcements, in order
        self.fresh: dict[str, None] = {}  # brokers that are told everything, and not only what changed
        # Broker that said something → those that have to hear of it; perhaps itself, where it spoke with others.
        self.concerned: dict[str, frozenset[str]] = {}
        self.size = 0  # of what is told, in bytes as they are estimated
        # By identity, as the same item goes to many brokers; with the item, so that the id stays its own.
        self._sizes: dict[int, tuple[notices.Item, int]] = {}

    def tell(self, broker: str, item: notices.Item) -> None:
        """Tell one broker one thing."""
        self.announce((broker,), (item,))

    def announce(self, brokers: Collection[str], items: Sequence[notices.Item]) -> None:
        """Tell all these brokers the same."""
        number = len(self.announcements)
        self.announcements.append(items)
        told = self.told
        for broker in brokers:
            if broker in told:
                told[broker].append(number)
            else:
                told[broker] = [number]
        self.size += len(brokers) * sum(map(self._size, items))

    def _size(self, item: notices.Item) -> int:
        known = self._sizes.get(id(item))
        if known is None:
            known = self._sizes[id(item)] = (item, notices.told_bytes(item))
        return known[1]

    def concern(self, speakers: Collection[str], heard: frozenset[str]) -> None:
        """These brokers said something, together, and those have to hear of it."""
        own = heard - {*speakers} if len(speakers) == 1 else heard
        for speaker in speakers:
            before = self.concerned.get(speaker, NOBODY)
            self.concerned[speaker] = own if not before else before | own

    def items_of(self, broker: str) -> Iterator[notices.Item]:
        """All that a broker is told."""
        for number in self.told.get(broker, ()):
            yield from self.announcements[number]

    @property
    def items(self) -> dict[str, list[notices.Item]]:
        """All that everybody is told."""
        return {broker: [*self.items_of(broker)] for broker in self.told}


class State:
    """The network's state: applies commands and returns the notices that follow."""

    def __init__(self) -> None:
        self.epoch = 0
        self.clock_us = 0  # the network's time
        self.commands = 0  # that were ever applied
        self.told = 0  # bytes that ever followed from them, as they are estimated
        self.spending = Spending()
        self.limits = Limits()
        self.level = 0  # of the protocol; grows
        self.led = LEVEL_0_1_0  # what the leader speaks
        self.members: dict[str, Member] = {}  # changed by ``enter`` and ``_part`` alone
        self._speaking: Counter[Levels] = Counter()  # how many of them speak each of these
        self.incarnations: dict[str, int] = {}  # broker → its newest incarnation, also of those that are gone
        self.presence = PublisherDirectory()
        self.matching = Matching()
        self.interest = Interest()
        self.askers: dict[str, dict[str, None]] = {}  # query → the brokers that ask it
        self.survival = Survival()
        self.detours = Detours()
        self.tiers = Tiers()
        self._brokers_changed = True  # brokers came, went or were shunned since the tiers were worked out

    # ── applying ────────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, batch: Batch) -> None:
        """Apply what a leader has applied."""
        self.epoch = batch.epoch
        self.apply(batch.at_us, batch.commands)
        for broker, number in batch.notices:
            if broker in self.members:
                self.members[broker].noticed = number

    def apply(self, at_us: int, commands: Iterable[Logged]) -> Outcome:
        """Let time pass until ``at_us``, then apply the commands in order."""
        outcome = Outcome()
        self.clock_us = max(self.clock_us, at_us)
        self.presence.advance(self.clock_us, self.limits)
        self.interest.lapse(self.clock_us)
        self._settle(outcome, ())
        row: dict[str, None] | None = (
            None  # who spoke in the row of commands that nothing has followed from yet
        )
        for command in commands:
            self.commands += len(command.commands) if isinstance(command, Said) else 1
            if not _is_of_row(command):
                self._end_row(outcome, row)
                row = None
            match command:
                case Said() if _is_of_row(command):
                    row = row or {}
                    for number, each in enumerate(command.commands, command.first):
                        if self._is_next(command.broker, command.incarnation, number, each):
                            self._apply_said(outcome, command.broker, command.incarnation, number, each)
                            row[command.broker] = None
                case Said():
                    for number, each in enumerate(command.commands, command.first):
                        if self._is_next(command.broker, command.incarnation, number, each):
                            before = outcome.size
                            self._apply_said(outcome, command.broker, command.incarnation, number, each)
                            self._settle(outcome, (command.broker,))
                            self._charge(each, outcome.size - before)
                case Elected(limits=limits, level=level, speaks=speaks):
                    self.limits, self.led = limits, speaks
                    self.level = max(self.level, level)
                    self._settle(outcome, ())
                case Raised(level=level):
                    self.level = max(self.level, level)
                    self._settle(outcome, ())
                case Lost(broker=broker, incarnation=incarnation):
                    if self.is_member(broker, incarnation):
                        row = row or {}
                        self._part(broker)
                case Planned(backups=backups):
                    self.survival.planned({name: Backups(local, remote) for name, local, remote in backups})
                case Promoted(broker=broker, standby=standby):
                    if standby in self.members:
                        self.survival.promoted(broker, standby)
                case Rerouted(broker=broker, around=around):
                    self.detours.set(broker, dict(around), self.members)
                case Shunned(hubs=hubs):
                    self.interest.shun(hubs)
                    self._brokers_changed = True
                    self._settle(outcome, ())
                case Placed(tier=tier, moves=moves, apart=apart):
                    self.tiers.place(tier, moves.each(), apart)
                case Refreshed(broker=broker, incarnation=incarnation):
                    if self.is_member(broker, incarnation):
                        outcome.fresh[broker] = None
        self._end_row(outcome, row)
        if self.survival.changed:
            for brokers, told in self.survival.settle(self._infos()):
                outcome.announce(brokers, told)
        if self.detours.changed:
            for broker, items in self.detours.settle(self._infos()).items():
                outcome.announce((broker,), items)
        if self.tiers.changed and (carriers := self.tiers.settle(self._infos())):
            outcome.announce(self.members.keys(), carriers)
        self._complete(outcome)
        self.told += outcome.size
        return outcome

    def _end_row(self, outcome: Outcome, row: Collection[str] | None) -> None:
        if row is not None:
            self._settle(outcome, row)

    def _charge(self, command: BrokerCommand, size: int) -> None:
        """Those whose clients said something owe what followed from it."""
        users: tuple[str, ...] = ()
        if isinstance(command, Queries):
            users, size = command.users, 2 * size  # what it takes to withdraw them is paid with it
        elif isinstance(command, Streams) and command.user is not None:
            users = (command.user,)
        for user in users:
            self.spending.charge(user, size // len(users), self.clock_us, self.limits)

    def _complete(self, outcome: Outcome) -> None:
        """Tell everything to those who need it, and nothing to those who are gone."""
        for told in (outcome.fresh, outcome.told):
            for broker in [each for each in told if each not in self.members]:
                del told[broker]
        for broker in outcome.fresh:
            refusals = [each for each in outcome.items_of(broker) if isinstance(each, notices.Refused)]
            outcome.told[broker] = []
            outcome.announce((broker,), (*self._everything(broker), *refusals))

    def is_member(self, broker: str, incarnation: int) -> bool:
        member = self.members.get(broker)
        return member is not None and member.incarnation == incarnation

    def spoken(self, newcomer: str = "") -> Levels:
        """The levels that the leader and every broker speak, except a broker that is about to join."""
        known = self.members.get(newcomer)
        alone = known is not None and self._speaking[known.speaks] == 1
        members = (each for each in self._speaking if not (alone and known and each == known.speaks))
        return common(self.level, (self.led, *members))

    def enter(self, member: Member) -> None:
        """A broker is there, instead of what was known of it."""
        before = self.members.get(member.info.id)
        if before is not None:
            self._hush(before)
        self.members[member.info.id] = member
        self._speaking[member.speaks] += 1

    def _hush(self, member: Member) -> None:
        self._speaking[member.speaks] -= 1
        if not self._speaking[member.speaks]:
            del self._speaking[member.speaks]

    def next_due_us(self) -> int | None:
        """When something ends by itself, in the network's time; None if nothing does."""
        dues = self.presence.next_due_us(self.limits), self.interest.plan.origins.next_due_us()
        return min((each for each in dues if each is not None), default=None)

    # ── what brokers say ────────────────────────────────────────────────────────────────────────────────────

    def _is_next(self, broker: str, incarnation: int, number: int, command: BrokerCommand) -> bool:
        """Whether a command is the next one: a repeat, or a command of an earlier incarnation, has no effect."""
        if isinstance(command, Joined):
            new = (
                number == 1 and command.info.id == broker and incarnation > self.incarnations.get(broker, -1)
            )
            return new and fits(command.speaks, self.spoken(broker))
        member = self.members.get(broker)
        return member is not None and (member.incarnation, member.applied) == (incarnation, number - 1)

    def _apply_said(
        self, outcome: Outcome, broker: str, incarnation: int, number: int, command: BrokerCommand
    ) -> None:
        if isinstance(command, Joined):
            self._join(outcome, command.info, incarnation, command.speaks)
        member = self.members[broker]
        member.applied = number
        presence, now_us = self.presence, self.clock_us
        match command:
            case Interests(added=added, removed=removed):
                self._change_filters(member, added, removed)
            case Queries(added=asked, removed=dropped, users=users):
                self._change_queries(outcome, member, asked, dropped, users)
            case Streams():
                self._declare(outcome, member.info, number, command)
            case ClientAway(client=client, expiry_s=expiry_s, after=after, epoch=epoch):
                presence.away(client, broker, expiry_s, after, epoch, now_us)
            case ClientBack(client=client, expiry_s=expiry_s, epoch=epoch):
                presence.back(client, member.info, expiry_s, epoch)
            case ClientGone(client=client, after=after, epoch=epoch):
                presence.gone(client, broker, after, epoch, now_us)
            case Left():
                self._part(broker)

    def _join(self, outcome: Outcome, info: BrokerInfo, incarnation: int, speaks: Levels) -> None:
        before = self.members.get(info.id)
        if before is not None:
            self.presence.broker_gone(info.id, self.clock_us)
            self._drop_queries(info.id, list(before.queries), release=False)
            if before.info != info:
                self.survival.readdressed(before.info, info)
        self.enter(Member(info, incarnation, speaks))
        self.incarnations.pop(info.id, None)
        self.incarnations[info.id] = incarnation
        self.interest.join(info)
        self._brokers_changed = True
        self.survival.joined(info.id)
        self.detours.joined(info.id)
        self.tiers.joined(info.id)
        outcome.fresh[info.id] = None

    def _part(self, broker: str) -> None:
        self.presence.broker_gone(broker, self.clock_us)
        member = self.members.pop(broker)
        self._hush(member)
        self._drop_queries(broker, list(member.queries), release=False)
        self.interest.leave(broker)
        self._brokers_changed = True
        self.survival.lost(member.info, self.members)
        self.detours.lost(broker)
        gone = [each for each in self.incarnations if each not in self.members]
        for each in gone[: max(0, len(gone) - LIVES_MAX)]:
            del self.incarnations[each]

    def _change_filters(self, member: Member, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        fresh = [each for each in dict.fromkeys(added) if each not in member.filters]
        member.filters.update(dict.fromkeys(fresh))
        self.interest.want(member.info.id, fresh)
        gone = [each for each in dict.fromkeys(removed) if each in member.filters]
        for each in gone:
            del member.filters[each]
        self.interest.release(member.info.id, gone)

    def _change_queries(
        self,
        outcome: Outcome,
        member: Member,
        added: tuple[tuple[str, str], ...],
        removed: tuple[str, ...],
        users: tuple[str, ...],
    ) -> None:
        broker = member.info.id
        for place, (query, text) in enumerate(added):
            problem = None
            if users and query not in member.queries:
                problem = self.spending.problem(users[place], self.clock_us, self.limits)
            if problem is None and query not in self.askers:
                problem = self._add_query(query, text, users[place] if users else "")
            if problem is not None:
                outcome.tell(broker, notices.Refused(query, problem))
                continue
            if query not in member.queries:
                member.queries[query] = None
                self.askers.setdefault(query, {})[broker] = None
                if wants_messages(query):
                    self.interest.want(broker, self.matching.topics(query))
            for item in self._answer(query, broker):
                outcome.tell(broker, item)
        self._drop_queries(broker, [each for each in dict.fromkeys(removed) if each in member.queries])
        for each in removed:
            member.queries.pop(each, None)

    def _add_query(self, query: str, text: str, user: str) -> str | None:
        """Have a query matched on behalf of a user, or (empty) of nobody; a problem if there is no room for it."""
        limits = self.limits
        if len(self.askers) >= limits.queries_max:
            return f"there are {limits.queries_max} queries already"
        steps = self.admit(query, text)
        if user and steps:
            self.spending.charge(user, STEP_BYTES * steps, self.clock_us, limits)
        if limits.queries_max_bytes and self._queries_cost() > limits.queries_max_bytes:
            self._dismiss(query)
            return f"all queries and their streams may take {limits.queries_max_bytes} bytes together"
        return None

    def _queries_cost(self) -> int:
        return self.matching.cost + self.interest.demand.cost

    def admit(self, query: str, text: str) -> int:
        """Have a query answered from here on; the steps that its answer takes beside what is told."""
        if asks_demand(query):
            return self.interest.demand.ask(query.removeprefix(DEMAND))
        self.matching.add(query, text)
        return 0

    def _dismiss(self, query: str) -> None:
        """Nobody asks a query any more."""
        if asks_demand(query):
            self.interest.demand.withdraw(query.removeprefix(DEMAND))
        else:
            self.matching.remove(query)

    def text(self, query: str) -> str:
        """The text of a query that some broker asks."""
        return query.removeprefix(DEMAND) if asks_demand(query) else self.matching.text(query)

    def _drop_queries(self, broker: str, queries: list[str], *, release: bool = True) -> None:
        for query in queries:
            if release and wants_messages(query):
                self.interest.release(broker, self.matching.topics(query))
            askers = self.askers[query]
            del askers[broker]
            if not askers:
                del self.askers[query]
                self._dismiss(query)

    def _declare(self, outcome: Outcome, info: BrokerInfo, number: int, command: Streams) -> None:
        client, presence, now_us = command.client, self.presence, self.clock_us
        most = self.limits.publishers_max
        if client and client not in presence.clients and len(presence.clients) >= most:
            full = f"there are {most} clients that publish already"
            for topic, _ in command.changes:
                outcome.tell(info.id, notices.Refused(topic, full, number))
            return
        if client and not presence.publish(client, info, command.expiry_s, command.epoch, now_us):
            client = ""  # it is elsewhere by now; what it said of its streams holds all the same
            for topic, _ in command.changes:
                presence.strayed(topic, info.id)
        for topic, diff in command.changes:
            problem = self._too_much(topic, diff, command.user)
            if problem is None:
                problem = presence.declare(
                    topic, diff, client, command.after, now_us, self.limits, command.user
                )
            if problem is not None:
                outcome.tell(info.id, notices.Refused(topic, problem, number))
                stream = presence.streams.get(topic)  # the metadata that stay in force
                outcome.tell(info.id, notices.Described(topic, {} if stream is None else stream.keys))

    def _too_much(self, topic: str, diff: Diff | None, user: str | None) -> str | None:
        """Why a stream's metadata cannot be changed for now; withdrawing everything is always possible."""
        limits, known = self.limits, topic in self.presence.streams
        if user is None or diff is None or (known and not diff):
            return None
        most = limits.queries_max_bytes
        if most and self._queries_cost() > 2 * most:
            return f"the streams of queries take more than {2 * most} bytes already"
        return self.spending.problem(user, self.clock_us, limits)

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, outcome: Outcome, speakers: Collection[str]) -> None:
        """Work out what the commands of these speakers did to streams, queries and routes."""
        heard: set[str] = set()
        self.interest.publish(self.presence.placed(), self.clock_us)
        touched = self.presence.touched()
        for topic in sorted(touched):
            (before, stream), after = touched[topic], self.presence.present(topic)
            if before is not after:
                turn = self.matching.change(topic, before, after)
                position = 0 if stream is None else stream.after
                self._tell_turn(outcome, topic, before, after, turn, position, heard)
            self._tell_publishers(outcome, topic, before, heard)
        if (
            self._brokers_changed and self.level
        ):  # not while a log of release 0.1.0 is read: nobody said who carries what
            self.tiers.follow(self.interest.plan.tiers)
            self._brokers_changed = False
        alike: dict[
            int, tuple[Sequence[notices.Item], list[str]]
        ] = {}  # by identity: those told the same share it
        for broker, routes in self.interest.settle().items():
            alike.setdefault(id(routes), (routes, []))[1].append(broker)
        for told, brokers in alike.values():
            outcome.announce(brokers, told)
            heard.update(brokers)
        self._tell_demand(outcome)
        if speakers:
            outcome.concern(speakers, frozenset(heard))

    def _tell_turn(
        self,
        outcome: Outcome,
        topic: str,
        before: Keys | None,
        after: Keys | None,
        turn: Turn,
        position: int,
        heard: set[str],
    ) -> None:
        metadata = (before if after is None else after) or {}
        told: list[tuple[str, notices.Item]] = [
            (query, notices.Left(query, topic, _for(query, metadata), position)) for query in turn.left
        ]
        if after is not None:
            told += [(query, notices.Joined(query, topic, _for(query, after))) for query in turn.joined]
            if before != after:
                listed = [query for query in turn.stayed if not wants_messages(query)]
                told += [(query, notices.Changed(query, topic, after)) for query in listed]
        for query in filter(wants_messages, turn.left):
            for broker in self.askers[query]:
                self.interest.release(broker, (topic,))
        for query in filter(wants_messages, turn.joined):
            for broker in self.askers[query]:
                self.interest.want(broker, (topic,))
        for query, item in told:
            for broker in self.askers[query]:
                outcome.tell(broker, item)
                heard.add(broker)

    def _tell_publishers(self, outcome: Outcome, topic: str, before: Keys | None, heard: set[str]) -> None:
        """Tell the brokers of a stream's publishers its metadata, if it has or had any."""
        stream = self.presence.streams.get(topic)
        if stream is None or not (stream.keys or any(key not in SYSTEM_KEYS for key in before or ())):
            return
        item = notices.Described(topic, stream.keys)
        for broker in sorted({self.presence.clients[each].broker for each in stream.publishers}):
            outcome.tell(broker, item)
            heard.add(broker)

    def _tell_demand(self, outcome: Outcome) -> None:
        """Tell those who asked about a filter that others want it now, or that nobody else does any more."""
        for topic_filter, before, after in self.interest.demand.settle():
            query = DEMAND + topic_filter
            for broker in self.askers[query]:
                wanted = anybody(after, broker)
                if wanted != anybody(before, broker):
                    outcome.tell(broker, notices.Wanted(query, wanted))

    def _answer(self, query: str, broker: str) -> list[notices.Item]:
        """The answer to a query that a broker asks."""
        if asks_demand(query):
            demand = self.interest.demand
            return [notices.Wanted(query, demand.is_wanted(query.removeprefix(DEMAND), broker))]
        known = self.presence.streams
        streams = [(topic, _for(query, known[topic].metadata)) for topic in self.matching.topics(query)]
        runs = split(streams, lambda each: len(each[0]) * 4 + _bytes(each[1]))
        last = len(runs) - 1
        return [notices.QuerySet(query, run, more=part < last) for part, run in enumerate(runs)]

    def _everything(self, broker: str) -> list[notices.Item]:
        items: list[notices.Item] = list(self.interest.all(broker))
        for query in sorted(self.members[broker].queries):
            items += self._answer(query, broker)
        items += (notices.Described(topic, keys) for topic, keys in self.presence.described_at(broker))
        items += self.survival.everything(broker, self._infos())
        items += self.detours.everything(broker, self._infos())
        items += self.tiers.everything(self._infos())
        return items

    def _infos(self) -> dict[str, BrokerInfo]:
        return {broker: member.info for broker, member in self.members.items()}


def _is_of_row(command: Logged) -> bool:
    """Whether a command is about brokers and their filters alone."""
    if isinstance(command, Said):
        return all(isinstance(each, Joined | Interests | Left) for each in command.commands)
    return isinstance(command, Lost)


def wants_messages(query: str) -> bool:
    """Whether a query is asked for the messages of its streams, and not only for the set of them."""
    return not query.startswith((LISTING, DEMAND))


def asks_demand(query: str) -> bool:
    """Whether a query asks who wants a filter, and not for streams."""
    return query.startswith(DEMAND)


def _for(query: str, metadata: Keys) -> Keys:
    """The item about a stream of a query: a query for messages has no use for the metadata."""
    return {} if wants_messages(query) else metadata


def _bytes(metadata: Keys) -> int:
    """A bound on the encoded size: four bytes a character, nine for what is no text."""
    texts = sum(len(key) + (len(value) if isinstance(value, str) else 2) for key, value in metadata.items())
    return 4 * texts + 10 * len(metadata)
