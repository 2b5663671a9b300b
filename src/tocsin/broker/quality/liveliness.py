"""The shell of ``core.quality.leases`` and ``core.quality.liveness``: which publishers are alive.

The broker of a publisher watches its lease, and tells all brokers of each change. A broker with subscribers that want
to know asks all others what they have, every ASK_S seconds while somebody wants to know: so a word that was lost is
told again. The publishers of a broker that is lost have one lease to come back elsewhere.

A client with a stored session that comes to another broker has its leases there at once, though it publishes nothing:
its session knows its streams (``resumed``). So nobody is told that a publisher is alive before its session is stored
with the stream, or cannot be: else its lease would be over if its broker crashed in between, wherever it is by then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from tocsin.broker.client import Client
from tocsin.broker.quality.alarm import Alarm
from tocsin.broker.quality.attention import Attended
from tocsin.broker.quality.words import Words
from tocsin.core.budgets.budget import Kind
from tocsin.core.quality.judging import offer_in
from tocsin.core.quality.leases import Leases
from tocsin.core.quality.liveness import Liveness
from tocsin.core.quality.texts import offer_said
from tocsin.model.quality import Life, LifeState, Liveliness
from tocsin.runtime.machines.clock import now_us
from tocsin.wire.internal.quality import ROWS_MAX, WORD, Lives, WhoLives, words_subject
from tocsin.wire.mqtt.topics import matches

ASK_S: Final = 5.0
LOOK_S: Final = 0.25  # for brokers that are lost, while somebody wants to know
LEASE_BYTES: Final = 500  # of a lease
FILTERS_MAX: Final = 1_000  # in one question; with more, everything is asked for
EVERYTHING: Final = "#"
_SPACE: Final = "\0"


class Publishing:
    """The leases of one broker's publishers. ``tell`` says something of them to all brokers, and to our own."""

    def __init__(self, tell: Callable[[tuple[Life, ...]], None], attended: Attended) -> None:
        self.topics = Attended()  # on which somebody here has a lease
        self._attended = attended
        self._tell = tell
        self._leases = Leases()
        self._clients: dict[str, Client] = {}  # by key: those that are connected
        self._epochs: dict[str, int] = {}  # by key
        self._unsaid: set[str] = set()  # keys of which nobody is told yet
        self._of_client: dict[Client, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def next_us(self) -> int | None:
        return self._leases.next_us

    def promise(
        self, topic: str, offered: str, publishers: Iterable[Client], *, stored: bool = False
    ) -> None:
        """What the stream of a topic offers that these publish on; empty: nothing. ``stored``: as sessions say."""
        offer = offer_said(offered) if offered else None
        lease_us = None if offer is None else offer.lease_us
        if lease_us is None and topic not in self.topics:
            return
        manual = offer is not None and offer.liveliness is Liveliness.MANUAL
        for client in publishers:
            if lease_us is None:
                self._withdraw(client, _key(topic, client.client_id))
            else:
                self._hold(client, topic, lease_us, manual, stored)

    def resumed(self, client: Client) -> None:
        """A client has its stored session back, here or at first."""
        for topic, keys in client.delivery.streams.items():
            self.promise(topic, offer_in(keys), (client,), stored=True)

    def _hold(self, client: Client, topic: str, lease_us: int, manual: bool, stored: bool) -> None:
        key = _key(topic, client.client_id)
        fresh = key not in self._of_client.get(client, ())
        if fresh:
            if client.account.take(Kind.OUTBOUND, LEASE_BYTES + len(topic)) is not None:
                return  # without room it is not watched
            self._forget_before(key)
            self._of_client.setdefault(client, {})[key] = None
            self._clients[key] = client
            self.topics.add(topic)
            self._attended.add(topic)
        changed = self._epochs.get(key) != client.epoch
        self._epochs[key] = client.epoch
        news = self._leases.hold(key, lease_us, manual, now_us()) or changed
        if fresh and not stored:
            self._unsaid.add(key)
            client.delivery.when_tried(partial(self._stored, client, key))
        elif news and key not in self._unsaid:
            self._say([key], LifeState.ALIVE)

    def _stored(self, client: Client, key: str) -> None:
        """A client's session has the stream now, or could not be stored."""
        if key in self._unsaid and self._clients.get(key) is client:
            self._say([key], LifeState.ALIVE)

    def _forget_before(self, key: str) -> None:
        """An earlier connection of the same client may have it still."""
        before = self._clients.get(key)
        if before is not None:
            self._release(before, key)

    def _release(self, client: Client, key: str) -> None:
        """A connection has a lease no longer."""
        keys, topic = self._of_client[client], key.partition(_SPACE)[0]
        del keys[key], self._clients[key]
        if not keys:
            del self._of_client[client]
        client.account.give(Kind.OUTBOUND, LEASE_BYTES + len(topic))
        self.topics.remove(topic)
        self._attended.remove(topic)

    def _withdraw(self, client: Client, key: str) -> None:
        if self._clients.get(key) is client:
            self._release(client, key)
            self._say([key], LifeState.LEFT)
            self._leases.drop(key)
            del self._epochs[key]

    def sign(self, client: Client, topic: str) -> None:
        """A client published on a topic with a lease, or says that it is alive."""
        key = _key(topic, client.client_id)
        if self._clients.get(key) is client and self._leases.sign(key, now_us()):
            self._say([key], LifeState.ALIVE)

    def ended(self, client: Client, *, takes_leave: bool) -> None:
        """A connection is over. A client that did not take its leave may come back within its lease."""
        keys = tuple(self._of_client.get(client, ()))
        if not keys:
            return
        for key in keys:
            self._release(client, key)
            if not takes_leave:
                self._leases.leave(key, client.heard_us)
        if takes_leave:
            self._say(keys, LifeState.LEFT)
            for key in keys:
                self._leases.drop(key)
        for key in keys:
            if key not in self._leases:
                self._epochs.pop(key, None)
                self._unsaid.discard(key)

    def due(self) -> None:
        """Tell of those that are lost, or alive again."""
        changed = self._leases.due(now_us(), self._heard_us)
        for state in (LifeState.ALIVE, LifeState.LOST):
            keys = [key for key, alive in changed if alive is (state is LifeState.ALIVE)]
            if keys:
                self._say(keys, state)
        for key, _ in changed:
            if key not in self._leases:
                self._epochs.pop(key, None)

    def _heard_us(self, key: str) -> int:
        client = self._clients.get(key)
        return 0 if client is None else client.heard_us

    def rows(self, filters: Collection[str]) -> list[Life]:
        """Those whose topics match."""
        states = (LifeState.LOST, LifeState.ALIVE)
        return [
            self._life(key, states[self._leases.is_alive(key)])
            for key in self._epochs
            if key not in self._unsaid and any(matches(each, key.partition(_SPACE)[0]) for each in filters)
        ]

    def _life(self, key: str, state: LifeState) -> Life:
        topic, _, client = key.partition(_SPACE)
        lease_us = self._leases.lease_us(key) if key in self._leases else 0
        return Life(topic, client, self._epochs[key], lease_us, state)

    def _say(self, keys: Collection[str], state: LifeState) -> None:
        self._unsaid.difference_update(keys)
        self._tell(tuple(self._life(key, state) for key in keys))


class Watching:
    """The publishers that subscribers of this broker want to know alive. ``changed`` is told the topics whose counts
    are others; ``gone`` names the brokers that are lost."""

    def __init__(
        self,
        ask: Callable[[int, tuple[str, ...]], None],
        changed: Callable[[Collection[str]], None],
        gone: Callable[[], Collection[str]],
    ) -> None:
        self._ask = ask
        self._changed = changed
        self._gone = gone
        self._filters: dict[str, int] = {}  # → how many want it
        self._liveness = Liveness()
        self._asked_us = 0
        self._lost: frozenset[str] = frozenset()  # brokers that were when it was looked last

    def __len__(self) -> int:
        return len(self._liveness)

    def counts(self, topic: str) -> tuple[int, int]:
        return self._liveness.counts(topic)

    def is_lost(self, topic: str, client: str) -> bool:
        """Whether a publisher's lease is over."""
        return self._liveness.is_lost(topic, client)

    def topics(self) -> tuple[str, ...]:
        """Those of which somebody publishes with a lease."""
        return self._liveness.topics

    @property
    def next_us(self) -> int | None:
        if not self._filters:
            return None
        look_us = now_us() + int(LOOK_S * 1e6)
        due_us = self._liveness.next_us
        return look_us if due_us is None else min(look_us, due_us)

    def want(self, pattern: str) -> None:
        first = pattern not in self._filters
        self._filters[pattern] = self._filters.get(pattern, 0) + 1
        if first:
            self._ask_all()

    def unwant(self, pattern: str) -> None:
        self._filters[pattern] -= 1
        if not self._filters[pattern]:
            del self._filters[pattern]
            self._liveness.keep(self.wants)

    def wants(self, topic: str) -> bool:
        return any(matches(each, topic) for each in self._filters)

    def _ask_all(self) -> None:
        self._asked_us = now_us()
        filters = tuple(self._filters) if len(self._filters) <= FILTERS_MAX else (EVERYTHING,)
        self._ask(self._liveness.ask(), filters)

    def know(self, broker: str, rows: Iterable[Life], ask: int = 0, *, last: bool = False) -> None:
        """A broker speaks of its publishers."""
        if not self._filters:
            return
        changed = {
            life.topic: None
            for life in rows
            if self.wants(life.topic) and self._liveness.know(broker, life, ask)
        }
        if last:
            self._liveness.answered(broker, ask, now_us())
        if changed:
            self._changed(changed)

    def due(self) -> None:
        if not self._filters:
            return
        lost = frozenset(self._gone())
        self._liveness.gone(lost - self._lost, now_us())
        self._lost = lost
        changed = {life.topic: None for life in self._liveness.due(now_us())}
        if changed:
            self._changed(changed)
        if now_us() - self._asked_us >= ASK_S * 1e6:
            self._ask_all()


class Leased:
    """Leases at one broker: of its own publishers, and of those that its subscribers want to know alive."""

    def __init__(
        self,
        network: str,
        broker: str,
        words: Words,
        attended: Attended,
        changed: Callable[[Collection[str]], None],
        gone: Callable[[], Collection[str]],
    ) -> None:
        self.subject = words_subject(network)
        self._broker = broker
        self._words = words
        self.publishing = Publishing(self._tell, attended)
        self.watching = Watching(self._ask, changed, gone)
        self._alarm = Alarm(self._due)

    def _tell(self, rows: tuple[Life, ...]) -> None:
        self._say(Lives(self._broker, rows))
        self.watching.know(self._broker, rows)
        self.wind()

    def _ask(self, ask: int, filters: tuple[str, ...]) -> None:
        self._say(WhoLives(self._broker, ask, filters))
        self.watching.know(self._broker, self.publishing.rows(filters), ask, last=True)
        self.wind()

    def _say(self, word: Lives | WhoLives) -> None:
        self._words.say(self.subject, WORD.write(word))

    def hear(self, word: Lives | WhoLives) -> None:
        """Another broker speaks, or we ourselves."""
        if word.broker == self._broker:
            return
        match word:
            case Lives(broker=broker, rows=rows, to=to, ask=ask, last=last):
                mine = to == self._broker
                self.watching.know(broker, rows, ask if mine else 0, last=mine and last)
            case WhoLives(broker=broker, ask=ask, filters=filters):
                found = self.publishing.rows(filters)
                for start in range(0, max(1, len(found)), ROWS_MAX):
                    part, last = tuple(found[start : start + ROWS_MAX]), start + ROWS_MAX >= len(found)
                    self._say(Lives(self._broker, part, broker, ask, last))
        self.wind()

    def wind(self) -> None:
        """Look again when something is due."""
        self._alarm.set(self.publishing.next_us, self.watching.next_us)

    def _due(self) -> None:
        self.publishing.due()
        self.watching.due()
        self.wind()

    def close(self) -> None:
        self._alarm.close()

    def statistics(self) -> dict[str, int]:
        return {"leases": len(self.publishing), "publishers_watched": len(self.watching)}


def _key(topic: str, client: str) -> str:
    return topic + _SPACE + client
