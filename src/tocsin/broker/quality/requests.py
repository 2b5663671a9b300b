"""The shell of ``core.quality``: what subscriptions with a request get of each message, at this broker.

A message is judged for each of them when it comes (``give``, ``judged``). What a stream offers is known from the
message itself, if it is in the log and says it, and otherwise from the coordinator's answer for the scope.

A **deadline** is watched where it is promised and where it is wanted: of a stream that offers one at the broker of its
publisher, and of a subscription that requests one here, from when the stream is known to match. What is missed is told
on ``$qos/offered-deadline/TOPIC`` and ``$qos/requested-deadline/TOPIC``.

What does not match is told both ends, once: the subscriber on ``$qos/incompatible/TOPIC`` here, and the publishers at
whatever broker they are, which hears it on the bus. They get it if they subscribe to such topics.

Who requests a lease is told on ``$qos/liveliness/TOPIC`` how many of the publishers that match are alive, and of each
change (``broker.quality.liveliness``).

The rules hold for all of this: a stream whose messages a client may not receive is not compared for it, and neither end
is told.

A scope may have hundreds of thousands of streams. So subscriptions are compared with them piece by piece, PIECE at a
time, while other work goes on; a change of one stream is compared at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from typing import Final

import msgspec
import structlog
from mqtt5 import PublishPacket

from tocsin.broker.client import Client
from tocsin.broker.quality.alarm import Alarm
from tocsin.broker.quality.arriving import Arriving
from tocsin.broker.quality.attention import Attended
from tocsin.broker.quality.budget_news import BudgetNews, Publishers
from tocsin.broker.quality.flows import Flows
from tocsin.broker.quality.liveliness import EVERYTHING, Leased
from tocsin.broker.quality.news import (
    ALIVE_NEWS,
    HISTORY,
    HISTORY_NEWS,
    INCOMPATIBLE,
    INCOMPATIBLE_NEWS,
    LIVELINESS,
    MISSED_NEWS,
    OFFERED_DEADLINE,
    REQUESTED_DEADLINE,
    Alive,
    HistoryCut,
    Incompatible,
    Missed,
)
from tocsin.broker.quality.recalling import Recalling
from tocsin.broker.quality.resending import Resending
from tocsin.broker.quality.rings import Rings
from tocsin.broker.quality.words import Words
from tocsin.core.budgets.budget import Kind, weight_of_publication
from tocsin.core.delivery.grant import Frames, Grant, grant
from tocsin.core.forwarding.table import Subscription, Wanted
from tocsin.core.quality.deadlines import DeadlineWatch, Miss
from tocsin.core.quality.judging import OFFER, Judge, Verdict, offer_in, offered_by_message, owns, why
from tocsin.core.quality.matching import NOTHING, Mismatch
from tocsin.core.quality.offers import Offers, needs_offers, query_for
from tocsin.core.quality.ownership import Owners
from tocsin.core.quality.separation import SPACE, Separation, key_of
from tocsin.core.quality.stamps import Stamp
from tocsin.core.quality.texts import offer_said, request_of, value_text
from tocsin.model.network import BrokerInfo
from tocsin.model.publication import Publication
from tocsin.model.quality import Ownership, Reliability, Request
from tocsin.model.stream import Metadata
from tocsin.query import Query
from tocsin.runtime.machines.clock import now_us, wall_us
from tocsin.wire.internal.quality import (
    Lives,
    Recall,
    Recalled,
    Unmatched,
    WhoLives,
    Word,
    encode_unmatched,
    unmatched_subject,
)
from tocsin.wire.mqtt.topics import QUALITY_PREFIX, QUERY_PREFIX, TOPIC_MAX_BYTES, matches

WATCHED_BYTES: Final = 700  # of a deadline
PROMISE: Final = ""  # in the place of a request: a deadline that a publisher has promised
TOLD_BYTES: Final = 400  # of what a subscriber was told of the publishers of a topic
PIECE: Final = 200  # streams that are compared with one subscription at once: about a millisecond

Add = Callable[[Client, bytes], None]


class Requests:
    """The requests of one broker's clients. ``add`` queues a frame for a client; ``keep`` has the coordinator asked
    for the streams of a query on behalf of a user, or no longer; ``gone`` names the brokers that are lost."""

    def __init__(
        self,
        network: str,
        own: BrokerInfo,
        words: Words,
        *,
        add: Add,
        keep: Callable[[Query, str, bool], None],
        publishers: Publishers,
        gone: Callable[[], Collection[str]],
        find: Callable[[str], Wanted[Client]],
    ) -> None:
        broker = own.id
        self.subject = unmatched_subject(network)
        self.attended = Attended()
        self.arriving = Arriving(
            network, own, words, self._give_first, lambda *missed: self.budgets.gave_up(*missed)
        )
        self.resending = Resending(network, broker, words, self._give_in_order, gone)
        self.rings = Rings()
        self.flows = Flows(broker, self.resending.origins, self.rings)
        self.recalling = Recalling(
            broker,
            self.rings,
            say=self.resending.say,
            give_past=self._give_past,
            give=self._give_held,
            cut=self._say_cut,
        )
        self._broker = broker
        self._find: Callable[[str], Wanted[Client]] = find
        self.leased = Leased(network, broker, words, self.attended, self._lives_changed, gone)
        self.count = 0  # of subscriptions with a request here
        self.missed = 0  # deadlines
        self.not_owned = 0  # messages that were not delivered because a stronger publisher is alive
        self.unmatched = 0  # messages that were not delivered because they offer too little
        self._words = words
        self._add = add
        self._keep = keep
        self._publishers = publishers
        self._judge = Judge()
        self._offers: Offers[tuple[Client, str]] = Offers()
        self._scopes: dict[str, set[str]] = {}  # the id of a query → what it is asked for
        self._held: dict[Client, dict[str, tuple[str, str]]] = {}  # by name: the filter, and the request
        # A client's connection has a number here: another of the same client id is another.
        self._numbers: dict[Client, str] = {}
        self._clients: dict[str, Client] = {}
        self._next = count(1)
        self._separation: Separation[tuple[Publication, Grant]] = Separation(self._take, self._give_back)
        self._owners = Owners()
        self._exclusive: dict[str, int] = {}  # requests of exclusive ownership → how many subscriptions
        self.budgets = BudgetNews(
            self._inform, lambda target: self._numbers[target], self._clients.get, self._find, publishers
        )
        self._watch = DeadlineWatch()
        self._watched: dict[str, set[str]] = {}  # the number of a client → keys of deadlines
        self.promised: dict[str, dict[Client, str]] = {}  # topic → who promised a deadline, and its key
        self._alarm = Alarm(self._due)
        # What a subscription was told of the publishers of a topic: by client and name, then by topic.
        self._lives_told: dict[tuple[Client, str], dict[str, tuple[int, int]]] = {}
        self._hearing: dict[Client, set[str]] = {}  # who subscribes to such news, by which filters
        # Subscriptions to compare with all of their scopes, and the streams that are left for the first of them.
        self._uncompared: dict[tuple[Client, str], None] = {}
        self._left: Iterator[str] | None = None
        self._comparing: asyncio.Handle | None = None
        self._log = structlog.get_logger()

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────

    def subscribed(self, target: Client, name: str, scope: str, request: str, *, fresh: bool = False) -> None:
        """A client has a subscription with a request, or with another one than before, or (empty) without any.
        ``fresh``: it gets history."""
        if request and self._held.get(target, {}).get(name) == (scope, request):
            return
        self.unsubscribed(target, name)
        if name == scope and name.startswith(QUALITY_PREFIX):
            self._hearing.setdefault(target, set()).add(name)
        if not request:
            return
        self.count += 1
        self._held.setdefault(target, {})[name] = (scope, request)
        self._number(target)
        asked = request_of(request)
        if asked.ownership is Ownership.EXCLUSIVE:
            self._exclusive[request] = self._exclusive.get(request, 0) + 1
        if _is_ordered(request):
            self.resending.want(_pattern(scope))
        if asked.budget_us is not None:
            self.arriving.want(_pattern(scope), asked.budget_us)
        if fresh:
            self.recalling.subscribed(target, name, scope, request)
        if _needs_lives(asked):
            self.leased.watching.want(_pattern(scope))
        if _wants_lives(asked):
            self._lives_told[target, name] = {}
        if needs_offers(request_of(request)) and self._offers.ask(scope, (target, name)):
            query = query_for(scope)
            self._scopes.setdefault(query.id, set()).add(scope)
            self._keep(query, target.user, True)
        else:
            self._compare_later(target, name)

    def unsubscribed(self, target: Client, name: str) -> None:
        hearing = self._hearing.get(target)
        if hearing is not None:
            hearing.discard(name)
            if not hearing:
                del self._hearing[target]
        held = self._held.get(target, {}).pop(name, None)
        if held is None:
            return
        self.count -= 1
        scope, request = held
        left, number = self._held[target], self._numbers[target]
        asked = request_of(request)
        self.recalling.unsubscribed(target, name)
        if _is_ordered(request):
            self.resending.unwant(_pattern(scope))
        if asked.budget_us is not None:
            self.arriving.unwant(_pattern(scope), asked.budget_us)
        if _needs_lives(asked):
            self.leased.watching.unwant(_pattern(scope))
        for topic in self._lives_told.pop((target, name), ()):
            self._give_back(number, TOLD_BYTES + len(topic))
        if asked.ownership is Ownership.EXCLUSIVE:
            self._exclusive[request] -= 1
            if not self._exclusive[request]:
                del self._exclusive[request]
                self._owners.forget(request)
        if all(other != request for _, other in left.values()):
            self._separation.forget(number, request)
            self.budgets.forget(number, request)
            for key in [key for key in self._watched.get(number, ()) if key.split(SPACE)[1] == request]:
                self._unwatch(key)
        if not left:
            del self._held[target]
            self._retire(target)
        if self._offers.withdraw(scope, (target, name)):
            query = query_for(scope)
            scopes = self._scopes[query.id]
            scopes.remove(scope)
            if not scopes:
                del self._scopes[query.id]
                self._keep(query, target.user, False)

    def _number(self, target: Client) -> str:
        number = self._numbers.get(target)
        if number is None:
            number = self._numbers[target] = str(next(self._next))
            self._clients[number] = target
        return number

    def _retire(self, target: Client) -> None:
        """Forget a client of which nothing is left."""
        number = self._numbers[target]
        if target not in self._held and number not in self._watched:
            del self._numbers[target], self._clients[number]

    def forget(self, target: Client) -> None:
        """The client is gone."""
        self.leased.publishing.ended(target, takes_leave=False)
        self.flows.forget(target)
        self._hearing.pop(target, None)
        number = self._numbers.get(target)
        if number is not None:
            for key in tuple(self._watched.get(number, ())):
                self._unwatch(key)
            self._retire(target)
        if target in self._held:
            for name in tuple(self._held[target]):
                self.unsubscribed(target, name)
            self._offers.forget((target.client_id,))

    async def problem(self, target: Client, scope: str, request: str) -> str | None:
        """Why a client's subscription whose request is strict is refused."""
        if not request_of(request).strict:
            return None
        left = iter(self._offers.topics(scope))
        while piece := list(islice(left, PIECE)):
            for topic, found in self._offers.compared(scope, request, piece):
                if found is not None and target.may_receive(topic):
                    return f"{topic} offers {found.policy} {found.offered}; {found.requested} is requested"
            await asyncio.sleep(0)
        return None

    def is_known(self, scope: str, request: str) -> bool:
        """Whether it is known what the streams offer that this is about."""
        return self._offers.is_known(scope) or not needs_offers(request_of(request))

    # ── what the coordinator says ───────────────────────────────────────────────────────────────────────────

    def know(self, query: str, streams: Mapping[str, Metadata]) -> None:
        """The streams that offer something for a filter."""
        for scope in self._scopes.get(query, ()):
            self._offers.know(scope, streams)
            for target, name in self._offers.reasons(scope):
                self._compare_later(target, name)

    def say(self, query: str, topic: str, metadata: Metadata | None) -> None:
        """One of them has joined or changed, or (None) is gone."""
        for scope in self._scopes.get(query, ()):
            if metadata is None:
                self._offers.leave(scope, topic)
                for target, name in self._offers.reasons(scope):
                    self._unwatch(key_of(self._numbers[target], self._held[target][name][1], topic))
                    self._tell_lives(target, (topic,))
            else:
                self._offers.say(scope, topic, metadata)
                for target, name in self._offers.reasons(scope):
                    self._compare(target, *self._held[target][name], (topic,))

    def access_changed(self) -> None:
        """The clients' rights to receive have changed."""
        for target, held in self._held.items():
            for name in held:
                self._compare_later(target, name)

    def _compare_later(self, target: Client, name: str) -> None:
        """Compare a subscription with all streams of its scope, in its turn."""
        if next(iter(self._uncompared), None) == (target, name):
            self._left = None  # from the beginning
        self._uncompared[target, name] = None
        if self._comparing is None:
            self._comparing = asyncio.get_running_loop().call_soon(self._compare_piece)

    def _compare_piece(self) -> None:
        target, name = next(iter(self._uncompared))
        held = self._held.get(target, {}).get(name)
        piece: list[str] = []
        if held is not None:
            if self._left is None:
                self._left = iter(self._offers.topics(held[0]))
            piece = list(islice(self._left, PIECE))
            self._compare(target, *held, piece)
        if len(piece) < PIECE:
            del self._uncompared[target, name]
            self._left = None
        more = bool(self._uncompared)
        self._comparing = asyncio.get_running_loop().call_soon(self._compare_piece) if more else None

    def _compare(self, target: Client, scope: str, request: str, topics: Collection[str]) -> None:
        deadline_us = request_of(request).deadline_us
        for topic, found in self._offers.compared(scope, request, topics):
            if not target.may_receive(topic):
                if deadline_us is not None:
                    self._expect(target, request, topic, None)
                continue
            if found is not None:
                self._tell(target, request, topic, found)
            if deadline_us is not None:
                self._expect(target, request, topic, None if found is not None else deadline_us)
        self._tell_lives(target, topics)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def give(
        self,
        requesting: Wanted[Client],
        packet: PublishPacket,
        topic: str,
        source: str,
        stamp: Stamp | None = None,
    ) -> None:
        """A message at QoS 0 from a client or a link, which is in no log; with the stamp of its flow, if it has one."""
        offered, source = self._offers.of(topic), source if stamp is None else stamp.flow.client
        publication = Publication.of(packet, topic, source, keys={OFFER: offered} if offered else None)
        if stamp is not None and stamp.flow.broker != self._broker:
            requesting = self._keep_back(requesting, publication, stamp, copied=False)
        self._give(requesting, publication, stamp)

    def give_copy(self, packet: PublishPacket, topic: str, stamp: Stamp) -> None:
        """A copy of a message has come over a second way: only what keeps copies apart may have it."""
        requesting = self._find(topic)
        if requesting and stamp.flow.broker != self._broker:
            offered = self._offers.of(topic)
            keys: dict[str, str | int | float | bool] | None = {OFFER: offered} if offered else None
            publication = Publication.of(packet, topic, stamp.flow.client, keys=keys)
            self._keep_back(requesting, publication, stamp, copied=True)

    def _keep_back(
        self, requesting: Wanted[Client], publication: Publication, stamp: Stamp, *, copied: bool
    ) -> Wanted[Client]:
        """Hand a message of a flow to what puts it in order, for whom that matters; the others."""
        if stamp.reliable and _divided(requesting, _is_ordered):
            requesting = _divided(requesting, lambda request: not _is_ordered(request))
            self.resending.take(publication, stamp)
        if self.arriving.wanted and _divided(requesting, _has_budget):
            requesting = _divided(requesting, lambda request: not _has_budget(request))
            self.arriving.take(publication, stamp, copied=copied)
        return requesting

    def _give_first(self, publication: Publication, stamp: Stamp) -> None:
        """It is the turn of a message with a budget, for those who request that."""

        def in_turn(request: str) -> bool:
            return _has_budget(request) and not (stamp.reliable and _is_ordered(request))

        self._give_again(_divided(self._find(publication.topic), in_turn), publication, stamp)

    def _give_in_order(self, publication: Publication, stamp: Stamp) -> None:
        """It is the turn of a message of a reliable flow, for those who request that."""
        wanted = _divided(self._find(publication.topic), _is_ordered)
        if self.arriving.wanted and _divided(wanted, _has_budget):
            self.arriving.delivers(stamp)
        self._give_again(wanted, publication, stamp)

    def _give_again(self, wanted: Wanted[Client], publication: Publication, stamp: Stamp) -> None:
        """Give a message that was kept back."""
        if wanted:
            offered = self._offers.of(publication.topic)
            keys = {OFFER: offered} if offered else None
            said = msgspec.structs.replace(publication, client=stamp.flow.client, keys=keys)
            self._give(wanted, said, stamp)

    def keep_copy(self, publication: Publication, stamp: Stamp) -> None:
        """A message of a flow of a client here goes out."""
        self.resending.publish(publication, stamp)
        self.rings.add(publication, stamp)

    def _one(self, target: Client, name: str, topic: str) -> Wanted[Client]:
        """One subscription, if it is for a topic still."""
        found = target.delivery.subscriptions.get(name)
        subscriptions = next((each for to, each in self._find(topic) if to is target), ())
        return ((target, (found,)),) if found is not None and found in subscriptions else ()

    def _give_past(self, target: Client, name: str, message: tuple[Publication, Stamp]) -> None:
        """A message from before a subscription."""
        publication, stamp = message
        wanted = self._one(target, name, publication.topic)
        for _, subscriptions in self.judged(wanted, publication, stamp.strength):
            granted = grant(subscriptions, publication, LIVE, target.client_id)
            if granted is not None:
                frames = Frames(publication, max(0, wall_us() - stamp.sent_us) / 1e6)
                self._add(target, frames.of(target.version, granted))

    def _give_held(self, target: Client, name: str, message: tuple[Publication, Stamp]) -> None:
        """A live message that has waited for those before it."""
        self._give_now(self._one(target, name, message[0].topic), *message)

    def _give(self, wanted: Wanted[Client], publication: Publication, stamp: Stamp | None) -> None:
        if stamp is not None and stamp.reliable and self.recalling.busy:
            wanted = self.recalling.hold(wanted, (publication, stamp))
        self._give_now(wanted, publication, stamp)

    def _give_now(self, wanted: Wanted[Client], publication: Publication, stamp: Stamp | None) -> None:
        frames = Frames(publication, 0)
        strength, sent_us = (0, 0) if stamp is None else (stamp.strength, stamp.sent_us)
        for target, subscriptions in self.judged(wanted, publication, strength, sent_us):
            granted = grant(subscriptions, publication, LIVE, target.client_id)
            if granted is not None:
                self.send(target, subscriptions, granted, frames, publication)

    def judged(
        self, wanted: Wanted[Client], publication: Publication, strength: int = 0, sent_us: int = 0
    ) -> Wanted[Client]:
        """Those who get a message, each with the subscriptions that it is for. ``strength``: of its publisher, if the
        message does not say it; ``sent_us``: when it was published, if that is known."""
        found = []
        offered: str | None = None
        for target, subscriptions in wanted:
            kept = subscriptions
            if any(each.request for each in subscriptions):
                said = offered = self._offered(publication) if offered is None else offered
                kept = tuple(
                    s
                    for s in subscriptions
                    if not s.request or self._is_for(target, s.request, publication, said, strength, sent_us)
                )
            if kept:
                found.append((target, kept))
        return tuple(found)

    def _is_for(
        self,
        target: Client,
        request: str,
        publication: Publication,
        offered: str,
        strength: int,
        sent_us: int,
    ) -> bool:
        verdict = self._judge.judge(request, offered, publication.payload, publication.qos)
        if verdict is Verdict.MISMATCH:
            self.unmatched += 1
            found = why(request, offered, publication.qos)
            if found is not None:
                self._tell(target, request, publication.topic, found)
        if verdict is not Verdict.DELIVER:
            return False
        if self._exclusive:
            lost = partial(self.leased.watching.is_lost, publication.topic)
            if not owns(self._owners, request, publication, strength, now_us(), lost):
                self.not_owned += 1
                return False
        if self._watched:
            self._watch.arrived(key_of(self._numbers[target], request, publication.topic), now_us())
        if sent_us and (budget_us := request_of(request).budget_us) is not None:
            self.budgets.came(target, request, publication.topic, wall_us() - sent_us, budget_us)
        return True

    def _offered(self, publication: Publication) -> str:
        """What a message says that its stream offered. Its metadata are there, unless the store did not give them."""
        said = offered_by_message(publication)
        if said is not None:
            return said
        return offer_in(publication.keys) if publication.resolved else self._offers.of(publication.topic)

    @property
    def compares(self) -> bool:
        """Whether it matters here what streams offer."""
        return len(self._offers) > 0

    def send(
        self,
        target: Client,
        subscriptions: Iterable[Subscription],
        granted: Grant,
        frames: Frames,
        publication: Publication,
    ) -> None:
        """A message at QoS 0 to one client, now or when its separation is over."""
        if self._is_time(target, subscriptions, granted, publication):
            self._add(target, frames.of(target.version, granted))

    def _is_time(
        self, target: Client, subscriptions: Iterable[Subscription], granted: Grant, publication: Publication
    ) -> bool:
        lengths = {
            each.request: request_of(each.request).separation_us if each.request else None
            for each in subscriptions
        }
        if any(length is None for length in lengths.values()):
            return True
        passes = False
        size, number = weight_of_publication(publication), self._numbers[target]
        for request, length_us in lengths.items():
            key, item = key_of(number, request, publication.topic), (publication, granted)
            if self._separation.passes(number, key, item, size, length_us or 0, now_us()):
                passes = True
        self._wind()
        return passes

    # ── separation ──────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, number: str, size: int) -> bool:
        return self._clients[number].account.take(Kind.OUTBOUND, size) is None

    def _give_back(self, number: str, size: int) -> None:
        self._clients[number].account.give(Kind.OUTBOUND, size)

    def _wind(self) -> None:
        self._alarm.set(self._separation.next_us, self._watch.next_us)

    def _due(self) -> None:
        for miss in self._watch.due(now_us()):
            self._say_missed(miss)
        for key, (publication, granted) in self._separation.due(now_us()):
            target = self._clients[key.partition(SPACE)[0]]
            if target.may_receive(publication.topic):
                self._add(target, Frames(publication, 0).of(target.version, granted))
        self._wind()

    # ── deadlines ───────────────────────────────────────────────────────────────────────────────────────────

    def promise(self, topic: str, offered: str, publishers: Collection[Client]) -> None:
        """What the stream of a topic offers that these publish on; empty: nothing."""
        self.leased.publishing.promise(topic, offered, publishers)
        self.flows.promise(topic, offered, publishers)
        offer = offer_said(offered) if offered else None
        deadline_us = None if offer is None else offer.deadline_us
        if deadline_us is None and topic not in self.promised:
            return
        for client in publishers:
            self._expect(client, PROMISE, topic, deadline_us)

    def keep(self, client: Client, topic: str) -> None:
        """A client published on a topic with a promise."""
        promised = self.promised.get(topic)
        key = None if promised is None else promised.get(client)
        if key is not None:
            self._watch.arrived(key, now_us())
        self.keep_alive(client, topic)

    def keep_alive(self, client: Client, topic: str) -> None:
        """A client published, or says that it is alive on a topic."""
        if topic in self.leased.publishing.topics:
            self.leased.publishing.sign(client, topic)

    def resumed(self, client: Client) -> None:
        """A client has its stored session back: its leases go on, though it has published nothing here."""
        self.leased.publishing.resumed(client)

    def takes_leave(self, client: Client) -> None:
        """A client goes on purpose, and is not expected back."""
        self.leased.publishing.ended(client, takes_leave=True)

    def _expect(self, target: Client, request: str, topic: str, deadline_us: int | None) -> None:
        """Watch a deadline from now on; None: no longer."""
        number = self._number(target)
        key = key_of(number, request, topic)
        if deadline_us is None:
            self._unwatch(key)
            self._retire(target)
            return
        if key not in self._watch:
            if not self._take(number, WATCHED_BYTES + len(key)):
                self._retire(target)
                return
            self._watched.setdefault(number, set()).add(key)
            if request == PROMISE:
                self.promised.setdefault(topic, {})[target] = key
                self.attended.add(topic)
        self._watch.watch(key, deadline_us, now_us())
        self._wind()

    def _unwatch(self, key: str) -> None:
        if key not in self._watch:
            return
        number, request, topic = key.split(SPACE)
        self._watch.drop(key)
        self._give_back(number, WATCHED_BYTES + len(key))
        keys = self._watched[number]
        keys.remove(key)
        if not keys:
            del self._watched[number]
        if request == PROMISE:
            promised = self.promised[topic]
            del promised[self._clients[number]]
            self.attended.remove(topic)
            if not promised:
                del self.promised[topic]

    def _say_missed(self, miss: Miss) -> None:
        number, request, topic = miss.key.split(SPACE)
        news = Missed(value_text("deadline_us", miss.deadline_us), miss.total, miss.change)
        said = OFFERED_DEADLINE if request == PROMISE else REQUESTED_DEADLINE
        self.missed += miss.change
        target = self._clients[number]
        if request == PROMISE or target.may_receive(topic):
            self._inform(target, said + topic, MISSED_NEWS.write(news))

    # ── what does not match ─────────────────────────────────────────────────────────────────────────────────

    def _tell(self, target: Client, request: str, topic: str, found: Mismatch) -> None:
        if not target.may_receive(topic) or not self._offers.is_news(target.client_id, request, topic, found):
            return
        facts = {"policy": found.policy, "offered": found.offered, "requested": found.requested}
        self._log.debug("a stream does not match", subscriber=target.client_id, stream=topic, **facts)
        news = Incompatible(found.policy, found.offered, found.requested, "")
        self._inform(target, INCOMPATIBLE + topic, INCOMPATIBLE_NEWS.write(news))
        word = Unmatched(topic, found.policy, found.offered, found.requested, target.client_id)
        self._words.say(self.subject, encode_unmatched(word))

    def _inform(self, target: Client, said: str, news: bytes) -> None:
        """Tell one client, if it subscribes to such news."""
        names = self._hearing.get(target)
        if names is None or len(said.encode()) > TOPIC_MAX_BYTES:
            return
        if any(matches(name, said) for name in names):
            publication = Publication(said, news, 0, "")
            self._add(target, Frames(publication, 0).of(target.version, _PLAIN))

    def heed(self, word: Word) -> None:
        """A word to all brokers, or to this one."""
        match word:
            case Lives() | WhoLives():
                self.leased.hear(word)
            case Recall() | Recalled():
                self.recalling.hear(word)
            case _:
                self.resending.hear(word)

    def _say_cut(self, target: Client, topic: str, missing: int) -> None:
        """Of the history on a topic so many messages are missing."""
        if target.may_receive(topic):
            self._inform(target, HISTORY + topic, HISTORY_NEWS.write(HistoryCut(missing)))

    def hear(self, said: Unmatched) -> None:
        """Something does not match at some broker."""
        news = Incompatible(said.policy, said.offered, said.requested, said.peer)
        for client in tuple(self._publishers.publishing(said.topic)):
            self._inform(client, INCOMPATIBLE + said.topic, INCOMPATIBLE_NEWS.write(news))

    # ── who is alive ────────────────────────────────────────────────────────────────────────────────────────

    def _lives_changed(self, topics: Collection[str]) -> None:
        """The counts of the publishers of these topics are others."""
        for target in {target: None for target, _ in self._lives_told}:
            self._tell_lives(target, topics)

    def _tell_lives(self, target: Client, topics: Collection[str]) -> None:
        """Tell a client how many of the publishers that match its subscriptions are alive, if that is news."""
        if not self._lives_told:
            return
        for name, (scope, request) in self._held[target].items():
            told = self._lives_told.get((target, name))
            if told is None:
                continue
            for topic in topics:
                before, matching = told.get(topic, (0, 0)), self._offers.is_matching(scope, request, topic)
                if matching is None:  # the last publisher of its stream is gone, which may have a lease still
                    matching = topic in told
                matching = matching and target.may_receive(topic)
                now = self.leased.watching.counts(topic) if matching else (0, 0)
                if now != before and self._note_told(target, told, topic, now):
                    news = Alive(*now, now[0] - before[0], now[1] - before[1])
                    self._inform(target, LIVELINESS + topic, ALIVE_NEWS.write(news))

    def _note_told(
        self, target: Client, told: dict[str, tuple[int, int]], topic: str, now: tuple[int, int]
    ) -> bool:
        """Remember what a subscription is told of a topic; False if there is no room for that."""
        number, size = self._numbers[target], TOLD_BYTES + len(topic)
        if now == (0, 0):
            del told[topic]
            self._give_back(number, size)
            return True
        if topic not in told and not self._take(number, size):
            return False
        told[topic] = now
        return True

    def close(self) -> None:
        """Nothing is sent any more."""
        self.leased.close()
        self.arriving.close()
        self.budgets.close()
        self.resending.close()
        self.recalling.close()
        self._alarm.close()
        if self._comparing is not None:
            self._comparing.cancel()

    def statistics(self) -> dict[str, int]:
        return {
            "requests": self.count,
            "unmatched": self.unmatched,
            "not_owned": self.not_owned,
            "late": self.budgets.late,
            "flows": len(self.flows),
            "separated": self._separation.left_out,
            "deadlines": len(self._watch),
            "deadlines_missed": self.missed,
            "quality_words_dropped": self._words.dropped,
            "rings": len(self.rings),
            "history_cut": self.rings.cut,
            "history_given_up": self.recalling.given_up,
            **self.arriving.statistics(),
            **self.leased.statistics(),
            **self.resending.statistics(),
        }


