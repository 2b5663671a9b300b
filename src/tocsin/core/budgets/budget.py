"""Budgets: how many bytes of a broker's memory clients may make it hold, and how many a message counts.

Everything that a client makes a broker keep has a **kind** (``Kind``, a closed set). Each kind has a bound for the
broker, for each user and for each client; a byte counts at all three. A connection has an **account**:

    broker ── one a kind ──► user ── the accounts of that user ──► client ── one a connection

There are two ways to spend:

- ``take`` is for what can wait or be refused: it takes all or nothing, and answers with a ``Refusal`` that names the
  budget. ``when_room`` calls back once there is room, in the order in which callers asked.
- ``charge`` is for bytes that are here already (they were read from a socket). It may go over the bound by a quarter
  (``SLACK``), and ``over`` says that the client should not be read for now: back-pressure is better than a refusal
  wherever the client can wait. Beyond the slack it refuses, and the connection has to go.

A message may have little in its payload and much in its properties. So whoever counts messages counts its **weight**
(``weight_of``): the bytes that its texts and bytes take in memory, whatever they are for. What the place of the message
adds (objects, entries of queues) the counter adds itself.

Invariants
- At each node and for each kind, what is used is the sum of what the accounts below it hold.
- ``take`` never makes a node exceed its bound, ``charge`` never its bound and the slack.
- ``close`` gives all back that an account holds, once; afterwards the account holds nothing and takes nothing.
- A message that waits for the store outlives its connection. ``retire`` gives back what goes with the connection; the
  rest (``LASTING``) stays counted until each piece of it is given back, and then the account is closed.
- A caller of ``when_room`` is called at most once, and never after its account is retired or closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Literal

import msgspec
from mqtt5 import PublishPacket, Will

from tocsin.config.budgets import Budgets as Settings
from tocsin.model.publication import Publication

SLACK: Final = 4  # what is here already may exceed a bound by this part of it: the reads of one tick
# The cost of one item beside its own bytes (objects, closures, entries of queues): an estimate, rounded up.
OVERHEAD_BYTES: Final = 1_024
PAIR_BYTES: Final = 170  # of a user property, beside its characters: a tuple and two texts

Level = Literal["client", "user", "broker"]
Act = Callable[[], None]


class Kind(IntEnum):
    """A kind of bytes that a budget bounds. The setting of each is ``budgets.NAME_bytes``."""

    OUTBOUND = 0
    COMMITS = 1
    HELD = 2
    PACKETS = 3
    PAGES = 4
    SESSIONS = 5
    GROUPS = 6

    @property
    def setting(self) -> str:
        return f"budgets.{self.name.lower()}_bytes"


# Kinds that may outlive their connection: messages on their way to the log.
LASTING: Final = frozenset({Kind.COMMITS, Kind.HELD})

# For each kind, the words for its content.
WORDS: Final[Mapping[Kind, str]] = {
    Kind.OUTBOUND: "bytes that are not read",
    Kind.COMMITS: "messages that wait for the store",
    Kind.HELD: "messages that wait for their stream to be known",
    Kind.PACKETS: "incomplete packets",
    Kind.PAGES: "pages of the log",
    Kind.SESSIONS: "subscriptions and wills",
    Kind.GROUPS: "messages that wait for a member of their group",
}


class Bounds(msgspec.Struct, frozen=True):
    """The bounds of one kind."""

    client: int
    user: int
    broker: int


class Refusal(msgspec.Struct, frozen=True):
    """Which budget is exhausted."""

    kind: Kind
    level: Level
    limit_bytes: int

    def __str__(self) -> str:
        whose = {"client": "this client's", "user": "this user's", "broker": "the broker's"}[self.level]
        return (
            f"{whose} budget for {WORDS[self.kind]} is exhausted: {self.limit_bytes} bytes "
            f"({self.kind.setting})"
        )


class Figure(msgspec.Struct, frozen=True):
    """The state of one kind's budget at a broker."""

    used: int
    limit: int
    most: int  # ever used at once
    refused: int  # takes and charges that were
    waiting: int  # callers that wait for room


