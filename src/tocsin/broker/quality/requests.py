"""The shell of ``core.quality``: what subscriptions with a request get of each message, at this broker.

A message is judged for each of them when it comes (``give``, ``judged``). What a stream offers is known from the
message itself, if it is in the log and says it, and otherwise from the coordinator's answer for the scope.

What does not match is told both ends, once: the subscriber on ``$qos/incompatible/TOPIC`` here, and the publishers at
whatever broker they are, which hears it on the bus. They get it if they subscribe to such topics. If more words wait
for the bus than WORDS_MAX, the newest is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from itertools import count
from typing import Final, Protocol

import msgspec
import structlog
from mqtt5 import PublishPacket

from tocsin.broker.client import Client
from tocsin.core.budgets.budget import Kind
from tocsin.core.delivery.grant import Frames, Grant, grant
from tocsin.core.forwarding.table import Subscription, Wanted
from tocsin.core.quality.judging import OFFER, Judge, Verdict, offer_in, why
from tocsin.core.quality.matching import Mismatch
from tocsin.core.quality.offers import Offers, needs_offers, query_for
from tocsin.core.quality.separation import Separation, key_of
from tocsin.core.quality.texts import request_of
from tocsin.errors import TocsinError
from tocsin.model.publication import Publication
from tocsin.model.stream import Metadata
from tocsin.model.versions import UNREADABLE, Document
from tocsin.ports import Bus, BusMessage
from tocsin.query import Query
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.internal.quality import Unmatched, decode_unmatched, encode_unmatched, unmatched_subject
from tocsin.wire.mqtt.topics import QUALITY_PREFIX, TOPIC_MAX_BYTES, matches

INCOMPATIBLE: Final = QUALITY_PREFIX + "incompatible/"
WORDS_MAX: Final = 1_000

Add = Callable[[Client, bytes], None]


class Incompatible(msgspec.Struct, frozen=True):
    """A stream and a subscription that do not match, for people and their programs."""

    policy: str
    offered: str
    requested: str
    peer: str  # the other end; empty: all that publish there


INCOMPATIBLE_NEWS: Final = Document("what does not match", msgspec.json.Decoder(Incompatible))


class Publishers(Protocol):
    """The clients that publish here, as they are seen from this room."""

    def publishing(self, topic: str) -> Iterable[Client]: ...


class Requests:
    """The requests of one broker's clients. ``add`` queues a frame for a client; ``keep`` has the coordinator asked
    for the streams of a query on behalf of a user, or no longer."""

    def __init__(
        self,
        network: str,
        bus: Bus,
        *,
        add: Add,
        keep: Callable[[Query, str, bool], None],
        publishers: Publishers,
    ) -> None:
        self.subject = unmatched_subject(network)
        self.count = 0  # of subscriptions with a request here
        self.dropped = 0  # words that did not get onto the bus
        self.unmatched = 0  # messages that were not delivered because they offer too little
        self._bus = bus
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
        self._timer: asyncio.TimerHandle | None = None
        self._words: asyncio.Queue[Unmatched] = asyncio.Queue(WORDS_MAX)
        self._log = structlog.get_logger()

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────

    def subscribed(self, target: Client, name: str, scope: str, request: str) -> None:
        """A client has a subscription with a request, or with another one than before, or (empty) without any."""
        self.unsubscribed(target, name)
        if not request:
            return
        self.count += 1
        self._held.setdefault(target, {})[name] = (scope, request)
        if target not in self._numbers:
            number = self._numbers[target] = str(next(self._next))
            self._clients[number] = target
        if needs_offers(request_of(request)) and self._offers.ask(scope, (target, name)):
            query = query_for(scope)
            self._scopes.setdefault(query.id, set()).add(scope)
            self._keep(query, target.user, True)
        else:
            self._compare(target, scope, request, None)

    def unsubscribed(self, target: Client, name: str) -> None:
        held = self._held.get(target, {}).pop(name, None)
        if held is None:
            return
        self.count -= 1
        scope, request = held
        left, number = self._held[target], self._numbers[target]
        if all(other != request for _, other in left.values()):
            self._separation.forget(number, request)
        if not left:
            del self._held[target], self._numbers[target], self._clients[number]
        if self._offers.withdraw(scope, (target, name)):
            query = query_for(scope)
            scopes = self._scopes[query.id]
            scopes.remove(scope)
            if not scopes:
                del self._scopes[query.id]
                self._keep(query, target.user, False)

    def forget(self, target: Client) -> None:
        """The client is gone."""
        if target in self._held:
            for name in tuple(self._held[target]):
                self.unsubscribed(target, name)
            self._offers.forget((target.client_id,))

    def problem(self, scope: str, request: str) -> str | None:
        """Why a subscription whose request is strict is refused."""
        if not request_of(request).strict:
            return None
        for topic, found in self._offers.mismatches(scope, request):
            return f"{topic} offers {found.policy} {found.offered}; {found.requested} is requested"
        return None

    def is_known(self, scope: str, request: str) -> bool:
        """Whether it is known what the streams offer that this is about."""
        return self._offers.is_known(scope) or not needs_offers(request_of(request))

    # ── what the coordinator says ───────────────────────────────────────────────────────────────────────────

    def know(self, query: str, streams: Mapping[str, Metadata]) -> None:
        """The streams that offer something for a filter."""
        for scope in self._scopes.get(query, ()):
            self._offers.know(scope, streams)
            self._compare_all(scope)

    def say(self, query: str, topic: str, metadata: Metadata | None) -> None:
        """One of them has joined or changed, or (None) is gone."""
        for scope in self._scopes.get(query, ()):
            if metadata is None:
                self._offers.leave(scope, topic)
            else:
                self._offers.say(scope, topic, metadata)
                self._compare_all(scope, topic)

    def _compare_all(self, scope: str, only: str | None = None) -> None:
        for target, name in self._offers.reasons(scope):
            self._compare(target, *self._held[target][name], only)

    def _compare(self, target: Client, scope: str, request: str, only: str | None) -> None:
        for topic, found in self._offers.mismatches(scope, request):
            if only is None or topic == only:
                self._tell(target, request, topic, found)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def give(self, requesting: Wanted[Client], packet: PublishPacket, topic: str, source: str) -> None:
        """A message at QoS 0 from a client or a link, which is in no log."""
        offered = self._offers.of(topic)
        publication = Publication.of(packet, topic, source, keys={OFFER: offered} if offered else None)
        frames = Frames(publication, 0)
        for target, subscriptions in self.judged(requesting, publication):
            granted = grant(subscriptions, publication, LIVE, target.client_id)
            if granted is not None:
                self.send(target, subscriptions, granted, frames, publication)

    def judged(self, wanted: Wanted[Client], publication: Publication) -> Wanted[Client]:
        """Those who get a message, each with the subscriptions that it is for."""
        found = []
        for target, subscriptions in wanted:
            kept = subscriptions
            if any(each.request for each in subscriptions):
                kept = tuple(
                    s for s in subscriptions if not s.request or self._is_for(target, s, publication)
                )
            if kept:
                found.append((target, kept))
        return tuple(found)

    def _is_for(self, target: Client, subscription: Subscription, publication: Publication) -> bool:
        request, offered = subscription.request, self._offered(publication)
        verdict = self._judge.judge(request, offered, publication.payload, publication.qos)
        if verdict is Verdict.MISMATCH:
            self.unmatched += 1
            found = why(request, offered, publication.qos)
            if found is not None:
                self._tell(target, request, publication.topic, found)
        return verdict is Verdict.DELIVER

    def _offered(self, publication: Publication) -> str:
        """A message whose metadata are elsewhere offers what its stream does now."""
        return offer_in(publication.keys) if publication.resolved else self._offers.of(publication.topic)

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
        size, number = len(publication.topic) + len(publication.payload), self._numbers[target]
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
        if self._timer is None and (due := self._separation.next_us) is not None:
            delay_s = max(0, due - now_us()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        for key, (publication, granted) in self._separation.due(now_us()):
            target = self._clients[key.partition("\0")[0]]
            if target.may_receive(publication.topic):
                self._add(target, Frames(publication, 0).of(target.version, granted))
        self._wind()

    # ── what does not match ─────────────────────────────────────────────────────────────────────────────────

    def _tell(self, target: Client, request: str, topic: str, found: Mismatch) -> None:
        if not self._offers.is_news(target.client_id, request, topic, found):
            return
        facts = {"policy": found.policy, "offered": found.offered, "requested": found.requested}
        self._log.info("a stream does not match", subscriber=target.client_id, stream=topic, **facts)
        news = Incompatible(found.policy, found.offered, found.requested, "")
        self._inform(target, topic, news)
        word = Unmatched(topic, found.policy, found.offered, found.requested, target.client_id)
        try:
            self._words.put_nowait(word)
        except asyncio.QueueFull:
            self.dropped += 1

    def _inform(self, target: Client, topic: str, news: Incompatible) -> None:
        """Tell one client, if it subscribes to such news."""
        said = INCOMPATIBLE + topic
        if len(said.encode()) > TOPIC_MAX_BYTES:
            return
        names = target.delivery.subscriptions
        if any(name.startswith(QUALITY_PREFIX) and matches(name, said) for name in names):
            publication = Publication(said, INCOMPATIBLE_NEWS.write(news), 0, "")
            self._add(target, Frames(publication, 0).of(target.version, _PLAIN))

    async def speak(self) -> None:
        """Tell the publishers, for as long as the broker lives."""
        while True:
            word = await self._words.get()
            try:
                await self._bus.publish(self.subject, encode_unmatched(word))
            except TocsinError as error:
                self.dropped += 1
                self._log.debug("a word of what does not match was not said", problem=str(error))

    async def hear(self, words: AsyncIterator[BusMessage]) -> None:
        """Hear what does not match anywhere, for as long as the broker lives."""
        async for word in words:
            try:
                said = decode_unmatched(word.payload)
            except UNREADABLE as error:
                self._log.warning("a word of what does not match is unreadable", problem=str(error))
                continue
            news = Incompatible(said.policy, said.offered, said.requested, said.peer)
            for client in tuple(self._publishers.publishing(said.topic)):
                self._inform(client, said.topic, news)

    def close(self) -> None:
        """Nothing is sent any more."""
        if self._timer is not None:
            self._timer.cancel()

    def statistics(self) -> dict[str, int]:
        return {
            "requests": self.count,
            "unmatched": self.unmatched,
            "separated": self._separation.left_out,
            "quality_words_dropped": self.dropped,
        }


LIVE: Final = 1 << 62  # the position of a message that is in no log
_PLAIN: Final = Grant(0, (), False)
