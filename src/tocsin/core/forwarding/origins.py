"""Which broker publishes what, as far as routes depend on it.

A broker needs the route of a filter into other clusters only while somebody publishes a matching topic there. So the
topics of each broker's streams are counted here by **scope**:

    filter                     scope          the broker holds its route while it publishes
    line/7                     line/7         that topic
    line/#                     line/#         a topic below, or line itself
    line/+/state, line/+       line/#         the same: more than it needs
    +/state, #                 #              anything, but topics that begin with "$"
    $share/group/line/7        everywhere     –

A filter with a "+" counts as its scope, because finding the topics that match it would cost the leader as many steps as
there are topics. A group's routes are at every broker: which members there are decides who of them gets a message.

A topic that nobody publishes any more **lingers** for LINGER_US to twice that, so that a publisher that comes and goes
changes no route. A client that has come to another broker may also have messages on the way over its old connection.

Cost: a topic that comes or goes costs its levels.

Invariant: a scope is live at a broker exactly while a topic of it is published there, or lingers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from tocsin.core.deadlines import Deadlines
from tocsin.core.filters import interest_of
from tocsin.wire.mqtt.topics import SHARE_PREFIX

LINGER_US: Final = 10_000_000
EVERYWHERE: Final = ""  # the scope of what every broker has routes for
UNREGISTERED: Final = (
    ""  # in the place of a filter: for topics that are no stream of the broker's, as far as it knows
)
_ALL: Final = "#"
_NOBODY: Final[Mapping[str, int]] = {}


def scope_of(name: str) -> str:
    """The scope of what somebody wants: a filter, or a group's."""
    if not name or name.startswith(SHARE_PREFIX):
        return EVERYWHERE
    pattern = interest_of(name).pattern
    levels = pattern.split("/")
    wild = next((place for place, level in enumerate(levels) if level in ("+", "#")), None)
    if wild is None:
        return pattern
    return "/".join((*levels[:wild], _ALL))


def scopes_of_topic(topic: str) -> list[str]:
    """The scopes of the filters that match a topic, or may."""
    return [topic, f"{topic}/#", *(scope for scope, _ in _scopes_above(topic))]


class Lingering(NamedTuple):
    """The topics of a broker that nobody publishes any more."""

    due_us: int  # when the older ones end, and the newer ones are the older
    newer: dict[str, None]
    older: dict[str, None]


