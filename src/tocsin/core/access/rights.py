"""The rights of a client to publish, subscribe and receive: rules (``core.access.rules``) applied to topics.

For every action the first rule that fits decides; if none does, the answer is no. Without rules everything is
allowed, and ``open`` says so, for the hot path to skip the question.

    publish     the topic of the message is looked up
    receive     so is that of every message that is to be delivered, with the rules about subscribing
    subscribe   a filter is granted if it can ever bring a message: it has a topic in common with a rule that
                allows, and no earlier denial swallows all that they have in common
    ask         who wants a filter (``$wanted/…``) is told to those who may publish on every topic of it

Delivery is what protects: a filter with wildcards is granted for the sake of what may be received, and the rest of
what it matches is held back message by message. So ``#`` is an honest subscription for everybody, and gets nobody
round a rule.

**Placeholders.** ``%u`` and ``%c`` become text within a level, never a wildcard or a slash: a client called ``#`` gains
nothing. Such a client is turned away as well (``refusal``), since a denial for its name could not be said. A rule that
needs a user name does not apply to a client that has proven none.

**Rights** are the rules that concern one client, ready to be asked. Clients with the same rules share one object and
its memory; all objects together remember at most DECISIONS_MAX answers.

Invariants
- What is remembered is what the rules say: rights never change; changed rules are another ``Access``.
- If ``may_receive(topic)`` and a filter matches the topic, then ``may_subscribe(filter)``.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

import msgspec

from tocsin.core.access.accounts import is_registered
from tocsin.core.access.rule_tables import ANONYMOUS, EVERY_USER, user_name_problem
from tocsin.core.access.rules import CLIENT_PLACEHOLDER, USER_PLACEHOLDER, Rule
from tocsin.wire.mqtt.topics import SHARE_PREFIX, WANTED_PREFIX

DECISIONS_MAX: Final = 200_000  # answers remembered; at about 150 B each, 30 MB
COMPARED_MAX: Final = 20_000  # denials held against one subscription: some 5 ms
_TOPIC_MAX_CHARS: Final = 256  # of a topic whose answer is remembered

# The two wildcards as values that no level of a topic can equal, so that a literal "+" is only a text.
SHARE: Final = SHARE_PREFIX[:-1]  # the first level of a rule about groups
_ONE: Final = 1
_REST: Final = 2
Levels = tuple[str | int, ...]
Clause = tuple[bool, Levels]  # whether it allows, and what


class Who(msgspec.Struct, frozen=True):
    """A client. ``user`` is a name that was proven, by password or certificate; empty if there is none."""

    user: str
    client_id: str


class Rights:
    """The rights of one client, or of several clients with the same rights."""

    __slots__ = ("__weakref__", "_answers", "_joins", "_memory", "_publish", "_receive", "open")

    def __init__(self, publish: tuple[Clause, ...], receive: tuple[Clause, ...], memory: _Memory) -> None:
        self.open = False  # everything is allowed
        self._publish = publish
        self._receive = receive
        self._joins = tuple(clause for clause in receive if clause[1][0] == SHARE)
        self._memory = memory
        # Answers by topic or filter; a filter for subscribing may read like a topic, hence three tables.
        self._answers: tuple[dict[str, bool], dict[str, bool], dict[str, bool]] = ({}, {}, {})

    def may_publish(self, topic: str) -> bool:
        """Whether a message on this topic is taken from this client."""
        answer = self._answers[0].get(topic)
        if answer is None:
            answer = self.open or _first(self._publish, topic)
            self._remember(0, topic, answer)
        return answer

    def may_receive(self, topic: str) -> bool:
        """Whether a message on this topic is delivered to this client."""
        answer = self._answers[1].get(topic)
        if answer is None:
            answer = self.open or _first(self._receive, topic)
            self._remember(1, topic, answer)
        return answer

    def may_subscribe(self, pattern: str) -> bool:
        """Whether a filter, without the ``$share/group/`` before it, can bring this client anything at all."""
        answer = self._answers[2].get(pattern)
        if answer is None:
            answer = self.open or self._grants(pattern)
            self._remember(2, pattern, answer)
        return answer

    def _grants(self, pattern: str) -> bool:
        if pattern.startswith(WANTED_PREFIX):
            return _allows_all(self._publish, _levels(pattern.removeprefix(WANTED_PREFIX)))
        return _reaches(self._receive, _levels(pattern))

    def may_join(self, name: str) -> bool | None:
        """Whether the rules let this client into a group, ``$share/group/filter``; None if they do not speak of it."""
        wanted = _levels(name)
        return next((allow for allow, pattern in self._joins if _meet(pattern, wanted) is not None), None)

    def forget(self) -> int:
        """Drop what is remembered; how much it was."""
        count = sum(map(len, self._answers))
        for answers in self._answers:
            answers.clear()
        return count

    def _remember(self, table: int, text: str, answer: bool) -> None:
        if len(text) <= _TOPIC_MAX_CHARS and not self.open:
            self._memory.make_room()
            self._answers[table][text] = answer


class _Memory:
    """Bounds what all rights remember together."""

    def __init__(self, answers_max: int) -> None:
        self.rights: WeakValueDictionary[object, Rights] = WeakValueDictionary()
        self._answers_max = answers_max
        self._answers = 0  # remembered, or remembered by rights that are gone: never fewer than there are

    def make_room(self) -> None:
        if self._answers >= self._answers_max:
            for rights in list(self.rights.values()):
                rights.forget()
            self._answers = 0
        self._answers += 1


class Access:
    """The rules of a broker; ``Access()`` has none and allows everything.

    Where users register, ``registered`` are the rules about them (``core.access.accounts``): these and no others.
    """

    def __init__(
        self,
        rules: tuple[Rule, ...] | None = None,
        registered: tuple[Rule, ...] | None = None,
        *,
        decisions_max: int = DECISIONS_MAX,
    ) -> None:
        self.open = rules is None
        self._registered = None if registered is None else Access(registered, decisions_max=decisions_max)
        self._rules = tuple(_Clauses(number, rule) for number, rule in enumerate(rules or ()))
        self._memory = _Memory(decisions_max)
        self._names_clients = any(
            CLIENT_PLACEHOLDER in topic for rule in rules or () for topic in rule.topics
        )
        self._everything = Rights((), (), self._memory)
        self._everything.open = True

    def rights(self, who: Who) -> Rights:
        """The rights of this client. Hold on to the answer: rights that nobody holds are forgotten."""
        if self._registered is not None and is_registered(who.user):
            return self._registered.rights(who)
        if self.open:
            return self._everything
        concerning = [(each, each.about(who)) for each in self._rules if _concerns(each.rule, who)]
        # Two clients with the same rules differ only where names were filled in.
        key = tuple((each.number, clauses if each.personal else None) for each, clauses in concerning)
        rights = self._memory.rights.get(key)
        if rights is None:
            publish = [clause for each, clauses in concerning if each.rule.publish for clause in clauses]
            receive = [clause for each, clauses in concerning if each.rule.subscribe for clause in clauses]
            rights = self._memory.rights[key] = Rights(tuple(publish), tuple(receive), self._memory)
        return rights

    def refusal(self, who: Who) -> str | None:
        """Why this client cannot be held to the rules and has to stay out; None if it can."""
        if self._registered is not None and is_registered(who.user):
            return self._registered.refusal(who)
        if who.user and (problem := user_name_problem(who.user)):
            return f"the user's name cannot be used: {problem}"
        client_id = who.client_id
        if self._names_clients and (client_id.startswith("$") or any(each in client_id for each in "+#/")):
            return (
                "the rules of this broker hold for client ids that have no +, # or / and do not begin with $"
            )
        return None

    def may_publish(self, who: Who, topic: str) -> bool:
        return self.rights(who).may_publish(topic)

    def may_receive(self, who: Who, topic: str) -> bool:
        return self.rights(who).may_receive(topic)

    def may_subscribe(self, who: Who, pattern: str) -> bool:
        return self.rights(who).may_subscribe(pattern)


# ── rules and clients ───────────────────────────────────────────────────────────────────────────────────────


def _concerns(rule: Rule, who: Who) -> bool:
    return _names_user(rule.users, who.user) and _names_client(rule.clients, who.client_id)


def _names_user(users: tuple[str, ...] | None, user: str) -> bool:
    if users is None:
        return True
    return user in users or EVERY_USER in users if user else ANONYMOUS in users


def _names_client(clients: tuple[str, ...] | None, client_id: str) -> bool:
    if clients is None:
        return True
    return any(
        client_id.startswith(each[:-1]) if each.endswith("*") else client_id == each for each in clients
    )


class _Clauses:
    """A rule, ready to be applied to a client."""

    __slots__ = ("_clauses", "number", "personal", "rule")

    def __init__(self, number: int, rule: Rule) -> None:
        self.number = number
        self.rule = rule
        self.personal = any(
            placeholder in topic
            for topic in rule.topics
            for placeholder in (USER_PLACEHOLDER, CLIENT_PLACEHOLDER)
        )
        self._clauses = tuple((rule.allow, _rule_levels(topic)) for topic in rule.topics)

    def about(self, who: Who) -> tuple[Clause, ...]:
        """With the client's names filled in; without those that need a name that there is not."""
        if not self.personal:
            return self._clauses
        names = {USER_PLACEHOLDER: who.user, CLIENT_PLACEHOLDER: who.client_id}
        return tuple(
            (allow, tuple(level if isinstance(level, int) else _replaced(level, names) for level in levels))
            for topic, (allow, levels) in zip(self.rule.topics, self._clauses, strict=True)
            if all(name or placeholder not in topic for placeholder, name in names.items())
        )


