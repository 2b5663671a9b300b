"""Over which member of a tier a broker sends now: the carrier of a slot, its deputy, or nobody for a moment.

Transitions of ``TierWays``:

    *  TiersKnown, LinkSeen, Passed, TimerFired

**Failure.** When the link to a carrier breaks, its slots go over their deputies in the same tick, and what waits for
that link goes along (``WaysChanged.left``). When the link is back, and was up for STEADY_US, they go back: by a planned
move, as the deputy is alive.

**Planned moves.** A slot gets another carrier while the old one is alive. A message on the new way could overtake one
on the old way. So the broker

    holds the slot's messages ──► asks the old carrier for a sign that it has read everything (``Fence``)
        ──► the sign comes (``Passed``) ──► waits PAUSE_US, in which the old carrier's messages reach their ends
        ──► sends what was held to the new carrier, and goes on there (``WaysChanged.released``)

A carrier that does not answer within FENCE_US counts as failed; one that the leader has declared lost, within LOST_US:
it may be frozen, and a frozen process keeps its connections. All slots that leave one carrier at a time share a fence.
No message takes two ways, so that none comes twice.

**Topics apart from their slots** move in the same way: out of the slot, from one member to another, and back into the
slot. While its slot is held, a topic neither leaves nor rejoins it, so that its messages stay in one line.

Invariants: a slot is held by one fence at most; a slot that is not held has one way; after a fence has ended, its slots
go where the coordinator says, however often that changed meanwhile.

Cost: news of a tier, or of a link to a member, costs SLOTS for each tier; a message one look-up for each topic that is
resolved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, Final

from tocsin.core.machine import Effect, Event, OneState, SetTimer, Table, TableMachine, TimerFired
from tocsin.core.tiers.slots import NOBODY, SLOTS, Slots, slot_of

PAUSE_US: Final = (
    100_000  # longer than a message is on its way from one broker to another where nothing is queued
)
FENCE_US: Final = 1_000_000
LOST_US: Final = 200_000  # longer than a round trip between most brokers: the leader may be wrong
STEADY_US: Final = 3_000_000  # a link that comes back and breaks again would lose what was written to it

Place = tuple[
    str, int | str
]  # a tier, as routes name it, and one of its slots, or a topic that is apart from its slot


class TierTimer(StrEnum):
    """What a broker waits for."""

    RELEASE = "release"  # the end of a pause, or of the patience with a carrier that does not answer
    STEADY = "steady"  # links that came back to be steady


class TiersKnown(Event, frozen=True, kw_only=True):
    """The tiers and their slots, by the names that routes have for tiers; and the brokers that are declared lost."""

    tiers: Mapping[str, Slots]
    lost: Collection[str] = ()


class LinkSeen(Event, frozen=True, kw_only=True):
    """The link to a broker is up, or is not."""

    peer: str
    up: bool


class Passed(Event, frozen=True, kw_only=True):
    """A carrier has read everything that was sent to it before the fence."""

    ticket: int


class Fence(Effect, frozen=True, kw_only=True):
    """Ask a carrier for a sign, behind everything that was sent to it → ``Passed``."""

    peer: str
    ticket: int


class WaysChanged(Effect, frozen=True, kw_only=True):
    """Topics have other ways. What was held for these slots may go; what waits for links to these brokers goes
    along."""

    released: tuple[Place, ...] = ()
    left: tuple[str, ...] = ()


class _Open:
    """A fence that slots wait behind."""

    __slots__ = ("passed", "peer", "places", "until_us")

    def __init__(self, peer: str, places: list[Place], until_us: int) -> None:
        self.peer = peer  # the carrier that was asked
        self.places = places
        self.until_us = until_us  # to the end of the patience, or of the pause once it has passed
        self.passed = False


class TierWays(TableMachine):
    """The ways of one broker into the clusters that tiers carry for."""

    timers = TierTimer
    state = OneState.ONLY

    def __init__(self, own: str = "") -> None:
        self.moves = 0  # slots that were moved with a pause …
        self.failovers = 0  # … and without one, as their carrier was gone
        self._own = own
        self._tiers: dict[str, Slots] = {}
        self._now: dict[str, list[str]] = {}  # tier → the broker over which each slot goes
        self._apart: dict[Place, str] = {}  # topics apart from their slots → the broker over which each goes
        self._held: dict[Place, int] = {}  # slots that are held, and the fence that they wait behind
        self._fences: dict[int, _Open] = {}
        self._tickets = 0
        self._lost: frozenset[str] = frozenset()  # brokers that the leader has declared lost
        self._down: set[str] = set()  # brokers to which the link is not up
        self._unsteady: dict[
            str, int
        ] = {}  # brokers to which it is up again, and until when that is too fresh

    # ── what the forwarding table asks ──────────────────────────────────────────────────────────────────────

    def way(self, tier: str, topic: str) -> str:
        """The broker to which a message for a tier goes, or the name of what is held (``held_name``)."""
        place = self._place(tier, topic)
        if self._held and place in self._held:
            return held_name(place)
        return self._over(place)

    def carrier(self, tier: str, topic: str) -> str:
        """The same for messages that may overtake others; NOBODY if there is nobody."""
        return self._over(self._place(tier, topic))

    def place(self, tier: str, what: int | str) -> tuple[str, bool]:
        """The broker over which a slot goes, or a topic, and whether it is held."""
        place = (tier, what) if isinstance(what, int) else self._place(tier, what)
        return self._over(place), place in self._held

    def _place(self, tier: str, topic: str) -> Place:
        if self._apart and (tier, topic) in self._apart:
            return tier, topic
        return tier, slot_of(topic)

    @property
    def held(self) -> int:
        """How many slots are held, and topics apart from theirs."""
        return len(self._held)

    def _over(self, place: Place) -> str:
        at = self._at(place)
        return NOBODY if at == self._own else at

    def _at(self, place: Place) -> str:
        tier, what = place
        if isinstance(what, str):
            return self._apart[place]
        now = self._now.get(tier)
        return NOBODY if now is None else now[what]

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────

    def _known(self, event: TiersKnown, now_us: int) -> list[Effect]:
        if event.tiers == self._tiers:
            return []
        self._tiers, self._lost = dict(event.tiers), frozenset(event.lost)
        for tier in [each for each in self._now if each not in self._tiers]:
            del self._now[tier]
        for tier, slots in self._tiers.items():
            self._now.setdefault(tier, [self._best(slots, slot) for slot in range(SLOTS)])
        for fence in self._fences.values():
            if not fence.passed:
                fence.until_us = min(fence.until_us, now_us + self._patience_us(fence.peer))
        gone = tuple(place for place in self._held if place[0] not in self._tiers)
        for place in gone:
            del self._held[place]
        for place in [each for each in self._apart if each[0] not in self._tiers]:
            del self._apart[place]
        return self._look(now_us, gone, changed=True)

    def _seen(self, event: LinkSeen, now_us: int) -> list[Effect]:
        peer = event.peer
        if event.up == (peer not in self._down):
            return []
        effects: list[Effect] = []
        if event.up:
            self._down.discard(peer)
            self._unsteady[peer] = now_us + STEADY_US
            effects.append(SetTimer(name=TierTimer.STEADY, delay_us=STEADY_US))
        else:
            self._down.add(peer)
            self._unsteady.pop(peer, None)
            for fence in self._fences.values():
                if fence.peer == peer and not fence.passed:
                    fence.passed, fence.until_us = True, now_us + self._pause_us()
        return [*effects, *self._look(now_us)]

    def _passed(self, event: Passed, now_us: int) -> list[Effect]:
        fence = self._fences.get(event.ticket)
        if fence is None or fence.passed:
            return []
        fence.passed, fence.until_us = True, now_us + self._pause_us()
        return self._wake(now_us)

    def _fired(self, event: TimerFired, now_us: int) -> list[Effect]:
        if event.name == TierTimer.STEADY:
            self._unsteady = {peer: at_us for peer, at_us in self._unsteady.items() if at_us > now_us}
            rest = min(self._unsteady.values(), default=None)
            effects: list[Effect] = []
            if rest is not None:
                effects.append(SetTimer(name=TierTimer.STEADY, delay_us=rest - now_us))
            return [*effects, *self._look(now_us)]
        if event.name != TierTimer.RELEASE:
            return []
        released: list[Place] = []
        for ticket, fence in list(self._fences.items()):
            if fence.until_us > now_us:
                continue
            if not fence.passed:  # it does not answer: what it had is lost, or has been passed on by now
                fence.passed = True
            del self._fences[ticket]
            for place in fence.places:
                if self._held.get(place) == ticket:
                    after = self._rejoins_held(place)
                    if after is not None:  # behind what its slot holds
                        self._held[place] = after
                        self._fences[after].places.append(place)
                        continue
                    del self._held[place]
                    self._settle(place)
                    released.append(place)
        return self._look(now_us, tuple(released))

    def _patience_us(self, carrier: str) -> int:
        """How long to wait for the answer of a carrier."""
        return LOST_US if carrier in self._lost else FENCE_US

    def _pause_us(self) -> int:
        """How long messages wait once the old carrier has read everything."""
        return PAUSE_US

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, now_us: int, released: tuple[Place, ...] = (), *, changed: bool = False) -> list[Effect]:
        """Move the slots that are not where they should be, and topics apart from theirs."""
        self._part()
        leaving: dict[str, list[Place]] = {}
        left: dict[str, None] = {}
        for place in self._misplaced():
            at = self._at(place)
            if at != NOBODY and at not in self._down:
                leaving.setdefault(at, []).append(place)
                continue
            self._settle(place)
            self.failovers += at != NOBODY
            left[at] = None
        fences = []
        for peer, places in leaving.items():
            self._tickets += 1
            self._fences[self._tickets] = _Open(peer, places, now_us + self._patience_us(peer))
            self._held.update(dict.fromkeys(places, self._tickets))
            self.moves += len(places)
            fences.append(Fence(peer=peer, ticket=self._tickets))
        if not (changed or released or left or leaving):
            return self._wake(now_us)
        gone = tuple(each for each in left if each != NOBODY)
        return [WaysChanged(released=released, left=gone), *fences, *self._wake(now_us)]

    def _misplaced(self) -> Iterator[Place]:
        for tier, slots in self._tiers.items():
            now = self._now[tier]
            for slot in range(SLOTS):
                if now[slot] != self._best(slots, slot) and (tier, slot) not in self._held:
                    yield tier, slot
        for place, at in list(self._apart.items()):
            if place not in self._held and self._rejoins_held(place) is None and at != self._aim(place):
                yield place

    def _part(self) -> None:
        """Have topics be apart that are to be, and have those rejoin their slots that go the same way as these."""
        for tier, slots in self._tiers.items():
            for topic in slots.apart:
                if (tier, topic) not in self._apart and (tier, slot_of(topic)) not in self._held:
                    self._apart[tier, topic] = self._now[tier][slot_of(topic)]
        for place in list(self._apart):
            if (
                place not in self._held
                and not self._is_apart(place)
                and self._rejoins_held(place) is None
                and self._apart[place] == self._aim(place)
            ):
                del self._apart[place]

    def _is_apart(self, place: Place) -> bool:
        """Whether a topic is to be apart from its slot."""
        return place[1] in self._tiers[place[0]].apart

    def _rejoins_held(self, place: Place) -> int | None:
        """The fence of its slot, if a topic is to rejoin that and has to wait."""
        tier, topic = place
        if not isinstance(topic, str) or self._is_apart(place):
            return None
        return self._held.get((tier, slot_of(topic)))

    def _aim(self, place: Place) -> str:
        """Where a slot should go, or a topic that is or was apart."""
        tier, what = place
        slots = self._tiers[tier]
        if isinstance(what, int):
            return self._best(slots, what)
        if not self._is_apart(place):
            return self._now[tier][slot_of(what)]
        known = [*slots.order(what, self._own), self._best(slots, slot_of(what))]
        steady = (each for each in known if each not in self._down and each not in self._unsteady)
        there = (each for each in known if each not in self._down)
        return next(steady, next(there, known[0]))

    def _settle(self, place: Place) -> None:
        tier, what = place
        if isinstance(what, int):
            self._now[tier][what] = self._aim(place)
        elif self._is_apart(place):
            self._apart[place] = self._aim(place)
        else:
            del self._apart[place]

    def _best(self, slots: Slots, slot: int) -> str:
        """The carrier, if it is reached; else the deputy, if that is."""
        carrier, deputy = slots.carriers[slot], slots.deputies[slot]
        down, unsteady = self._down, self._unsteady
        if carrier not in down and (not unsteady or carrier not in unsteady):
            return carrier
        if deputy != NOBODY and deputy not in down and deputy not in unsteady:
            return deputy
        return deputy if deputy != NOBODY and carrier in down and deputy not in down else carrier

    def _wake(self, now_us: int) -> list[Effect]:
        if not self._fences:
            return []
        due_us = min(fence.until_us for fence in self._fences.values())
        return [SetTimer(name=TierTimer.RELEASE, delay_us=max(0, due_us - now_us))]

    table: ClassVar[Table] = {
        ("*", TiersKnown): _known,
        ("*", LinkSeen): _seen,
        ("*", Passed): _passed,
        ("*", TimerFired): _fired,
    }


def held_name(place: Place) -> str:
    """The name under which messages of a slot or a topic are held; it is no broker's."""
    tier, what = place
    return f"{tier}#{what}" if isinstance(what, int) else f"{tier}#/{what}"