def bounds_of(settings: Settings) -> tuple[Bounds, ...]:
    """The bounds of every kind, in the order of ``Kind``."""
    found: list[Bounds] = []
    for kind in Kind:
        broker: int = getattr(settings, f"{kind.name.lower()}_bytes")
        user = broker * settings.user_percent // 100
        client = min(user, broker * settings.client_percent // 100)
        found.append(Bounds(client, user, broker))
    return tuple(found)


class _Node:
    """The account of a client, a user or the broker: the bytes used of each kind, and the waiters for room."""

    __slots__ = ("accounts", "level", "limits", "used", "waiting")

    def __init__(self, level: Level, limits: Sequence[int]) -> None:
        self.level: Level = level
        self.limits = limits
        self.used = [0] * len(limits)
        self.accounts = 0  # of a user: how many there are
        self.waiting: dict[Kind, dict[_Waiter, None]] = {}  # in order of asking


class _Waiter:
    __slots__ = ("account", "act", "kind", "node", "size")

    def __init__(self, account: Account, node: _Node, kind: Kind, size: int, act: Act) -> None:
        self.account, self.node, self.kind, self.size, self.act = account, node, kind, size, act


class Budget:
    """The budgets of one broker. Make an account for each connection with ``account``."""

    def __init__(self, bounds: Sequence[Bounds]) -> None:
        assert len(bounds) == len(Kind), "every kind has bounds"
        self._client_limits = [each.client for each in bounds]
        self._user_limits = [each.user for each in bounds]
        self.node = _Node("broker", [each.broker for each in bounds])
        self.most = [0] * len(bounds)
        self.refused = [0] * len(bounds)
        self._users: dict[str | None, _Node] = {}

    def account(self, user: str | None) -> Account:
        """For a connection. None: its user is not known yet (``Account.belong``)."""
        return Account(self, _Node("client", self._client_limits), user)

    def figures(self) -> dict[Kind, Figure]:
        return {
            kind: Figure(
                self.node.used[kind],
                self.node.limits[kind],
                self.most[kind],
                self.refused[kind],
                self._waiting(kind),
            )
            for kind in Kind
        }

    def _waiting(self, kind: Kind) -> int:
        return sum(len(node.waiting.get(kind, ())) for node in (self.node, *self._users.values()))

    def join(self, user: str | None) -> _Node:
        node = self._users.get(user)
        if node is None:
            node = self._users[user] = _Node("user", self._user_limits)
        node.accounts += 1
        return node

    def leave(self, user: str | None) -> None:
        node = self._users[user]
        node.accounts -= 1
        if not node.accounts:
            assert not any(node.used), "its last account gave all back"
            del self._users[user]


class Account:
    """One connection's account. Methods that spend cost a few comparisons and additions."""

    __slots__ = ("_broker", "_budget", "_own", "_user", "_user_name", "closed", "retired", "waiters")

    def __init__(self, budget: Budget, own: _Node, user: str | None) -> None:
        self._budget = budget
        self._own = own
        self._user_name = user
        self._user = budget.join(user)
        self._broker = budget.node
        self.closed = False
        self.retired = False
        self.waiters: dict[_Waiter, None] = {}  # those who wait on its behalf, at whichever node

    @property
    def user(self) -> str | None:
        """The owner; None if unknown."""
        return self._user_name

    # ── spending ────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, kind: Kind, size: int) -> Refusal | None:
        """Take so many bytes, all or none."""
        own, user, broker = self._own, self._user, self._broker
        owns, users, brokers = own.used[kind] + size, user.used[kind] + size, broker.used[kind] + size
        if owns > own.limits[kind] or (self.retired and self._is_over(kind)):
            return self._refuse(kind, own)
        if users > user.limits[kind]:
            return self._refuse(kind, user)
        if brokers > broker.limits[kind]:
            return self._refuse(kind, broker)
        own.used[kind], user.used[kind], broker.used[kind] = owns, users, brokers
        if brokers > self._budget.most[kind]:
            self._budget.most[kind] = brokers
        return None

    def charge(self, kind: Kind, size: int) -> Refusal | None:
        """Count bytes that are here already, up to the bounds and their slack."""
        own, user, broker = self._own, self._user, self._broker
        owns, users, brokers = own.used[kind] + size, user.used[kind] + size, broker.used[kind] + size
        if owns > own.limits[kind] + own.limits[kind] // SLACK or (self.retired and self._is_over(kind)):
            return self._refuse(kind, own)
        if users > user.limits[kind] + user.limits[kind] // SLACK:
            return self._refuse(kind, user)
        if brokers > broker.limits[kind] + broker.limits[kind] // SLACK:
            return self._refuse(kind, broker)
        own.used[kind], user.used[kind], broker.used[kind] = owns, users, brokers
        if brokers > self._budget.most[kind]:
            self._budget.most[kind] = brokers
        return None

    def give(self, kind: Kind, size: int) -> None:
        """Give bytes back, and serve the waiters."""
        nodes = (self._own, self._user, self._broker)
        if self.closed or (self.retired and self._is_over(kind)):
            return  # all was given back
        assert size <= self._own.used[kind], "nobody gives back more than it has"
        for node in nodes:
            node.used[kind] -= size
        for node in nodes:
            if node.waiting:
                _wake(node, kind)
        if self.retired and not any(self._own.used):
            self.close()

    def give_all(self, kind: Kind) -> None:
        """Give back all of one kind."""
        if size := self._own.used[kind]:
            self.give(kind, size)

    # ── room ────────────────────────────────────────────────────────────────────────────────────────────────

    def used(self, kind: Kind) -> int:
        """The bytes that this account has."""
        return self._own.used[kind]

    def limit(self, kind: Kind) -> int:
        """The most that this account may have."""
        return self._own.limits[kind]

    def over(self, kind: Kind) -> bool:
        """Whether a bound is reached: callers that can wait should."""
        return self._short(kind, 1) is not None

    def room(self, kind: Kind) -> int:
        """How many bytes may be taken just now."""
        nodes = (self._own, self._user, self._broker)
        return max(0, min(node.limits[kind] - node.used[kind] for node in nodes))

    def when_room(self, kind: Kind, size: int, act: Act) -> None:
        """Call ``act`` once so many bytes can be taken where they cannot now; at once, if they can. It has to take them
        itself, and may find that another budget has no room."""
        short = self._short(kind, size)
        if short is None:
            act()
        elif not self.closed and not self.retired:
            waiter = _Waiter(self, short, kind, size, act)
            self.waiters[waiter] = short.waiting.setdefault(kind, {})[waiter] = None

    # ── upkeep ──────────────────────────────────────────────────────────────────────────────────────────────

    def belong(self, user: str) -> None:
        """It is known now whose account this is: what it has counts there."""
        if user == self._user_name or self.closed:
            return
        before, name = self._user, self._user_name
        self._user_name, self._user = user, self._budget.join(user)
        if not self.waiters and not any(self._own.used):  # as of nearly every client that comes
            self._budget.leave(name)
            return
        for kind in Kind:
            size = self._own.used[kind]
            before.used[kind] -= size
            self._user.used[kind] += size
        waiters = [each for each in self.waiters if each.node is before]
        for waiter in waiters:
            _forget(waiter)
        for kind in Kind:
            _wake(before, kind)
        self._budget.leave(name)
        for waiter in waiters:
            self.when_room(waiter.kind, waiter.size, waiter.act)

    def retire(self) -> None:
        """The connection is over: give back what goes with it, and close when the rest is given back."""
        if self.closed or self.retired:
            return
        for waiter in tuple(self.waiters):
            _forget(waiter)
        if any(self._own.used):
            for kind in Kind:
                if kind not in LASTING:
                    self.give_all(kind)
        self.retired = True
        if not any(self._own.used):
            self.close()

    def close(self) -> None:
        """Give all back. Harmless when repeated."""
        if self.closed:
            return
        self.closed = self.retired = True
        for waiter in tuple(self.waiters):
            _forget(waiter)
        if any(self._own.used):
            for kind in Kind:
                size, self._own.used[kind] = self._own.used[kind], 0
                self._user.used[kind] -= size
                self._broker.used[kind] -= size
            for kind in Kind:
                _wake(self._user, kind)
                _wake(self._broker, kind)
        self._budget.leave(self._user_name)

    def _is_over(self, kind: Kind) -> bool:
        """Whether nothing of this kind can be spent any more, as the connection is over."""
        return self.closed or kind not in LASTING

    def _short(self, kind: Kind, size: int) -> _Node | None:
        """The first node without that room."""
        for node in (self._own, self._user, self._broker):
            if node.used[kind] + size > node.limits[kind]:
                return node
        return None

    def _refuse(self, kind: Kind, node: _Node) -> Refusal:
        self._budget.refused[kind] += 1
        return Refusal(kind, node.level, node.limits[kind])


def _forget(waiter: _Waiter) -> None:
    del waiter.node.waiting[waiter.kind][waiter]
    del waiter.account.waiters[waiter]


def _wake(node: _Node, kind: Kind) -> None:
    """Call those who wait at a node, in order, while there is room for them. A waiter that waits again goes to the
    end.
    """
    queue = node.waiting.get(kind)
    if not queue:
        return
    for _ in range(len(queue)):
        if not queue:
            return  # a waiter gave something back, and others were called for that
        waiter = next(iter(queue))
        if node.used[kind] + waiter.size > node.limits[kind]:
            return
        _forget(waiter)
        waiter.account.when_room(kind, waiter.size, waiter.act)


def weight_of(message: PublishPacket | Will, topic: str | None = None) -> int:
    """Of a packet or a will; ``topic``: the one that an alias stands for."""
    return _weight(
        message.topic if topic is None else topic,
        message.payload,
        message.content_type,
        message.response_topic,
        message.correlation_data,
        message.user_properties,
    )


def weight_of_publication(message: Publication) -> int:
    """Of a message as it is stored, without its stream's metadata."""
    return _weight(
        message.topic,
        message.payload,
        message.content_type,
        message.response_topic,
        message.correlation,
        message.user_properties,
    )


def _weight(
    topic: str,
    payload: bytes | None,
    content_type: str | None,
    response_topic: str | None,
    correlation: bytes | None,
    user_properties: Iterable[tuple[str, str]],
) -> int:
    size = len(topic) + len(payload or b"")
    if content_type:
        size += len(content_type)
    if response_topic:
        size += len(response_topic)
    if correlation:
        size += len(correlation)
    for name, value in user_properties:
        size += PAIR_BYTES + len(name) + len(value)
    return size
