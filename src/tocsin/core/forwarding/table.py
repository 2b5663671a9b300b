"""The forwarding table: for a topic, which local clients and which peers get the message.

The table holds two kinds of entries under topic filters: **subscriptions** of local targets (whatever the shell
uses for a connection; here it is only hashed) and **routes** to peer brokers. A trie over the filters' levels
finds those that match a topic in time proportional to the levels and the matching filters, not to all filters.
The audience of a topic is kept until a change can affect it, so that the hot path is one dictionary look-up. Whether a
target may receive a topic at all is asked when the topic is resolved, not for each message.

A **group** is named ``$share/group/filter``: one over all brokers, of whose members one gets each message. Its members
and routes are kept under the filter, apart from the others: where several routes of a filter mean all of them, those of
a group mean one of them (``Share``).

A subscription with a **request** of quality is kept under its filter, by its own name. Its target is apart from the
others in a ``Fanout``: each message is judged for it (``core.quality.judging``). To the network its filter is an
interest like any other.

A **query** is named ``$query/predicate``. Its subscribers get the messages of the streams that satisfy it
(``inquiries``) as if they had subscribed to their topics.

A route to a peer leads there, unless ``lead`` says otherwise: to other peers as well, or instead, or nowhere. So the
routes to a lost broker lead to its backup after one change, however many there are
(``core.forwarding.overlay``). Routes of groups are not led elsewhere.

A route may lead to a tier (``core.tiers``): ``ways`` then says which of its members gets a message. What is sent
straight to a routing broker is kept apart (``…_here``): it is for that broker's own clients, and is not passed on. So a
routing broker may get two copies of a message, one for its clients and one to carry.

Every broker that sends to a broker has to know its filters, and so do the coordinators. So ``Interests`` counts the
different filters of a broker's clients, has the participant told as they come and go, and bounds them.

The shell reads this table directly and makes no effect object for a message; the table never knows a message. With the
answer for a topic it keeps a ``Tally``, in which the shell counts the bytes of messages (``core.forwarding.tallies``).

A broker's routes to tiers are those of the topics of its **streams**. A topic that is none (``registered``), as far as
the coordinator's notices say, takes the routes of UNREGISTERED as well (``core.forwarding.origins``).

Invariants: a trie node exists only while a filter needs it; an ``Audience`` is one object for one tuple of
targets, so that topics with the same subscribers share whatever the shell attaches to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from itertools import count
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from tocsin.core.filters import RequestFilter, SharedFilter, TopicFilter, interest_of
from tocsin.core.forwarding.origins import UNREGISTERED
from tocsin.core.forwarding.tallies import Tallies, Tally, TallySource
from tocsin.core.streams.demand import Demand
from tocsin.core.streams.query_subscriptions import Inquiries
from tocsin.core.tiers.measuring import Carried
from tocsin.core.tiers.slots import is_gate
from tocsin.core.tiers.ways import TierWays
from tocsin.model.network import Route, Scope

CACHE_MAX_TOPICS = 50_000  # resolved topics kept; at about 300 B each, 15 MB

Target = TypeVar("Target", bound=Hashable)
Interest = TopicFilter | SharedFilter | RequestFilter
Leads = Mapping[tuple[Scope, str], tuple[str, ...]]
Peers = tuple[tuple[str, ...], tuple[str, ...]]  # those that may pass a message on, and those that may not
Told = Callable[[tuple[str, ...], tuple[str, ...]], None]  # the filters added and removed


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """The options of a subscription that matter when a message is forwarded."""

    no_local: bool = False  # not what the subscriber published itself
    identifier: int | None = None
    qos: int = 0  # the highest at which it wants messages
    retain_as_published: bool = False
    since: int = 0  # the log's position when it was made: entries up to there are not for it
    request: str = ""  # of quality, in canonical form (``core.quality``); empty: every message is for it


UNBEGUN = 1 << 61  # in the place of a position: the subscription gets history, and begins where that ends

Wanted = tuple[tuple[Target, tuple[Subscription, ...]], ...]


class Audience(Generic[Target]):
    """A group of targets that get the same bytes. ``view`` belongs to the shell."""

    __slots__ = ("__weakref__", "targets", "view")

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self.targets = targets
        self.view: object = None


class Share(Generic[Target]):
    """A group that a topic concerns: one of these gets each message."""

    __slots__ = ("members", "name", "origin", "origin_here", "tally", "transit", "transit_here", "turn")

    def __init__(
        self,
        name: str,
        members: tuple[tuple[Target, Subscription], ...],
        origin: Peers,
        transit: Peers,
        turn: Iterator[int],
        tally: Tally,
    ) -> None:
        self.name = name
        self.members = members  # those here that may receive the topic
        self.origin, self.origin_here = origin  # peers for messages of our own clients
        self.transit, self.transit_here = transit  # peers for messages that came over a link
        self.turn = turn  # of the group, whatever the topic: each message takes the next number
        self.tally = tally  # of messages to members here


class Fanout(Generic[Target]):
    """Where the messages of one topic go. ``view`` belongs to the shell."""

    __slots__ = (
        "audience",
        "carried",
        "identified",
        "no_local",
        "origin",
        "origin_here",
        "requesting",
        "shares",
        "tally",
        "transit",
        "transit_here",
        "view",
    )

    def __init__(
        self,
        audience: Audience[Target],
        identified: tuple[tuple[Target, tuple[int, ...]], ...],
        no_local: frozenset[Target],
        origin: Peers,
        transit: Peers,
        shares: tuple[Share[Target], ...],
        requesting: Wanted[Target],
        tally: Tally,
    ) -> None:
        self.audience = audience  # targets without subscription identifiers
        self.identified = identified  # targets that want theirs named, with these
        self.no_local = no_local  # targets of either kind that do not want their own messages
        self.origin, self.origin_here = origin  # peers for messages of our own clients
        self.transit, self.transit_here = transit  # peers for messages that came over a link
        self.shares = shares  # groups, each of which gets it once more
        self.requesting = requesting  # targets for which each message is judged
        self.tally = tally  # of messages to local targets, without groups
        self.view: object = None
        self.carried: Carried | None = (
            None  # counts messages of others that are passed on; the shell makes it
        )


class _Entries(Generic[Target]):
    """The subscriptions under one name."""

    __slots__ = ("bytes", "name", "routes", "targets")
    in_turns = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0  # of messages, for the count of rates
        self.targets: dict[Target, Subscription] = {}
        self.routes: dict[tuple[Scope, str], None] = {}


class _Group(_Entries[Target]):
    """The members under the name of a group."""

    __slots__ = ("turn",)
    in_turns = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.turn = count()


class _Leaf(_Entries[Target]):
    """The subscriptions under a filter, its groups, and subscriptions with a request, by name."""

    __slots__ = ("groups", "requests")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.groups: dict[str, _Group[Target]] = {}
        self.requests: dict[str, _Entries[Target]] = {}

    @property
    def wanted(self) -> bool:
        """Whether somebody here subscribes to the filter, with a request or without."""
        return bool(self.targets or self.requests)


class _Node(Generic[Target]):
    """One level of the trie."""

    __slots__ = ("children", "leaf", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Target]] = {}
        self.leaf: _Leaf[Target] | None = None  # of the filter that ends here
        self.rest: _Leaf[Target] | None = None  # of the filter that goes on with "#"


class ForwardingTable(Generic[Target]):
    """Finds the local clients and the peers that get a topic's messages.

    Filters and topics are taken as valid; ``wire.mqtt.topics`` checks them at the edge.
    """

    def __init__(
        self,
        permits: Callable[[Target, str], bool] | None = None,
        stirred: Callable[[], None] | None = None,
        registered: Callable[[str], bool] | None = None,
    ) -> None:
        self._permits = permits  # whether a target may receive a topic; None: all may all
        self._registered = registered  # whether routes for messages of a topic are all here; None: never
        self.demand: Demand[Hashable] = Demand(self._wanting, stirred)  # of targets, and of queries by id
        self._root: _Node[Target] = _Node()
        self._leaves: dict[str, _Leaf[Target]] = {}
        self._filters: dict[Target, dict[str, None]] = {}  # target → its filters
        self._resolved: dict[str, Fanout[Target]] = {}
        self._wanted: dict[str, tuple[Wanted[Target], Tally]] = {}  # the same, subscription by subscription
        # Only those that a resolved topic has: the others would hold targets that are gone.
        self._audiences: WeakValueDictionary[tuple[Target, ...], Audience[Target]] = WeakValueDictionary()
        self.inquiries: Inquiries[Target, Subscription] = Inquiries(self._forget_topic, self.demand)
        self._leads: Leads = {}
        self.ways = TierWays()
        self._routing: Collection[str] = frozenset()
        self.tallies = Tallies()

    # ── local subscriptions ─────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, target: Target, name: str, subscription: Subscription) -> bool:
        """Add or replace; True if this is the first local interest in the filter, or in the group."""
        wanted = interest_of(name)
        first = not self.has(name)
        entries = self._grow(wanted)
        if target not in entries.targets:
            self.demand.want(target, (name,))
        entries.targets[target] = subscription
        self._filters.setdefault(target, {})[name] = None
        self._touch(wanted)
        return first

    def unsubscribe(self, target: Target, name: str) -> bool:
        """Remove, if it is there; True if it was the last local interest."""
        wanted = interest_of(name)
        entries = self._entries(wanted)
        if entries is None or entries.targets.pop(target, None) is None:
            return False
        self.demand.release(target, (name,))
        filters = self._filters[target]
        del filters[name]
        if not filters:
            del self._filters[target]
        self._touch(wanted)
        self._prune(wanted)
        return not self.has(name)

    def drop(self, target: Target) -> tuple[str, ...]:
        """Remove all of a target's subscriptions; the filters in which nobody local is interested any more."""
        if target not in self._filters:
            return ()
        return tuple(
            interest_name(each) for each in tuple(self._filters[target]) if self.unsubscribe(target, each)
        )

    def _wanting(self) -> Iterator[tuple[Hashable, str]]:
        """All that is wanted here, and by whom."""
        for target, filters in self._filters.items():
            for name in filters:
                yield target, name
        yield from self.inquiries.wanting()

    def wanting_of(self, name_of: Callable[[Target], str]) -> Iterator[tuple[str, str]]:
        """The targets, by name, with the filters of each and the topics that its queries bring, for looking."""
        for target, filters in self._filters.items():
            yield from ((name_of(target), each) for each in filters)
        for query, targets in self.inquiries.asking():
            yield from ((name_of(each), topic) for each in targets for topic in self.inquiries.topics(query))

    def interests(self) -> Iterator[str]:
        """The filters and groups with local subscriptions."""
        for topic_filter, leaf in self._leaves.items():
            if leaf.wanted:
                yield topic_filter
            yield from (name for name, group in leaf.groups.items() if group.targets)

    def has(self, name: str) -> bool:
        """Whether somebody local has subscribed to a filter or to a group."""
        wanted = interest_of(name)
        leaf = self._leaves.get(wanted.pattern)
        if leaf is None or not isinstance(wanted, SharedFilter):
            return leaf is not None and leaf.wanted
        group = leaf.groups.get(name)
        return group is not None and bool(group.targets)

    def held(self) -> Iterator[tuple[str, int]]:
        """The same, and queries, each with how many are subscribed."""
        names = (interest_name(name) for filters in self._filters.values() for name in filters)
        yield from Counter(names).items()
        yield from self.inquiries.held()

    # ── routes ──────────────────────────────────────────────────────────────────────────────────────────────

    def add_route(self, route: Route) -> None:
        wanted = interest_of(route.filter)
        self._grow(wanted).routes[route.scope, route.peer] = None
        self._touch(wanted)

    def remove_route(self, route: Route) -> None:
        wanted = interest_of(route.filter)
        entries = self._entries(wanted)
        if entries is not None and (route.scope, route.peer) in entries.routes:
            del entries.routes[route.scope, route.peer]
            self._touch(wanted)
            self._prune(wanted)

    def reregister(self, topics: Iterable[str] | None) -> None:
        """Other topics than before are registered: these, or any."""
        if UNREGISTERED not in self._leaves:
            return
        if topics is None:
            self.forget()
            return
        for topic in topics:
            self._forget_topic(topic)

    def lead(self, leads: Leads) -> None:
        """Routes of these scopes to these peers lead to those named; all others straight to their peers."""
        if leads != self._leads:
            self._leads = leads
            self.forget()

    def know_routing(self, brokers: Collection[str]) -> None:
        """These of the peers are routing brokers."""
        if brokers != self._routing:
            self._routing = brokers
            self.forget()

    # ── resolving ───────────────────────────────────────────────────────────────────────────────────────────

    def resolve(self, topic: str) -> Fanout[Target]:
        fanout = self._resolved.get(topic)
        if fanout is None:
            if len(self._resolved) >= CACHE_MAX_TOPICS:
                self.forget()
            fanout = self._resolved[topic] = self._fanout(topic)
        return fanout

    def wanted(self, topic: str) -> Wanted[Target]:
        """The local targets of a topic, each with those of its subscriptions that match."""
        kept = self._wanted.get(topic)
        if kept is None:
            if len(self._wanted) >= CACHE_MAX_TOPICS:
                self.forget()
            leaves = self._matching(topic)
            found = self._by_target(topic, leaves)
            wanted = tuple((target, tuple(each)) for target, each in found.items())
            kept = self._wanted[topic] = wanted, self._tally(topic, leaves)
        return kept[0]

    def count(self, topic: str, size: int) -> None:
        """A message of this size went to those who are ``wanted``."""
        kept = self._wanted.get(topic)
        if kept is not None:
            kept[1].add(size)

    def statistics(self) -> dict[str, int]:
        return {
            "filters": len(self._leaves),
            "subscriptions": sum(len(filters) for filters in self._filters.values())
            + self.inquiries.subscriptions,
            "queries": len(self.inquiries),
            "resolved_topics": len(self._resolved),
        }

    def _fanout(self, topic: str) -> Fanout[Target]:
        leaves = self._matching(topic)
        wanted = self._by_target(topic, leaves)
        routes: dict[tuple[Scope, str], None] = {}
        for leaf in leaves:
            routes.update(leaf.routes)
        unregistered = self._leaves.get(UNREGISTERED)
        if unregistered is not None and not (self._registered and self._registered(topic)):
            routes.update(unregistered.routes)
        plain = []
        identified = []
        no_local = []
        requesting = []
        for target, subscriptions in wanted.items():
            if any(s.request for s in subscriptions):
                requesting.append((target, tuple(subscriptions)))
                continue
            identifiers = tuple(s.identifier for s in subscriptions if s.identifier is not None)
            if identifiers:
                identified.append((target, identifiers))
            else:
                plain.append(target)
            if all(s.no_local for s in subscriptions):
                no_local.append(target)
        targets = tuple(plain)
        audience = self._audiences.get(targets)
        if audience is None:
            self._audiences[targets] = audience = Audience(targets)
        return Fanout(
            audience,
            tuple(identified),
            frozenset(no_local),
            self._led(topic, routes, Scope.ORIGIN),
            self._led(topic, routes, Scope.TRANSIT),
            tuple(self._share(topic, *each) for leaf in leaves for each in leaf.groups.items()),
            tuple(requesting),
            self._tally(topic, leaves),
        )

    def _tally(self, topic: str, leaves: list[_Leaf[Target]]) -> Tally:
        sources: list[TallySource] = [leaf for leaf in leaves if leaf.wanted]
        sources += self.inquiries.of_topic(topic)
        return self.tallies.tally(sources)

    def _share(self, topic: str, name: str, group: _Group[Target]) -> Share[Target]:
        permits = self._permits
        return Share(
            name,
            tuple(each for each in group.targets.items() if permits is None or permits(each[0], topic)),
            self._members(topic, group.routes, Scope.ORIGIN),
            self._members(topic, group.routes, Scope.TRANSIT),
            group.turn,
            self.tallies.tally((group,)),
        )

    def _led(self, topic: str, routes: dict[tuple[Scope, str], None], scope: Scope) -> Peers:
        """The peers that these routes lead to, each once."""
        leads, peers = self._leads, _peers(routes, scope)
        if leads:
            led = (leads.get((scope, peer), (peer,)) for peer in peers)
            peers = tuple(dict.fromkeys(peer for each in led for peer in each))
        return self._apart(topic, peers, self.ways.way)

    def _members(self, topic: str, routes: dict[tuple[Scope, str], None], scope: Scope) -> Peers:
        """The peers with members of a group: one of them gets a message, so that none may stand for two."""
        leads = self._leads
        peers = tuple(peer for peer in _peers(routes, scope) if peer in leads.get((scope, peer), (peer,)))
        return self._apart(topic, peers, self.ways.carrier)

    def _apart(self, topic: str, peers: tuple[str, ...], way: Callable[[str, str], str]) -> Peers:
        """Those that may pass a message on, and routing brokers that may not."""
        routing = self._routing
        over: dict[str, None] = {}
        here = []
        for peer in peers:
            if is_gate(peer):
                over[way(peer, topic)] = None
            elif peer in routing:
                here.append(peer)
            else:
                over[peer] = None
        over.pop("", None)  # a tier of which nothing is known yet
        return tuple(over), tuple(here)

    def _by_target(self, topic: str, leaves: list[_Leaf[Target]]) -> dict[Target, list[Subscription]]:
        found: dict[Target, list[Subscription]] = {}
        for leaf in leaves:
            for target, subscription in leaf.targets.items():
                found.setdefault(target, []).append(subscription)
            for entries in leaf.requests.values():
                for target, subscription in entries.targets.items():
                    found.setdefault(target, []).append(subscription)
        self.inquiries.add_to(found, topic)
        if self._permits is not None:
            return {target: each for target, each in found.items() if self._permits(target, topic)}
        return found

    def _matching(self, topic: str) -> list[_Leaf[Target]]:
        levels = topic.split("/")
        found: list[_Leaf[Target]] = []
        nodes = [self._root]
        for depth, level in enumerate(levels):
            wild = depth > 0 or not topic.startswith("$")  # a leading wildcard does not match "$…"
            below: list[_Node[Target]] = []
            for node in nodes:
                if wild and node.rest is not None:
                    found.append(node.rest)
                if (child := node.children.get(level)) is not None:
                    below.append(child)
                if wild and (child := node.children.get("+")) is not None:
                    below.append(child)
            if not below:
                return found
            nodes = below
        for node in nodes:
            if node.rest is not None:  # "a/#" matches "a" itself
                found.append(node.rest)
            if node.leaf is not None:
                found.append(node.leaf)
        return found

    # ── upkeep ──────────────────────────────────────────────────────────────────────────────────────────────

    def _entries(self, wanted: Interest) -> _Entries[Target] | None:
        leaf = self._leaves.get(wanted.pattern)
        if leaf is None or isinstance(wanted, TopicFilter):
            return leaf
        return (leaf.groups if isinstance(wanted, SharedFilter) else leaf.requests).get(wanted.name)

    def _grow(self, wanted: Interest) -> _Entries[Target]:
        topic_filter = wanted.pattern
        leaf = self._leaves.get(topic_filter)
        if leaf is None:
            leaf = self._leaves[topic_filter] = _Leaf(topic_filter)
            node = self._root
            path, rest = _path(topic_filter)
            for level in path:
                node = node.children.setdefault(level, _Node())
            if rest:
                node.rest = leaf
            else:
                node.leaf = leaf
        if isinstance(wanted, TopicFilter):
            return leaf
        if isinstance(wanted, RequestFilter):
            return leaf.requests.setdefault(wanted.name, _Entries(wanted.name))
        group = leaf.groups.get(wanted.name)
        if group is None:
            group = leaf.groups[wanted.name] = _Group(wanted.name)
        return group

    def _prune(self, wanted: Interest) -> None:
        topic_filter = wanted.pattern
        leaf = self._leaves[topic_filter]
        if isinstance(wanted, SharedFilter):
            group = leaf.groups[wanted.name]
            if not group.targets and not group.routes:
                del leaf.groups[wanted.name]
        elif isinstance(wanted, RequestFilter) and not leaf.requests[wanted.name].targets:
            del leaf.requests[wanted.name]
        if leaf.wanted or leaf.routes or leaf.groups:
            return
        del self._leaves[topic_filter]
        path, rest = _path(topic_filter)
        walked = [self._root]
        for level in path:
            walked.append(walked[-1].children[level])
        if rest:
            walked[-1].rest = None
        else:
            walked[-1].leaf = None
        for level in reversed(path):
            node = walked.pop()
            if node.children or node.leaf is not None or node.rest is not None:
                break
            del walked[-1].children[level]

    def _touch(self, wanted: Interest) -> None:
        """Forget what the filter may have resolved: one topic, or, with a wildcard, all of them."""
        topic_filter = wanted.pattern
        if "+" in topic_filter or "#" in topic_filter or topic_filter == UNREGISTERED:
            self.forget()
        else:
            self._forget_topic(topic_filter)

    def _forget_topic(self, topic: str) -> None:
        self._resolved.pop(topic, None)
        self._wanted.pop(topic, None)

    def forget(self) -> None:
        """Resolve every topic again: for when the rights of targets have changed."""
        self._resolved.clear()
        self._wanted.clear()
        self._audiences.clear()