def _replaced(level: str, names: dict[str, str]) -> str:
    """Both placeholders at once: a name that looks like one stays what it is."""
    if "%" not in level:
        return level
    parts = []
    position = 0
    while position < len(level):
        name = names.get(level[position : position + 2])
        parts.append(level[position] if name is None else name)
        position += 1 if name is None else 2
    return "".join(parts)


# ── clauses and topics ──────────────────────────────────────────────────────────────────────────────────────


def _levels(pattern: str) -> Levels:
    return tuple(_ONE if level == "+" else _REST if level == "#" else level for level in pattern.split("/"))


def _rule_levels(topic: str) -> Levels:
    """The levels of a rule's topic; a group without a filter is that group with any."""
    levels = _levels(topic)
    return (*levels, _REST) if levels[0] == SHARE and len(levels) == 2 else levels


def _first(clauses: tuple[Clause, ...], topic: str) -> bool:
    levels = topic.split("/")
    return next((allow for allow, pattern in clauses if _fits(pattern, levels)), False)


def _fits(pattern: Levels, topic: list[str]) -> bool:
    """Whether a topic is one of the pattern's; as ``wire.mqtt.topics.matches`` has it."""
    if topic[0].startswith("$") and isinstance(pattern[0], int):
        return False
    for index, level in enumerate(pattern):
        if level == _REST:
            return True
        if index == len(topic) or (level != _ONE and level != topic[index]):
            return False
    return len(pattern) == len(topic)


