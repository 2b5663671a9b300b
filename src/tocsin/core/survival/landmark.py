"""The landmark: which brokers of a cut-off cluster are there, which are gone, and which stand in.

    (Landmark: the monitor of a subnet; here a broker that the subnet's brokers choose when they are cut off)

    joined (a leader hears this broker) ◄──Restored── Severed ──► severed

Transitions of ``Landmark``:

    joined   Severed → severed
             Restored → nothing
    severed  Severed → nothing
             Restored → joined
    *        RosterKnown, BacksKnown, WantsChanged, Received, TimerFired

Brokers that are **severed** gossip over their links (``wire.internal.cluster_messages``), whatever routes there are. A
broker that is not severed answers each message and sends none by itself. From these messages alone every broker
derives, in the same way:

- which brokers it **hears**: those whose messages come (``core.survival.detection``);
- its **group**: the severed brokers that it hears and that hear it;
- the **landmark**: the first of the group by id. Two brokers that hear each other never both believe to be it;
- which brokers are **gone**: the landmark declares a broker gone when neither it nor anybody in its group hears that
  broker. The lost broker's local backup, if it is in the group, stands in. If the landmark hears any broker that is
  not severed, the cluster is not cut off and the leader decides: no broker is gone.

The messages also carry what clients want (``core.survival.cluster_wants``), so that routes inside the cluster follow
without a coordinator.

Nothing that is decided here is durable, and it ends with ``Restored``: places and epochs are the leader's. Routes and
links are kept LINGER_US longer, until the leader's routes have come.

Invariants: a broker that stands in for another is severed, and so is the landmark that said so; after ``Restored`` no
broker stands in; a severed broker alone is its own landmark; a joined broker that knows others or wants links checks
whether these may be forgotten (FORGET), whichever broker's messages it took.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import ClassVar, Final

from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Event,
    Received,
    Say,
    Send,
    SetTimer,
    Table,
    TableMachine,
    TimerFired,
)
from tocsin.core.survival.cluster_wants import Copy, WantsLog
from tocsin.core.survival.detection import Detector, Tuning
from tocsin.core.survival.landmark_signals import (
    BacksKnown,
    LandmarkKnown,
    MeanwhileIn,
    MeanwhileOut,
    NearRoutes,
    NeighboursWanted,
    Restored,
    RosterKnown,
    Severed,
    WantsChanged,
)
from tocsin.model.network import BrokerInfo, Route, Scope, broker_address
from tocsin.wire.internal.cluster_messages import BROKERS_MAX, ClusterMessage

WORD_US: Final = 500_000  # between two words to one broker, as between heartbeats
LINGER_US: Final = 10_000_000  # for the leader's routes to be there, and for a severed broker to speak again
MOST_US: Final = 5_000_000  # no longer silence is borne: as settings have it for leaders


class _Peer:
    """Another broker of the cluster, as its gossip describes it."""

    def __init__(self) -> None:
        self.word: ClusterMessage | None = None  # its last
        self.at_us = 0  # when that came
        self.copy = Copy()
        self.number = 0  # of our last word to it


class LandmarkState(StrEnum):
    """Whether a leader hears this broker."""

    JOINED = "joined"
    SEVERED = "severed"


class LandmarkTimer(StrEnum):
    """The timers of a landmark."""

    WORD = "word"  # the next message to every broker
    LOOK = "look"  # who is not heard any more
    FORGET = "forget"  # what severed brokers said


class Landmark(TableMachine):
    """Decides for one broker what its cluster does while no leader can be reached.

    ``interests`` reads what clients here want. ``run`` is larger than the runs of all earlier processes of this name:
    the start time, for example.
    """

    timers = LandmarkTimer
    state: LandmarkState = LandmarkState.JOINED

    def __init__(
        self, own: str, interests: Callable[[], Collection[str]], series: int = 0, word_us: int = WORD_US
    ) -> None:
        self._own = own
        self._interests = interests
        self._word_us = word_us
        self.roster: dict[str, BrokerInfo] = {}  # without this broker
        self._backs: tuple[str, ...] = ()
        self._peers: dict[str, _Peer] = {}
        self._wants = WantsLog(series)
        self._detector: Detector | None = None  # while severed
        self._since_us = 0  # when it was severed last …
        self._ended_us: int | None = None  # … and when a leader was heard again
        self._linked: tuple[BrokerInfo, ...] = ()  # the brokers to which links are wanted
        self._looking = False  # the FORGET timer runs
        self.landmark = ""
        self.gone: dict[str, str] = {}  # lost broker → the broker that stands in; empty if nobody can

    # ── for looking ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def severed(self) -> bool:
        return self.state is LandmarkState.SEVERED

    def hears(self) -> tuple[str, ...]:
        """The brokers whose gossip comes, in order."""
        detector = self._detector
        return tuple(
            sorted(
                peer
                for peer, known in self._peers.items()
                if known.word is not None
                and peer in self.roster
                and detector is not None
                and known.at_us >= self._since_us
                and not detector.is_suspect(peer)
            )
        )

    def speaks(self, peer: str) -> bool:
        """Whether words are exchanged with that broker: one of the two hears no leader."""
        known = self._peers.get(peer)
        return self.severed or (known is not None and known.word is not None and known.word.severed)

    def stands_in_for(self, broker: str) -> BrokerInfo | None:
        """The other broker that stands in for a lost one, until a leader is heard."""
        return self.roster.get(self.gone.get(broker, ""))

    def group(self) -> tuple[str, ...]:
        """The severed brokers that hear each other, as far as this broker knows, itself among them."""
        found = [self._own]
        for peer in self.hears():
            word = self._peers[peer].word
            if word is not None and word.severed and self._own in word.hears:
                found.append(peer)
        return tuple(sorted(found))

    # ── what is known ───────────────────────────────────────────────────────────────────────────────────────

    def _on_roster(self, event: RosterKnown, now_us: int) -> list[Effect]:
        others = sorted((each for each in event.brokers if each.id != self._own), key=lambda each: each.id)
        self.roster = {each.id: each for each in others[:BROKERS_MAX]}
        removed = [
            route for peer in tuple(self._peers) if peer not in self.roster for route in self._drop(peer)
        ]
        effects = _routes((), removed)
        return [*effects, *self._link(now_us), *self._decide()]

    def _on_backs(self, event: BacksKnown, now_us: int) -> list[Effect]:
        self._backs = tuple(sorted(event.primaries))[:BROKERS_MAX]
        return self._decide()

    def _on_wants(self, event: WantsChanged, now_us: int) -> list[Effect]:
        if not self._spoken_to(now_us):
            return []
        self._wants.change(event.added, event.removed)
        return [self._speak(peer) for peer in self._listeners(now_us)]

    # ── alone, and back ─────────────────────────────────────────────────────────────────────────────────────

    def _sever(self, event: Severed, now_us: int) -> list[Effect]:
        self.state = LandmarkState.SEVERED
        self._since_us = now_us
        self._detector = Detector(
            Tuning(phi=6.0, least_us=2 * self._word_us, most_us=MOST_US, heartbeat_us=self._word_us), now_us
        )
        if not self._spoken_to(now_us, besides=True):
            self._wants.begin(self._wants.series + 1, self._interests())
        return [
            *self._link(now_us),
            *self._look(now_us),
            *self._speak_to_all(now_us),
        ]

    def _restore(self, event: Restored, now_us: int) -> list[Effect]:
        self.state = LandmarkState.JOINED
        self._detector = None
        self._ended_us = now_us
        return [
            *(self._speak(peer) for peer in self._listeners(now_us)),
            CancelTimer(name=LandmarkTimer.WORD),
            CancelTimer(name=LandmarkTimer.LOOK),
            *self._decide(),
            *self._forget_later(),
        ]

    def _forget_later(self) -> list[Effect]:
        if self._looking:
            return []
        self._looking = True
        return [SetTimer(name=LandmarkTimer.FORGET, delay_us=LINGER_US)]

    def _forget(self, now_us: int) -> list[Effect]:
        """Gossip of severed brokers, and this broker's own while it was severed, counts for a while only."""
        self._looking = False
        if self.severed:
            return []
        removed: list[Route] = []
        if not self._lingers(now_us):
            idle = [peer for peer in self._peers if not self._active(peer, now_us)]
            removed = [route for peer in idle for route in self._drop(peer)]
        if not self._spoken_to(now_us):
            self._wants.end()
        later = self._forget_later() if self._peers or self._lingers(now_us) else []
        return [*_routes((), removed), *self._link(now_us), *later]

    def _lingers(self, now_us: int) -> bool:
        """Whether this broker was severed a moment ago."""
        return self._ended_us is not None and now_us - self._ended_us < LINGER_US

    def _drop(self, peer: str) -> list[Route]:
        known = self._peers.pop(peer)
        return [_route(peer, name) for name in known.copy.filters]

    # ── words ───────────────────────────────────────────────────────────────────────────────────────────────

    def _active(self, peer: str, now_us: int) -> bool:
        """Whether that broker is severed, as far as its words say, and speaks."""
        known = self._peers.get(peer)
        return (
            known is not None
            and known.word is not None
            and known.word.severed
            and now_us - known.at_us < LINGER_US
        )

    def _spoken_to(self, now_us: int, *, besides: bool = False) -> bool:
        """Whether any peer is told this broker's wants; ``besides``: even if this broker were not severed."""
        return (self.severed and not besides) or any(self._active(peer, now_us) for peer in self._peers)

    def _listeners(self, now_us: int) -> list[str]:
        return [peer for peer in self.roster if self.severed or self._active(peer, now_us)]

    def _link(self, now_us: int) -> list[Effect]:
        everybody = self.severed or self._lingers(now_us)
        wanted = tuple(info for peer, info in self.roster.items() if everybody or self._active(peer, now_us))
        if wanted == self._linked:
            return []
        self._linked = wanted
        return [NeighboursWanted(peers=wanted)]

    def _speak_to_all(self, now_us: int) -> list[Effect]:
        timer = SetTimer(name=LandmarkTimer.WORD, delay_us=self._word_us)
        return [timer, *(self._speak(peer) for peer in self.roster)]

    def _speak(self, peer: str) -> Effect:
        known = self._peers.setdefault(peer, _Peer())
        known.number += 1
        base, wants = self._wants.since(known.word.known if known.word is not None else (0, 0))
        word = ClusterMessage(
            sender=self._own,
            series=self._wants.series,
            number=known.number,
            severed=self.severed,
            hears=self.hears() if self.severed else (),
            backs=self._backs,
            gone=tuple(sorted(self.gone.items())) if self.landmark == self._own else (),
            known=(known.copy.series, known.copy.version),
            base=base,
            version=self._wants.version,
            wants=wants,
        )
        return Send(to=broker_address(peer), message=word)

    def _on_word(self, event: Received, now_us: int) -> list[Effect]:
        word = event.message
        if not isinstance(word, ClusterMessage) or word.sender not in self.roster:
            return []
        began = self._spoken_to(now_us)
        known = self._peers.setdefault(word.sender, _Peer())
        known.word, known.at_us = word, now_us
        if not began and self._spoken_to(now_us):
            # A process of this name whose clock was ahead may have told it of runs.
            self._wants.begin(max(self._wants.series, word.known[0]) + 1, self._interests())
        if self._detector is not None:
            self._detector.beat(word.sender, word.series, word.number, self._word_us, now_us)
        added, removed = known.copy.take(word.series, word.base, word.wants)
        effects = _routes(
            [_route(word.sender, name) for name in added],
            [_route(word.sender, name) for name in removed],
        )
        return [*effects, *self._answer(known, word, now_us), *self._decide()]

    def _answer(self, known: _Peer, word: ClusterMessage, now_us: int) -> list[Effect]:
        """Answer at once if one side lacks something, or if the sender is severed and this broker is not."""
        effects = self._link(now_us)
        if not self.severed:
            # A broker with a leader also gossips, to peers that it takes for severed: that may be over.
            effects += self._forget_later()
            return [*effects, self._speak(word.sender)] if word.severed else effects
        behind = bool(word.wants) and known.copy.version < word.version
        lacking = word.known[0] == self._wants.series and word.known[1] < self._wants.version
        if (behind or lacking) and word.sender in self._listeners(now_us):
            effects.append(self._speak(word.sender))
        return effects

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, now_us: int) -> list[Effect]:
        detector = self._detector
        if detector is None:
            return []
        said: list[Effect] = [
            Say(
                text="a broker of the cluster is not heard",
                level="warning",
                facts={"broker": each.broker, "silent_ms": each.silent_us // 1_000},
            )
            for each in detector.look(self.roster, now_us)
        ]
        timer = SetTimer(name=LandmarkTimer.LOOK, delay_us=max(0, detector.next_us - now_us))
        return [*said, timer, *self._decide()]

    def _verdict(self) -> tuple[str, dict[str, str]]:
        """The landmark, and the lost brokers."""
        if not self.severed:
            return "", {}
        group = self.group()
        landmark = group[0]
        if landmark != self._own:
            word = self._peers[landmark].word
            said = {} if word is None else dict(word.gone)
            return landmark, {broker: by for broker, by in said.items() if broker != self._own}
        words = {peer: self._peers[peer].word for peer in self.hears()}
        if any(word is not None and not word.severed for word in words.values()):
            return landmark, {}
        return landmark, self._missing(group, words)

    def _missing(self, group: Collection[str], words: Mapping[str, ClusterMessage | None]) -> dict[str, str]:
        assert self._detector is not None, "it is severed"
        heard = {each for peer in group if (word := words.get(peer)) is not None for each in word.hears}
        backs = {peer: word.backs for peer in group if (word := words.get(peer)) is not None}
        backs[self._own] = self._backs
        return {
            broker: next((peer for peer in sorted(backs) if broker in backs[peer]), "")
            for broker in self.roster
            if self._detector.is_suspect(broker) and broker not in heard
        }

    def _decide(self) -> list[Effect]:
        landmark, gone = self._verdict()
        effects: list[Effect] = []
        if landmark != self.landmark:
            effects.append(LandmarkKnown(landmark=landmark))
        before = {broker for broker, by in self.gone.items() if by == self._own}
        after = {broker for broker, by in gone.items() if by == self._own}
        self.landmark, self.gone = landmark, gone
        effects += [MeanwhileOut(broker=each) for each in sorted(before - after)]
        return [*effects, *(MeanwhileIn(broker=each) for each in sorted(after - before))]

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        match event.name:
            case LandmarkTimer.WORD if self.severed:
                return [*self._speak_to_all(now_us), *self._decide()]
            case LandmarkTimer.LOOK if self.severed:
                return self._look(now_us)
            case LandmarkTimer.FORGET:
                return self._forget(now_us)
        return []

    def _ignore(self, event: Event, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        ("*", RosterKnown): _on_roster,
        ("*", BacksKnown): _on_backs,
        ("*", WantsChanged): _on_wants,
        (LandmarkState.JOINED, Severed): _sever,
        (LandmarkState.SEVERED, Severed): _ignore,
        (LandmarkState.SEVERED, Restored): _restore,
        (LandmarkState.JOINED, Restored): _ignore,
        ("*", Received): _on_word,
        ("*", TimerFired): _on_timer,
    }


def _route(peer: str, name: str) -> Route:
    return Route(Scope.ORIGIN, peer, name)


def _routes(added: Collection[Route], removed: Collection[Route]) -> list[Effect]:
    if not added and not removed:
        return []
    return [NearRoutes(added=tuple(added), removed=tuple(removed))]
