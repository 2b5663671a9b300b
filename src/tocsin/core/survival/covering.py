"""Covering: a local backup has a broker's QoS 0 messages from the moment at which the first client comes to it.

Transitions of ``CoveringMachine``:

    *  ClientReturned, WordHeard, TimerFired

A client of a lost broker is at the backup within milliseconds, long before the loss is declared. The coordinator then
makes a route for each of its filters, which takes the longer the more there are. Until then the backup **covers** for
the broker: it says so to all brokers (``wire.internal.replication``), and these send to it what they would send to the
broker (``core.forwarding.overlay``). That is one word for any number of filters, and needs no coordinator.

It covers while clients of the broker come, until QUIET_US after the last one, and until the coordinator knows
everything that this broker's clients want (``told``). The word is said again every AGAIN_US. The others believe it for
BELIEVED_US, so that the cover of a backup that fails ends too.

Whether the broker is lost is not asked: a broker that is alive goes on getting its messages, and one that is cut off
from the client but not from the others is covered as well.

Invariants: a broker covers only for brokers of which it has a local copy, and only while it must; at most COVERS_MAX
are believed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import ClassVar, Final

from tocsin.core.machine import Effect, Event, OneState, Say, SetTimer, Table, TableMachine, TimerFired
from tocsin.model.network import BrokerInfo
from tocsin.wire.internal.replication import Covering

QUIET_US: Final = 1_000_000  # after the last client: the others have applied what the log says by then
AGAIN_US: Final = 1_000_000
BELIEVED_US: Final = 5_000_000  # several words may be lost
COVERS: Final = "covers for a broker whose clients come here"
COVERS_MAX: Final = 256  # brokers that are covered for at a time


class CoveringTimer(StrEnum):
    """What a broker waits for."""

    AGAIN = "again"  # to say its own words again, or that they are over
    BELIEVED = "believed"  # to stop believing those of others


class ClientReturned(Event, frozen=True, kw_only=True):
    """A client has come that is known from the copy of a broker, and wants something that nobody here wanted."""

    primary: str


class WordHeard(Event, frozen=True, kw_only=True):
    """Another broker covers for a broker, or no longer."""

    word: Covering


class TellAll(Effect, frozen=True, kw_only=True):
    """Tell all brokers."""

    word: Covering


class CoversChanged(Effect, frozen=True, kw_only=True):
    """Brokers that are covered for from now on, and those that are no longer."""

    began: tuple[tuple[str, BrokerInfo], ...] = ()
    over: tuple[str, ...] = ()


class CoveringMachine(TableMachine):
    """The covers of one broker, its own and those of others. ``told``: whether the coordinator knows all it wants."""

    timers = CoveringTimer
    state = OneState.ONLY

    def __init__(self, own: BrokerInfo, told: Callable[[], bool]) -> None:
        self._own = own
        self._told = told
        self._covered: dict[str, int] = {}  # broker that this one covers for → when its last client came
        self._believed: dict[str, tuple[BrokerInfo, int]] = {}  # broker → who covers for it, and until when
        self.covered = 0  # how often this broker began to cover

    @property
    def covers(self) -> tuple[str, ...]:
        """The brokers that this broker covers for."""
        return tuple(self._covered)

    @property
    def believed(self) -> tuple[str, ...]:
        """The brokers that others cover for."""
        return tuple(self._believed)

    # ── its own ─────────────────────────────────────────────────────────────────────────────────────────────

    def _returned(self, event: ClientReturned, now_us: int) -> list[Effect]:
        known = event.primary in self._covered
        self._covered[event.primary] = now_us
        if known:
            return []
        self.covered += 1
        facts = {"broker": event.primary, "by": self._own.id}
        return [
            self._tell(event.primary),
            SetTimer(name=CoveringTimer.AGAIN, delay_us=AGAIN_US),
            Say(text=COVERS, facts=facts),
        ]

    def _tell(self, primary: str, *, over: bool = False) -> Effect:
        return TellAll(word=Covering(primary, self._own, over))

    def _say_again(self, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        told = self._told()
        for primary, last_us in tuple(self._covered.items()):
            over = told and now_us - last_us >= QUIET_US
            if over:
                del self._covered[primary]
            effects.append(self._tell(primary, over=over))
        if self._covered:
            effects.append(SetTimer(name=CoveringTimer.AGAIN, delay_us=AGAIN_US))
        return effects

    # ── those of others ─────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, event: WordHeard, now_us: int) -> list[Effect]:
        primary, by = event.word.primary, event.word.by
        if by.id == self._own.id:
            return []
        known = self._believed.get(primary)
        if event.word.over:
            if known is None or known[0].id != by.id:
                return []
            del self._believed[primary]
            return [CoversChanged(over=(primary,))]
        if known is None and len(self._believed) >= COVERS_MAX:
            return []
        self._believed[primary] = (by, now_us + BELIEVED_US)
        if known is not None and known[0] == by:
            return []  # the timer runs already, and looks again if it comes too early
        return [CoversChanged(began=((primary, by),)), *self._doubt_later(now_us)]

    def _doubt(self, now_us: int) -> list[Effect]:
        over = tuple(primary for primary, (_, until_us) in self._believed.items() if until_us <= now_us)
        for primary in over:
            del self._believed[primary]
        effects: list[Effect] = [CoversChanged(over=over)] if over else []
        return [*effects, *self._doubt_later(now_us)]

    def _doubt_later(self, now_us: int) -> list[Effect]:
        if not self._believed:
            return []
        until_us = min(until_us for _, until_us in self._believed.values())
        return [SetTimer(name=CoveringTimer.BELIEVED, delay_us=max(1, until_us - now_us))]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        match event.name:
            case CoveringTimer.AGAIN:
                return self._say_again(now_us)
            case CoveringTimer.BELIEVED:
                return self._doubt(now_us)
        return []

    table: ClassVar[Table] = {
        ("*", ClientReturned): _returned,
        ("*", WordHeard): _heard,
        ("*", TimerFired): _on_timer,
    }