def _reaches(clauses: tuple[Clause, ...], wanted: Levels) -> bool:
    """Whether some of what is wanted is allowed. Denials are held against it one by one, so that several which only
    together swallow it all are not noticed here, and no more than COMPARED_MAX times; delivery notices the rest."""
    denied: list[Levels] = []
    compared = 0
    for allow, pattern in clauses:
        shared = _meet(wanted, pattern)
        if shared is None:
            continue
        if not allow:
            denied.append(pattern)
        elif compared > COMPARED_MAX or not any(_includes(each, shared) for each in denied):
            return True
        else:
            compared += len(denied)
    return False


def _allows_all(clauses: tuple[Clause, ...], wanted: Levels) -> bool:
    """Whether one clause allows all of what is wanted, and none before it denies any of that."""
    for allow, pattern in clauses:
        if allow and _includes(pattern, wanted):
            return True
        if not allow and _meet(wanted, pattern) is not None:
            return False
    return False


def _meet(one: Levels, other: Levels) -> Levels | None:
    """The pattern of the topics that both have; None if there are none."""
    if _servers_own(one) != _servers_own(other) and (isinstance(one[0], int) or isinstance(other[0], int)):
        return None
    shared: list[str | int] = []
    for index in range(max(len(one), len(other)) + 1):
        if one[index : index + 1] == (_REST,):
            return (*shared, *other[index:])
        if other[index : index + 1] == (_REST,):
            return (*shared, *one[index:])
        if index == len(one) or index == len(other):
            break
        here, there = one[index], other[index]
        if here != there and _ONE not in (here, there):
            return None
        shared.append(there if here == _ONE else here)
    return tuple(shared) if len(one) == len(other) else None


def _includes(wide: Levels, narrow: Levels) -> bool:
    """Whether every topic of one pattern is also one of the other."""
    if isinstance(wide[0], int) and _servers_own(narrow):
        return False
    if wide == (_ONE, _REST):
        wide = (_REST,)  # every topic has a first level
    for index, level in enumerate(wide):
        if level == _REST:
            return True
        if index == len(narrow) or narrow[index] == _REST:
            return False
        if level != _ONE and level != narrow[index]:
            return False
    return len(wide) == len(narrow)


def _servers_own(pattern: Levels) -> bool:
    """Topics that begin with $ belong to the server, and no wildcard stands for them."""
    return isinstance(pattern[0], str) and pattern[0].startswith("$")
