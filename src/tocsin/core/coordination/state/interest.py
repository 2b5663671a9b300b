"""The brokers' interests, and the routes that follow from them.

What a broker **wants** is its topic filters and the topics of the streams that satisfy its queries. The same text
may be wanted for several reasons: they are counted, and the route plan hears of the first and of the last. So does the
**demand**, which knows for filters that somebody asked about (``$wanted/…``) which brokers want topics of them.

Cost: each change costs the reasons that come or go, and what ``core.forwarding.routes`` says of those that are first or
last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from tocsin.core.forwarding.routes import RouteChange, RoutePlan
from tocsin.core.streams.demand import Demand
from tocsin.core.tiers.slots import is_gate
from tocsin.model.network import BrokerInfo, Route
from tocsin.wire.internal.commands import split
from tocsin.wire.internal.notices import Routes

Key = TypeVar("Key")
_order = attrgetter("scope", "peer", "filter")  # of routes


class Interest:
    """The interests of all brokers. Changes gather until ``settle`` says what they did to routes."""

    def __init__(self) -> None:
        self.plan = RoutePlan()
        self.demand: Demand[str] = Demand(self._held)
        self._reasons: dict[str, Counter[str]] = {}  # broker → what it wants, and for how many reasons
        self._changed: dict[
            str, dict[str, bool]
        ] = {}  # broker → what came (or else went) since the last settle
        self._moved: dict[str, list[RouteChange]] = {}  # broker → how its routes changed since then, in order
        self._readdressed: dict[str, None] = {}  # brokers that are reached elsewhere than before

    @property
    def brokers(self) -> Mapping[str, BrokerInfo]:
        return self.plan.brokers

    def join(self, info: BrokerInfo) -> None:
        """A broker comes, or restarts; it wants nothing yet."""
        before = self.plan.brokers.get(info.id)
        if before is not None and before != info:
            self._readdressed[info.id] = None
        self.demand.release(info.id, self._reasons.get(info.id, ()))
        self._reasons[info.id] = Counter()
        self._changed.pop(info.id, None)
        self._note(self.plan.join(info, ()))
        self._moved.pop(info.id, None)  # it is told everything

    def leave(self, broker: str) -> None:
        self.demand.release(broker, self._reasons.pop(broker))
        self._changed.pop(broker, None)
        self._moved.pop(broker, None)
        self._readdressed.pop(broker, None)
        self._note(self.plan.leave(broker))

    def shun(self, hubs: Iterable[str]) -> None:
        """These routing brokers carry nothing."""
        self._note(self.plan.shun(hubs))

    def publish(self, placed: Iterable[tuple[str, str, int]], now_us: int) -> None:
        """Clients publish on topics at brokers: 1 is one more, -1 one less, 0 perhaps one that is elsewhere now."""
        plan = self.plan
        for topic, broker, by in placed:
            if by > 0:
                self._note(plan.publish(topic, broker))
            elif by < 0:
                plan.origins.cease(topic, broker, now_us)
            else:
                self._note(plan.touch(topic, broker, now_us))

    def lapse(self, now_us: int) -> None:
        """Time passes: routes end of topics that nobody has published on for a while."""
        self._note(self.plan.lapse(now_us))

    def want(self, broker: str, texts: Iterable[str]) -> None:
        """One reason more for each of these."""
        reasons, changed = self._reasons[broker], self._changed.setdefault(broker, {})
        for text in texts:
            reasons[text] += 1
            if reasons[text] == 1:
                _flip(changed, text, True)
                self.demand.want(broker, (text,))

    def release(self, broker: str, texts: Iterable[str]) -> None:
        """One reason less."""
        reasons, changed = self._reasons[broker], self._changed.setdefault(broker, {})
        for text in texts:
            reasons[text] -= 1
            if not reasons[text]:
                del reasons[text]
                _flip(changed, text, False)
                self.demand.release(broker, (text,))

    def settle(self) -> Mapping[str, Sequence[Routes]]:
        """The changes for each broker since the last call, in pieces; brokers share what is alike."""
        changed, self._changed = self._changed, {}
        for broker in sorted(changed):
            came = [text for text, wanted in changed[broker].items() if wanted]
            went = [text for text, wanted in changed[broker].items() if not wanted]
            if came or went:
                self._note(self.plan.change(broker, came, went))
        moved, self._moved = self._moved, {}
        readdressed, self._readdressed = self._readdressed, {}
        told: dict[str, Sequence[Routes]] = {}
        alike: dict[tuple[int, ...], list[Routes]] = {}  # by identity: most brokers share the same changes
        for broker, changes in moved.items():
            key = tuple(map(id, changes))
            routes = alike.get(key)
            if routes is None:
                moves = _sum(changes)
                routes = alike[key] = self._routes(moves) if moves else []
            if routes:
                told[broker] = routes
        for broker, peers in self._senders(readdressed).items():
            moved_here = Routes((), (), tuple(self.plan.brokers[peer] for peer in peers))
            told[broker] = [*told.get(broker, ()), moved_here]
        return told

    def all(self, broker: str) -> list[Routes]:
        """Every route of a broker, in pieces."""
        return self._routes(dict.fromkeys(self.plan.routes(broker), True))

    def _held(self) -> Iterator[tuple[str, str]]:
        """The brokers, and what each wants."""
        return ((broker, text) for broker, reasons in self._reasons.items() for text in reasons)

    def _note(self, changes: Mapping[str, RouteChange]) -> None:
        moved = self._moved
        for broker, change in changes.items():
            if broker in moved:
                moved[broker].append(change)
            else:
                moved[broker] = [change]

    def _routes(self, routes: Mapping[Route, bool]) -> list[Routes]:
        told: list[Routes] = []
        for run in split(sorted(routes, key=_order), _bytes):
            added = tuple(route for route in run if routes[route])
            removed = tuple(route for route in run if not routes[route])
            peers = sorted({route.peer for route in added if not is_gate(route.peer)})
            told.append(Routes(added, removed, tuple(self.plan.brokers[peer] for peer in peers)))
        return told

    def _senders(self, moved: Iterable[str]) -> dict[str, list[str]]:
        """The brokers that send to a broker that moved, and its new address."""
        found: dict[str, list[str]] = {}
        for peer in sorted(moved):
            for broker in self.plan.senders(peer):
                found.setdefault(broker, []).append(peer)
        return found


def _sum(changes: Iterable[RouteChange]) -> dict[Route, bool]:
    """The routes that came (or else went), after all of these."""
    moved: dict[Route, bool] = {}
    for change in changes:
        for route in change.added:
            _flip(moved, route, True)
        for route in change.removed:
            _flip(moved, route, False)
    return moved


def _flip(changes: dict[Key, bool], key: Key, here: bool) -> None:
    """Note that something came or went; what did both is as it was."""
    if changes.get(key) is (not here):
        del changes[key]
    else:
        changes[key] = here


def _bytes(route: Route) -> int:
    return len(route.filter) * 4 + len(route.peer) + 24  # at most four bytes a character, and the framing
