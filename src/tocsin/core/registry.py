"""Who is in the network and what they want: the coordinator's side.

The ``Registry`` keeps the brokers that it has heard from lately, their interests, and the routes that follow
(``core.routing``), and tells each broker its own. A broker's heartbeat says which interests and routes it
has; a number that does not fit is answered with ``Resync`` or with all routes, so that whatever was lost,
repeated or overtaken heals within a heartbeat or two.

States: ``new`` → ``settling`` → ``serving``. A coordinator that starts beside running brokers knows nothing
at first; routes from half the picture would cut working traffic. So while it settles, it tells nothing to
brokers that already have routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tocsin.core.machine import (
    Effect,
    Event,
    Handler,
    Received,
    Say,
    Send,
    SetTimer,
    Started,
    TableMachine,
    TimerFired,
)
from tocsin.core.parts import Assembly, split
from tocsin.core.routing import RouteChange, RoutePlan
from tocsin.model.message import broker_address
from tocsin.model.network import BrokerInfo, Route, RoutesVersion
from tocsin.wire.control import Heartbeat, Interests, Leave, Resync, Routes

CHECK = "check"
SETTLED = "settled"


class _Known:
    """What the registry knows of one broker."""

    def __init__(self, incarnation: int, now_us: int) -> None:
        self.incarnation = incarnation
        self.heard_us = now_us
        self.interests = 0  # the version that the plan has; 0 until the broker has told them
        self.number = 0  # of the routes as last sent to it
        self.sent_us = now_us  # when that was
        self.held = False  # it has routes of an earlier coordinator: tell it nothing before we are settled
        self.assembly: Assembly[Interests] = Assembly()


class Registry(TableMachine):
    """The coordinator's view of the network."""

    def __init__(self, heartbeat_us: int, suspect_after_us: int) -> None:
        self._heartbeat_us = heartbeat_us
        self._suspect_after_us = suspect_after_us
        self._incarnation = 0
        self._known: dict[str, _Known] = {}
        self._number = 0  # of the newest routes sent to anybody, so that nobody ever sees one twice
        self.plan = RoutePlan()

    @property
    def brokers(self) -> Mapping[str, BrokerInfo]:
        """Those that have told their interests and were heard lately."""
        return self.plan.brokers

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self._incarnation = event.incarnation
        self.state = "settling"
        return [
            SetTimer(cause=event.cause, name=SETTLED, delay_us=2 * self._heartbeat_us),
            SetTimer(cause=event.cause, name=CHECK, delay_us=self._suspect_after_us // 4),
        ]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == CHECK:
            return self._check(event.cause, now_us)
        self.state = "serving"
        effects: list[Effect] = []
        for broker, known in self._known.items():
            if known.held and known.interests:
                effects += self._send_all(event.cause, broker, now_us)
            known.held = False
        return effects

    def _check(self, cause: str, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        silent = [b for b, known in self._known.items() if now_us - known.heard_us > self._suspect_after_us]
        for broker in silent:
            effects.append(
                Say(
                    cause=cause,
                    level="warning",
                    text="broker is silent; its routes are withdrawn",
                    facts={"broker": broker, "silent_ms": (now_us - self._known[broker].heard_us) // 1000},
                )
            )
            effects += self._forget(cause, broker, now_us)
        effects.append(SetTimer(cause=cause, name=CHECK, delay_us=self._suspect_after_us // 4))
        return effects

    def _forget(self, cause: str, broker: str, now_us: int) -> list[Effect]:
        del self._known[broker]
        return self._tell(cause, self.plan.leave(broker), now_us)

    # ── what brokers say ────────────────────────────────────────────────────────────────────────────────────

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        message = event.message
        if isinstance(message, Heartbeat):
            return self._on_heartbeat(event.cause, message, now_us)
        if isinstance(message, Interests):
            return self._on_interests(event.cause, message, now_us)
        if isinstance(message, Leave):
            known = self._known.get(message.broker)
            if known is not None and known.incarnation == message.incarnation:
                farewell = Say(cause=event.cause, text="broker left", facts={"broker": message.broker})
                return [farewell, *self._forget(event.cause, message.broker, now_us)]
        return []

    def _meet(self, broker: str, incarnation: int, now_us: int) -> _Known:
        known = self._known.get(broker)
        if known is None or known.incarnation != incarnation:
            known = self._known[broker] = _Known(incarnation, now_us)
        known.heard_us = now_us
        return known

    def _on_heartbeat(self, cause: str, beat: Heartbeat, now_us: int) -> list[Effect]:
        known = self._meet(beat.broker, beat.incarnation, now_us)
        if self.state == "settling" and beat.routes.incarnation not in (0, self._incarnation):
            known.held = True
        if known.interests != beat.interests:
            return [self._ask(cause, beat.broker)]
        behind = beat.routes != RoutesVersion(self._incarnation, known.number)
        in_flight = now_us - known.sent_us < self._heartbeat_us
        if behind and not in_flight and not known.held:
            return self._send_all(cause, beat.broker, now_us)
        return []

    def _ask(self, cause: str, broker: str) -> Effect:
        return Send(cause=cause, to=broker_address(broker), message=Resync(self._incarnation))

    def _on_interests(self, cause: str, message: Interests, now_us: int) -> list[Effect]:
        broker = message.info.id
        known = self._meet(broker, message.incarnation, now_us)
        if message.version <= known.interests:
            return []
        if message.base and message.base != known.interests:
            return [self._ask(cause, broker)]
        parts = known.assembly.add((message.base, message.version), message)
        if parts is None:
            return []
        added = [each for part in parts for each in part.added]
        removed = [each for part in parts for each in part.removed]
        first = known.interests == 0
        known.interests = message.version
        if message.base:
            return self._tell(cause, self.plan.change(broker, added, removed), now_us)
        return self._join(cause, message.info, added, now_us, first=first)

    def _join(
        self, cause: str, info: BrokerInfo, interests: list[str], now_us: int, *, first: bool
    ) -> list[Effect]:
        before = self.plan.brokers.get(info.id)
        changes = self.plan.join(info, interests)
        if before is not None and before != info:  # it moved: every peer needs its new address
            effects: list[Effect] = []
            for broker in self.plan.brokers:
                effects += self._send_all(cause, broker, now_us)
            return effects
        if not first:
            return self._tell(cause, changes, now_us)
        changes.pop(info.id, None)  # it gets all of its routes, not what changed
        facts = {"broker": info.id, "cluster": info.cluster, "role": info.role.value}
        return [
            Say(cause=cause, text="broker joined", facts=facts),
            *self._send_all(cause, info.id, now_us),
            *self._tell(cause, changes, now_us),
        ]

    # ── what brokers are told ───────────────────────────────────────────────────────────────────────────────

    def _tell(self, cause: str, changes: Mapping[str, RouteChange], now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        for broker, change in changes.items():
            known = self._known.get(broker)
            if known is None or known.held or not known.number:
                continue  # it gets everything later: when it has reported, or when we are settled
            base = known.number
            effects += self._send(cause, broker, known, base, change, now_us)
        return effects

    def _send_all(self, cause: str, broker: str, now_us: int) -> list[Effect]:
        known = self._known.get(broker)
        if known is None or (known.held and self.state == "settling"):
            return []
        routes = sorted(self.plan.routes(broker), key=lambda r: (r.scope.value, r.peer, r.filter))
        return self._send(cause, broker, known, 0, RouteChange(tuple(routes), ()), now_us)

    def _send(
        self, cause: str, broker: str, known: _Known, base: int, change: RouteChange, now_us: int
    ) -> list[Effect]:
        self._number += 1
        known.number = self._number
        known.sent_us = now_us
        items = [*((route, True) for route in change.added), *((route, False) for route in change.removed)]
        runs = split(items, lambda item: _route_bytes(item[0]))
        effects: list[Effect] = []
        for part, run in enumerate(runs):
            added = tuple(route for route, wanted in run if wanted)
            peers = dict.fromkeys(route.peer for route in added)
            message = Routes(
                base=base,
                version=RoutesVersion(self._incarnation, known.number),
                peers=tuple(self.plan.brokers[peer] for peer in peers),
                added=added,
                removed=tuple(route for route, wanted in run if not wanted),
                part=part,
                parts=len(runs),
            )
            effects.append(Send(cause=cause, to=broker_address(broker), message=message))
        return effects

    table: ClassVar[dict[tuple[str, type[Event]], Handler]] = {
        ("new", Started): _start,
        ("settling", TimerFired): _on_timer,
        ("settling", Received): _on_message,
        ("serving", TimerFired): _on_timer,
        ("serving", Received): _on_message,
    }


def _route_bytes(route: Route) -> int:
    return len(route.filter) * 4 + len(route.peer) + 24  # at most four bytes a character, and the framing
