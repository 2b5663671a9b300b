"""A leader's watch over its brokers: whose heartbeats it hears, how it answers, and which it believes lost.

A beat is answered with a pulse, at once if there is something new in it, and otherwise every PULSE_US; more often if
the detector may suspect the broker after a shorter silence. The leader does not repeat what a broker knows already (its
heartbeat says so), so that both cost a few dozen bytes.

A broker whose beat is late is asked for one by a pulse that answers no beat. A broker whose links were closed is asked
at once (``AskPresence``): there the pulse goes to it as a request. It answers with a beat. The bus knows whether there
is anybody to ask (``Presence``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tocsin.core.coordination.leader.balancing import Balance, DrainOrders
from tocsin.core.coordination.names import Options
from tocsin.core.coordination.state.state import State
from tocsin.core.machine import Effect, Event, Say, Send
from tocsin.core.survival.detection import Detector, Suspicion
from tocsin.core.survival.refuges import FULL, STEP, RefugePlan
from tocsin.model.network import BrokerInfo, Role, broker_address
from tocsin.wire.internal.commands import Lost
from tocsin.wire.internal.control import Beat, Links, Pulse

RANK_LEAST: Final = 100  # brokers, from which on there is a pause …
RANK_US: Final = 100_000  # … between two rankings while brokers come and go: each costs all brokers
REFRESH_US: Final = 450_000  # between two rankings while nobody does
# Between two answers to one broker that tell nothing new; a little less than the second that it expects.
PULSE_US: Final = 900_000
HALF_FULL: Final = FULL // 2  # from which on a broker's guests go to a standby, whatever the settings say
ANSWERS: Final = (
    3  # … of which so many fall into the shortest silence that is suspicious: two may be lost or late
)


class AskPresence(Effect, frozen=True, kw_only=True):
    """Ask a broker for a sign of life, as a request on the bus → ``Presence``."""

    broker: str
    message: Pulse


class Presence(Event, frozen=True, kw_only=True):
    """Whether the bus has found somebody to ask."""

    broker: str
    absent: bool  # there is nobody; no answer in time is not that


class Attention:
    """Watches the heartbeats of all brokers for one leader, and answers them."""

    detecting: type[Detector] = Detector  # so that a variant can be tried

    def __init__(
        self, state: State, options: Options, now_us: int, orders: DrainOrders | None = None
    ) -> None:
        self.balance = Balance(orders or DrainOrders(), options.balance)
        self.detector = self.detecting(options.tuning, now_us)
        self.roles: Mapping[str, Role] = {}  # brokers that are told to start again → their next role
        self._state = state
        self._guests_stay = options.guests_stay
        self._loads: dict[str, int] = {}
        self._refuges = RefugePlan()
        # Broker → when it had its last pulse, and the number of its last notice then.
        self._told: dict[str, tuple[int, int]] = {}
        for broker in state.members:
            self.detector.sign(broker, now_us)
        self._ranked_us = now_us
        self.rank(now_us)

    def changed(self, now_us: int) -> None:
        """Brokers came or went. In a large network the order waits for the next look while many do."""
        if len(self._state.members) < RANK_LEAST or now_us - self._ranked_us >= RANK_US:
            self.rank(now_us)

    def rank(self, now_us: int) -> None:
        """Brokers came or went, or are fuller or emptier: who can take clients of others?"""
        self._ranked_us = now_us
        infos = [member.info for member in self._state.members.values()]
        drained = self.balance.drained
        self._refuges.rank([each for each in infos if each.id not in drained], self._loads)
        self.balance.look(infos, self._loads, now_us)

    @property
    def heard_loads(self) -> Mapping[str, int]:
        """How full brokers are, in thousandths, as they have said."""
        return self._loads

    def refresh(self, now_us: int) -> None:
        """Time has passed: brokers are fuller or emptier than at the last order, which may be some moments old."""
        if now_us - self._ranked_us >= REFRESH_US:
            self.rank(now_us)

    def loads(self) -> dict[str, int]:
        """How full brokers are, in thousandths and in steps, lest each client changes it; those that are empty not.
        A broker that is drained counts as full: nobody is to be sent there."""
        stepped = {
            broker: load // STEP * STEP if load < FULL else FULL for broker, load in self._loads.items()
        }
        stepped |= dict.fromkeys(self.balance.drained, FULL)
        return {broker: load for broker, load in sorted(stepped.items()) if load}

    # ── what is heard ───────────────────────────────────────────────────────────────────────────────────────

    def sign(self, broker: str, now_us: int) -> None:
        """A broker said something, other than that it is there."""
        self.detector.sign(broker, now_us)

    def beat(self, beat: Beat, now_us: int) -> list[Effect]:
        """A member's beat; its answer."""
        broker = beat.broker
        self.detector.beat(broker, beat.incarnation, beat.number, beat.interval_ms * 1_000, now_us)
        self._loads[broker] = beat.load
        self.balance.heard(beat, now_us)
        member = self._state.members[broker]
        refuges = self._refuges.news(member.info, beat.refuges)
        homes = self._homes(beat) if beat.homes else None
        told_us, noticed = self._told.get(broker, (0, -1))
        pause_us = min(PULSE_US, self.detector.least_patience_us(broker) // ANSWERS)
        moves = self.balance.moves(member.info, self._refuges, now_us)
        role = self.roles.get(broker)
        news = (refuges, homes, moves, role, noticed) != (None, None, None, None, member.noticed)
        if not news and 0 <= now_us - told_us < pause_us:
            return []
        self._told[broker] = (now_us, member.noticed)
        state, number = self._state, max(0, beat.number)
        pulse = Pulse(
            state.epoch, member.incarnation, member.noticed, refuges, homes, number, state.level, moves, role
        )
        return [Send(to=broker_address(broker), message=pulse)]

    def _homes(self, beat: Beat) -> tuple[tuple[str, BrokerInfo], ...]:
        """Of the homes of a broker's guests those to which they go now. Where guests stay, a standby is none, unless
        the broker needs the room."""
        found = self._refuges.homes(beat.homes)
        if not self._guests_stay or beat.load >= HALF_FULL:
            return found
        return tuple((name, info) for name, info in found if not info.certified)

    def greet(self) -> list[Effect]:
        """Tell all brokers who leads; they answer with a beat."""
        return [
            Send(to=broker_address(broker), message=self._greeting(broker)) for broker in self._state.members
        ]

    def _greeting(self, broker: str) -> Pulse:
        """A pulse that answers no beat: whoever gets it beats at once."""
        member = self._state.members[broker]
        return Pulse(self._state.epoch, member.incarnation, member.noticed, level=self._state.level)

    def closed(self, links: Links, now_us: int) -> list[Effect]:
        """A member tells of links that its peers have closed, or refuse."""
        told = [*((peer, False) for peer in links.closed), *((peer, True) for peer in links.refused)]
        asked = [
            peer
            for peer, refused in told
            if peer in self._state.members
            and peer != links.broker
            and self.detector.closed(peer, links.broker, refused=refused, now_us=now_us)
        ]
        return self._ask(asked)

    def _ask(self, brokers: Iterable[str]) -> list[Effect]:
        members = self._state.members
        return [AskPresence(broker=each, message=self._greeting(each)) for each in brokers if each in members]

    def ask_again(self, now_us: int) -> list[Effect]:
        """Ask the brokers whose links were closed, and that the bus does not find."""
        return self._ask(self.detector.hints.due(now_us))

    def answered(self, presence: Presence, now_us: int) -> tuple[Lost, Effect] | None:
        """The bus has found a broker, or not; the loss, if that makes one."""
        found = self.detector.answered(presence.broker, absent=presence.absent, now_us=now_us)
        if found is None or found.broker not in self._state.members:
            return None
        return Lost(found.broker, self._state.members[found.broker].incarnation), _vanished(found)

    def would_miss_us(self, broker: str, now_us: int) -> int:
        """When silence alone would make this broker suspect, or would have."""
        return self.detector.silent_until_us(broker, now_us)

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────

    def look(self, now_us: int) -> list[tuple[Lost, Effect]]:
        """The brokers that are believed to be lost from now on, and what there is to say of each."""
        members = self._state.members
        found = self.detector.look(members, now_us)
        if len(self._told) + len(self._loads) > 2 * len(members):
            self._told = {broker: told for broker, told in self._told.items() if broker in members}
            self._loads = {broker: load for broker, load in self._loads.items() if broker in members}
        return [(Lost(each.broker, members[each.broker].incarnation), _silent(each)) for each in found]

    def questions(self) -> list[Effect]:
        """Ask the brokers whose beats are late, as the last look found; each answers with a beat."""
        members = self._state.members
        return [
            Send(to=broker_address(each), message=self._greeting(each))
            for each in self.detector.questions
            if each in members
        ]

    def believes(self, lost: Lost) -> bool:
        """Whether that broker has still not been heard."""
        return self.detector.is_suspect(lost.broker)

    def delay_us(self, now_us: int) -> int:
        """When to look again."""
        next_us, ask_us = self.detector.next_us, self.detector.hints.next_us
        return max(0, (next_us if ask_us is None else min(next_us, ask_us)) - now_us)


def _vanished(suspicion: Suspicion) -> Effect:
    return Say(
        level="warning",
        text="broker has closed its links, and the bus does not find it; its routes are withdrawn",
        facts={
            "broker": suspicion.broker,
            "silent_ms": suspicion.silent_us // 1_000,
            "witnesses": list(suspicion.witnesses),
        },
    )


def _silent(suspicion: Suspicion) -> Effect:
    return Say(
        level="warning",
        text="broker is silent; its routes are withdrawn",
        facts={
            "broker": suspicion.broker,
            "silent_ms": suspicion.silent_us // 1_000,
            "patience_ms": suspicion.patience_us // 1_000,
        },
    )