class Origins:
    """The topics that are published at each broker."""

    def __init__(self) -> None:
        self._at: dict[
            str, dict[str, int]
        ] = {}  # topic → broker → its clients that publish on it; 0: it lingers
        self._below: dict[
            str, dict[str, int]
        ] = {}  # scope → broker → its topics that are longer than the scope
        self._lingering: dict[str, Lingering] = {}
        self._ends = Deadlines()  # of those

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    def holds(self, scope: str, broker: str) -> bool:
        """Whether a broker publishes something of a scope."""
        if broker in self._below.get(scope, _NOBODY):
            return True
        return scope == EVERYWHERE or broker in self._at.get(_own_topic(scope), _NOBODY)

    def brokers(self, scope: str) -> Collection[str]:
        """The brokers that publish something of a scope, which is not EVERYWHERE."""
        own, below = self._at.get(_own_topic(scope), _NOBODY), self._below.get(scope, _NOBODY)
        return {**own, **below} if own and below else own or below

    def lingering(self) -> Iterator[tuple[str, Lingering]]:
        """By broker, for a snapshot."""
        yield from self._lingering.items()

    def next_due_us(self) -> int | None:
        """When ``lapse`` has something to do; None if nothing lingers."""
        first = self._ends.first()
        return None if first is None else first[0]

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, topic: str, broker: str) -> list[str]:
        """A client more publishes on a topic at a broker; the scopes that are live there by that."""
        at = self._at.setdefault(topic, {})
        if broker in at:
            if not at[broker]:
                self._revive(topic, broker)
            at[broker] += 1
            return []
        at[broker] = 1
        live = [topic]
        own = f"{topic}/#"
        if broker not in self._below.get(own, _NOBODY):
            live.append(own)
        for scope, parent in _scopes_above(topic):
            below = self._below.setdefault(scope, {})
            if broker not in below and broker not in self._at.get(parent, _NOBODY):
                live.append(scope)
            below[broker] = below.get(broker, 0) + 1
        return live

    def cease(self, topic: str, broker: str, now_us: int) -> None:
        """A client fewer does; after the last one the topic lingers."""
        at = self._at[topic]
        at[broker] -= 1
        if not at[broker]:
            self._linger(topic, broker, now_us)

    def touch(self, topic: str, broker: str, now_us: int) -> list[str]:
        """A client may have published on a topic at a broker, and is elsewhere by now: the topic lingers."""
        if broker in self._at.get(topic, _NOBODY):
            return []
        live = self.publish(topic, broker)
        self.cease(topic, broker, now_us)
        return live

    def lapse(self, now_us: int) -> list[tuple[str, list[str]]]:
        """End what has lingered long enough; brokers, each with the scopes that are not live there any more."""
        ended = []
        while (first := self._ends.first()) is not None and first[0] <= now_us:
            due_us, broker = first
            self._ends.drop(broker)
            known = self._lingering.pop(broker)
            ended.append((broker, [scope for topic in known.older for scope in self._end(topic, broker)]))
            if known.newer:
                self.restore(broker, Lingering(due_us + LINGER_US, {}, known.newer))
        return ended

    def restore(self, broker: str, lingering: Lingering) -> None:
        """These topics of a broker linger, and others as before."""
        for topic in (*lingering.newer, *lingering.older):
            if broker not in self._at.get(topic, _NOBODY):
                self.publish(topic, broker)
                self._at[topic][broker] = 0
        known = self._lingering.get(broker)
        if known is None:
            self._lingering[broker] = lingering
            self._ends.set(broker, lingering.due_us)
        else:
            known.newer.update(lingering.newer)
            known.older.update(lingering.older)

    # ── parts of these ──────────────────────────────────────────────────────────────────────────────────────

    def _linger(self, topic: str, broker: str, now_us: int) -> None:
        known = self._lingering.get(broker)
        if known is None:
            known = self._lingering[broker] = Lingering(now_us + LINGER_US, {}, {})
            self._ends.set(broker, known.due_us)
        known.newer[topic] = None

    def _revive(self, topic: str, broker: str) -> None:
        known = self._lingering[broker]
        known.newer.pop(topic, None)
        known.older.pop(topic, None)
        if not known.newer and not known.older:
            del self._lingering[broker]
            self._ends.drop(broker)

    def _end(self, topic: str, broker: str) -> list[str]:
        """A topic lingers no more; the scopes that are not live any more."""
        at = self._at[topic]
        del at[broker]
        if not at:
            del self._at[topic]
        ended = [topic]
        own = f"{topic}/#"
        if broker not in self._below.get(own, _NOBODY):
            ended.append(own)
        for scope, parent in _scopes_above(topic):
            below = self._below[scope]
            below[broker] -= 1
            if not below[broker]:
                del below[broker]
                if not below:
                    del self._below[scope]
                if broker not in self._at.get(parent, _NOBODY):
                    ended.append(scope)
        return ended


def _own_topic(scope: str) -> str:
    """The topic that a scope has beside those below it: itself, or what a filter of all below it matches as well."""
    return scope.removesuffix("/#")


def _scopes_above(topic: str) -> Iterator[tuple[str, str]]:
    """The scopes that a topic is below, each with the topic that it has beside."""
    if not topic.startswith("$"):
        yield _ALL, ""
    end = topic.find("/")
    while end >= 0:
        yield f"{topic[:end]}/#", topic[:end]
        end = topic.find("/", end + 1)
