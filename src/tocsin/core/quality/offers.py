"""What the streams offer that requests at one broker are about, and who was told of what does not match.

A request has a **scope**: the topic filter or the query of its subscription. For each scope with a request that needs
it, the coordinator is asked for the streams in it that offer something (``query_for``). The answer, and each change of
it, is the same as a listing's. A stream that is not among them offers nothing, and so what follows from its messages.

**Told.** A pair of a subscription and a stream that do not match is news once, for each policy. What was told is
remembered for TOLD_MAX pairs; the oldest is forgotten first, and would be told again.

Invariant: a scope is asked about while somebody has a request with it; ``of`` is what the newest answer says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

from tocsin.core.quality.judging import OFFER, offer_in
from tocsin.core.quality.matching import NOTHING, Mismatch, meets, mismatch
from tocsin.core.quality.texts import offer_said, request_of
from tocsin.model.quality import Request
from tocsin.model.stream import Metadata
from tocsin.query import DEFAULT, Query, decode_filter, parse
from tocsin.wire.mqtt.topics import QUERY_PREFIX, matches

Reason = TypeVar("Reason")

TOLD_MAX: Final = 10_000
STATED: Final = (
    1  # the QoS at which a stream's offer is compared before there is a message: all that it may offer
)


def needs_offers(request: Request) -> bool:
    """Whether it depends on what a stream offers which messages are for a subscription."""
    policies = (
        request.reliability,
        request.durability,
        request.deadline_us,
        request.budget_us,
        request.liveliness,
        request.lease_us,
        request.ownership,
    )
    return bool(request.partition) or any(policy is not None for policy in policies)


class Scoped(Protocol):
    """The filter of a subscription that may have a request."""

    @property
    def name(self) -> str: ...


def scope_of(wanted: Scoped) -> str:
    """The scope of its request: a query by its name, and a filter of topics without one."""
    pattern: str = getattr(wanted, "pattern", wanted.name)
    return pattern


def query_for(scope: str) -> Query:
    """The streams of a scope that offer something; of a filter also others, whose topics look alike. Raises
    ``QueryInvalid`` if a query has no room for one condition more.
    """
    offering = f"EXISTS `{OFFER}`"
    if scope.startswith(QUERY_PREFIX):
        return parse(f"({decode_filter(scope.removeprefix(QUERY_PREFIX))}) AND {offering}")
    if scope == "#" or len(scope) > DEFAULT.string_length // 2:
        return parse(offering)
    escaped = scope.replace("\\", "\\\\").replace("'", "\\'")
    if "+" not in scope and "#" not in scope:
        return parse(f"{offering} AND topic = '{escaped}'")
    liked = escaped.replace("%", "\\%").replace("_", "\\_").replace("+", "%")
    liked = liked.removesuffix("/#") + "%" if liked.endswith("/#") else liked
    return parse(f"{offering} AND topic LIKE '{liked}'")


class Offers(Generic[Reason]):
    """The offers of streams, by topic. A reason is a subscription with a request."""

    __slots__ = ("_asked", "_sets", "_told")

    def __init__(self) -> None:
        self._asked: dict[str, dict[Reason, None]] = {}  # by scope
        self._sets: dict[str, dict[str, str]] = {}  # scope → topic → offer
        self._told: dict[tuple[str, str, str, str], None] = {}

    def __len__(self) -> int:
        return len(self._asked)

    # ── what is asked ───────────────────────────────────────────────────────────────────────────────────────

    def ask(self, scope: str, reason: Reason) -> bool:
        """One request more is about this scope; whether it is the first."""
        first = scope not in self._asked
        self._asked.setdefault(scope, {})[reason] = None
        return first

    def withdraw(self, scope: str, reason: Reason) -> bool:
        """Whether nobody asks about this scope any more."""
        reasons = self._asked.get(scope, {})
        reasons.pop(reason, None)
        if reasons or scope not in self._asked:
            return False
        del self._asked[scope]
        self._sets.pop(scope, None)
        return True

    def reasons(self, scope: str) -> tuple[Reason, ...]:
        return tuple(self._asked.get(scope, ()))

    # ── what is answered ────────────────────────────────────────────────────────────────────────────────────

    def know(self, scope: str, streams: Mapping[str, Metadata]) -> None:
        """All that there are in a scope."""
        if scope in self._asked:
            offers = {topic: offer_in(said) for topic, said in streams.items() if _within(scope, topic)}
            self._sets[scope] = offers

    def say(self, scope: str, topic: str, metadata: Metadata) -> None:
        """A stream offers something now, or something else."""
        if scope in self._sets and _within(scope, topic):
            self._sets[scope][topic] = offer_in(metadata)

    def leave(self, scope: str, topic: str) -> None:
        """A stream is gone, or offers nothing any more."""
        self._sets.get(scope, {}).pop(topic, None)

    def is_known(self, scope: str) -> bool:
        return scope in self._sets

    def of(self, topic: str) -> str:
        """What a stream offers; empty: nothing, as far as it is known."""
        for offers in self._sets.values():
            if topic in offers:
                return offers[topic]
        return ""

    # ── what does not match ─────────────────────────────────────────────────────────────────────────────────

    def topics(self, scope: str) -> Iterable[str]:
        """The streams in a scope that offer something."""
        return tuple(self._sets.get(scope, ()))

    def compared(
        self, scope: str, request: str, topics: Iterable[str]
    ) -> Iterator[tuple[str, Mismatch | None]]:
        """Those of these streams of a scope that a subscription meets, each with why it does not match, whatever is
        published."""
        asked, offers = request_of(request), self._sets.get(scope, {})
        for topic in topics:
            if (said := offers.get(topic)) is None:
                continue
            offer = offer_said(said) or NOTHING
            if meets(offer, asked):
                yield topic, mismatch(offer, asked, STATED)

    def is_matching(self, scope: str, request: str, topic: str) -> bool | None:
        """Whether a subscription matches a stream, whatever is published; None: no such stream offers anything."""
        said, asked = self._sets.get(scope, {}).get(topic), request_of(request)
        if said is None:
            return None
        offer = offer_said(said) or NOTHING
        return meets(offer, asked) and mismatch(offer, asked, STATED) is None

    def is_news(self, client: str, request: str, topic: str, found: Mismatch) -> bool:
        """Whether nobody was told of this before."""
        key = (client, request, topic, found.policy)
        if key in self._told:
            return False
        if len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[key] = None
        return True

    def forget(self, clients: Iterable[str]) -> None:
        """These clients are gone; if they come back they are told again."""
        gone = set(clients)
        for key in [key for key in self._told if key[0] in gone]:
            del self._told[key]


def _within(scope: str, topic: str) -> bool:
    return scope.startswith(QUERY_PREFIX) or matches(scope, topic)