def interest_name(name: str) -> str:
    """What the network is told of a subscription: its filter, or its group."""
    wanted = interest_of(name)
    return wanted.name if isinstance(wanted, SharedFilter) else wanted.pattern


def _path(topic_filter: str) -> tuple[list[str], bool]:
    levels = topic_filter.split("/")
    if levels[-1] == "#":
        return levels[:-1], True
    return levels, False


def _peers(routes: dict[tuple[Scope, str], None], scope: Scope) -> tuple[str, ...]:
    return tuple(peer for each, peer in routes if each is scope)


class Interests(Generic[Target]):
    """Counts the different filters of a broker's clients, and tells the participant as they come and go."""

    def __init__(self, table: ForwardingTable[Target], told: Told, most: int) -> None:
        self.count = 0
        self.most = most
        self._table = table
        self._told = told

    def subscribe(
        self, target: Target, topic_filter: str, subscription: Subscription, *, bound: bool = True
    ) -> bool:
        """False, and nothing is done, if that would be one filter too many; if it is not ``bound`` it never is."""
        if not self._table.subscribe(target, topic_filter, subscription):
            return True
        if bound and self.count >= self.most:
            self._table.unsubscribe(target, topic_filter)
            return False
        self.count += 1
        self._told((interest_name(topic_filter),), ())
        return True

    def has(self, topic_filter: str) -> bool:
        """Whether a client here has this filter."""
        return self._table.has(topic_filter)

    def unsubscribe(self, target: Target, topic_filter: str) -> None:
        if self._table.unsubscribe(target, topic_filter):
            self._gone((interest_name(topic_filter),))

    def forget(self, target: Target) -> None:
        """The target is gone; so is all that it subscribed to."""
        gone = self._table.drop(target)
        if gone:
            self._gone(gone)

    def _gone(self, filters: tuple[str, ...]) -> None:
        self.count -= len(filters)
        self._told((), filters)
