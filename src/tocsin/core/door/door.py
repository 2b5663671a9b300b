"""How a client gets to its broker from the coordinator's door: redirected, or passed on through a proxy.

    MQTT 5        first time            redirected: *use another server*, or *server moved* if it is for good
                  comes again           passed on: it did not follow, or could not reach where it was sent
    MQTT 3.1.1    always                passed on: it has no way to be told
    nobody serves                       refused: *server unavailable*

``proxy`` changes that: ``always`` passes everybody on, ``never`` nobody.

A client **comes again** if it knocks within RETURN_US of its last redirect, under the same client id and from the same
address. A client that states its home does follow redirects; it comes again if it says that it could not reach the
server (``stays``), or if the door has redirected it to every broker within TRIED_US. Clients without an id are one
client for each address.

*For good*: a client that states one of the doors' own addresses as its home has no home yet. It gets *server moved*,
and the broker that it is sent to is its home from then on. Other clients keep the door's address; and a home that this
coordinator does not know may be a broker that has not joined yet.

**No client is sent in a circle**: it is not redirected to the same broker twice within TRIED_US, and a client that does
not follow is redirected once (with ``never`` both as far as there are other brokers). A broker that did not answer the
proxy comes last for AVOID_US.

Bounds: VISITS_MAX clients are remembered, the oldest are forgotten first; each costs some 500 bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from tocsin.core.door.callers import Caller
from tocsin.core.door.choice import Candidate, Directory
from tocsin.wire.mqtt.connect import V5

RETURN_US: Final = 300_000_000  # longer than clients wait before they dial again; paho's longest is 120 s
TRIED_US: Final = 10_000_000  # a broker that is lost is missed sooner
AVOID_US: Final = 5_000_000  # same
VISITS_MAX: Final = 50_000
ATTEMPTS_MAX: Final = 3  # brokers that the proxy tries for one client

Proxy = Literal["auto", "always", "never"]


class Redirect(msgspec.Struct, frozen=True):
    """Send the client to a broker. ``moved``: for good."""

    chosen: Candidate
    reference: str
    moved: bool = False


class PassOn(msgspec.Struct, frozen=True):
    """Pass the client's bytes to the first of these brokers that answers."""

    candidates: tuple[Candidate, ...]


class Refuse(msgspec.Struct, frozen=True):
    """There is no broker for the client."""

    reason: str


Answer = Redirect | PassOn | Refuse


class _Visit:
    """What the door remembers of one client."""

    __slots__ = ("last", "redirected")

    def __init__(self) -> None:
        self.last: str | None = None  # the broker that it was sent to, either way
        self.redirected: dict[str, int] = {}  # broker → when the client was redirected there, the latest last

    def is_tried(self, candidate: Candidate, now_us: int) -> bool:
        at_us = self.redirected.get(candidate.broker.id)
        return at_us is not None and now_us - at_us <= TRIED_US


class Door:
    """Decides for every client that knocks at one coordinator's door."""

    def __init__(self, proxy: Proxy, near: str = "", own: Collection[str] = ()) -> None:
        """``near``: the cluster whose brokers come first for clients that name none; ``own``: addresses of doors."""
        self._proxy = proxy
        self._own = frozenset(own)
        self._near = near
        self._turn = 0
        self._visits: dict[tuple[str, str], _Visit] = {}  # by client id and source; the oldest first
        self._avoided: dict[str, int] = {}  # broker → until when

    def answer(self, caller: Caller, network: Directory, now_us: int) -> Answer:
        """How this client gets to its broker."""
        visit = self._visit(caller)
        ordered = self.order(caller, network, now_us)
        if not ordered:
            return Refuse(_nobody(network))
        self._turn += 1
        if (chosen := self._redirected_to(caller, visit, ordered, now_us)) is not None:
            return self._redirect(caller, visit, chosen, now_us)
        if self._proxy == "never":
            return Refuse("this door passes no clients on (door.proxy), and cannot redirect this one")
        visit.last = ordered[0].broker.id
        return PassOn(tuple(ordered[:ATTEMPTS_MAX]))

    def order(self, caller: Caller, network: Directory, now_us: int) -> list[Candidate]:
        """Every broker that would serve this client, best first; those that were silent lately last."""
        visit = self._visits.get(_key(caller))
        last = visit.last if visit is not None else None
        ordered = network.order(caller, last, self._near, self._turn)
        return sorted(ordered, key=lambda each: self._avoided.get(each.broker.id, 0) > now_us)

    def reached(self, caller: Caller, broker: str) -> None:
        """A client was passed on to a broker, which answers."""
        self._visit(caller).last = broker

    def silent(self, broker: str, now_us: int) -> None:
        """A broker did not answer the proxy."""
        self._avoided = {each: until for each, until in self._avoided.items() if until > now_us}
        self._avoided[broker] = now_us + AVOID_US

    def _redirected_to(
        self, caller: Caller, visit: _Visit, ordered: list[Candidate], now_us: int
    ) -> Candidate | None:
        """The broker to redirect a client to; None: it is to be passed on, or cannot be redirected."""
        if caller.version != V5 or self._proxy == "always":
            return None
        reachable = [each for each in ordered if each.address(caller.scheme) is not None]
        untried = [each for each in reachable if not visit.is_tried(each, now_us)]
        if self._proxy == "never":
            return next(iter(untried or reachable), None)
        if caller.stays or (not caller.follows and _is_back(visit, now_us)):
            return None
        return next(iter(untried), None)

    def _redirect(self, caller: Caller, visit: _Visit, chosen: Candidate, now_us: int) -> Redirect:
        name = visit.last = chosen.broker.id
        before = {each: at_us for each, at_us in visit.redirected.items() if now_us - at_us <= TRIED_US}
        before.pop(name, None)
        visit.redirected = {**before, name: now_us}
        address = chosen.address(caller.scheme)
        assert address is not None, "a client is redirected to where there is a way in for it"
        return Redirect(chosen, address, moved=caller.follows and caller.home in self._own)

    def _visit(self, caller: Caller) -> _Visit:
        """The memory of a client, now the newest."""
        key = _key(caller)
        visit = self._visits[key] = self._visits.pop(key) if key in self._visits else _Visit()
        if len(self._visits) > VISITS_MAX:
            del self._visits[next(iter(self._visits))]
        return visit


def _is_back(visit: _Visit, now_us: int) -> bool:
    """Whether a client was redirected lately, and knocks again."""
    return any(now_us - at_us <= RETURN_US for at_us in visit.redirected.values())


def _key(caller: Caller) -> tuple[str, str]:
    return caller.client, caller.source


def _nobody(network: Directory) -> str:
    if not network.living:
        return "this coordinator knows of no broker"
    return "no broker has room for clients"