LIVE: Final = 1 << 62  # the position of a message that is in no log
_PLAIN: Final = Grant(0, (), False)


def _divided(wanted: Wanted[Client], fits: Callable[[str], bool]) -> Wanted[Client]:
    """Those subscriptions whose requests are such."""
    found = []
    for target, subscriptions in wanted:
        kept = tuple(each for each in subscriptions if fits(each.request))
        if kept:
            found.append((target, kept))
    return tuple(found)


def _is_ordered(request: str) -> bool:
    """Whether a subscription gets all of a flow that is kept, in order: for reliability, or after its history."""
    asked = request_of(request) if request else NOTHING
    return asked.reliability is Reliability.RELIABLE or bool(asked.durability)


def _has_budget(request: str) -> bool:
    return bool(request) and request_of(request).budget_us is not None


def _needs_lives(request: Request) -> bool:
    """Whether it has to be known which publishers are alive."""
    return _wants_lives(request) or request.ownership is Ownership.EXCLUSIVE


def _wants_lives(request: Request) -> bool:
    """Whether a subscription is told which publishers are alive."""
    return request.lease_us is not None or request.liveliness is not None


def _pattern(scope: str) -> str:
    """A filter for all topics of a scope."""
    return EVERYTHING if scope.startswith(QUERY_PREFIX) else scope
