"""A broker's holdings beside a store that fails in every way, restarts, and sessions that come, go and move: what is
promised stays."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.channels.test_machine import FIVE, FIVE_TOO, K5, K6, NEAR, SIX, UNAVAILABLE, UNKNOWN
from tocsin.core.channels.machine import ChannelHoldings
from tocsin.core.channels.signals import (
    CellFound,
    Defined,
    Doubted,
    Held,
    HoldingsTimer,
    Left,
    LookAt,
    Looked,
    Scan,
    Scanned,
    SessionFound,
    Unwanted,
    Wanted,
)
from tocsin.core.machine import DeleteKey, Event, PutKey, SetTimer, Started, Stored, StoreFailed, TimerFired
from tocsin.errors import Conflict

NAMES = (FIVE, FIVE_TOO, SIX)
MEANT = {FIVE: K5, FIVE_TOO: K5, SIX: K6}


class History:
    """A broker that restarts, sessions that come, go and move, and a table: every promise is checked at each step."""

    def __init__(self) -> None:
        self.table: dict[str, int] = {}  # key → revision
        self.revision = 0
        self.stored: dict[str, set[str]] = {}  # sessions whose home is here, as they are stored → names
        self.here: dict[str, set[str]] = {}  # connected sessions → names
        self.moving: dict[str, set[str]] = {}  # sessions whose home is elsewhere, and does not hold them yet
        self.restart()

    def restart(self) -> None:
        self.machine = ChannelHoldings("b")
        self.asked: list[PutKey | DeleteKey] = []
        self.late: list[PutKey | DeleteKey] = []
        self.looks: list[Looked] = []
        self.timers: dict[str, None] = {}
        self.scan: list[Event] | None = None
        self.tickets: dict[int, tuple[str, str]] = {}  # ticket → session and name
        self.promised: set[tuple[str, str]] = set()  # (session, k) that was told to be held
        self.promised |= {(s, MEANT[n]) for s, ns in self.stored.items() for n in ns if self.has(MEANT[n])}
        self.here = {}
        self.count = 0
        self.tell(Defined(channel=NEAR))
        self.tell(Started(incarnation=1))

    def has(self, k: str) -> bool:
        return f"near.{k}.b" in self.table

    def tell(self, event: Event) -> None:
        for effect in self.machine.handle(event, 0):
            match effect:
                case PutKey() | DeleteKey():
                    assert effect.request not in [each.request for each in self.asked], (
                        "one request at a time"
                    )
                    self.asked.append(effect)
                case Held(tickets=tickets):
                    for ticket in tickets:
                        session, name = self.tickets.pop(ticket)
                        if name in self.here.get(session, ()):
                            assert self.has(MEANT[name]), "told that it is held, and it is not stored"
                            self.promised.add((session, MEANT[name]))
                case SetTimer(name=name):
                    self.timers[name] = None
                case LookAt():
                    self.looks.append(self.look(effect))
                case Scan():
                    cells = [CellFound(key=key, revision=revision) for key, revision in self.table.items()]
                    found = [
                        SessionFound(session=s, client=s, names=tuple(sorted(ns)), expiry_s=60)
                        for s, ns in self.stored.items()
                    ]
                    self.scan = [*cells, *found, Scanned(whole=True)]
        self.check()

    def look(self, asked: LookAt) -> Looked:
        uid, home, ready = asked.session, "nowhere", True
        if uid in self.stored:
            home = "here"
        elif uid in self.moving:
            home, ready = "elsewhere", False
        return Looked(
            session=uid,
            client=uid,
            visits=asked.visits,
            home=home,  # type: ignore[arg-type]
            ready=ready,
            names=tuple(sorted(self.stored.get(uid, ()))),
            expiry_s=60,
        )

    def check(self) -> None:
        for session, k in self.promised:
            names = self.here.get(session, set()) | self.stored.get(session, set())
            names |= self.moving.get(session, set())
            if any(MEANT[name] == k for name in names):
                assert self.has(k), f"{session} wants {k}, was told that it is held, and the cell is gone"

    def happen(self, what: str, number: int) -> None:
        session, name = f"s{number % 2}", NAMES[number % len(NAMES)]
        match what:
            case "want":
                self.count += 1
                self.tickets[self.count] = (session, name)
                if session in self.moving:
                    self.stored[session] = self.moving.pop(session)
                names = self.here.setdefault(session, set(self.stored.get(session, ())))
                names.add(name)
                if number > 2 or session in self.stored:
                    self.stored[session] = set(names)
                self.tell(
                    Wanted(
                        session=session,
                        client=session,
                        names=tuple(sorted(names)),
                        all=True,
                        ticket=self.count,
                    )
                )
            case "unwant" if session in self.here:
                self.forget(session, {name})
                self.here[session].discard(name)
                self.tell(Unwanted(session=session, names=(name,)))
            case "leave" if session in self.here:
                self.nobody_waits(session)
                kept = session in self.stored
                names = self.here.pop(session)
                if not kept:
                    self.forget(session, names)
                self.tell(Left(session=session, expiry_s=60 if kept else 0))
            case "move" if session in self.stored and session not in self.here:
                names = self.stored.pop(session)
                if number % 2:
                    self.moving[session] = names
                else:
                    self.forget(session, names)
                self.tell(Doubted(session=session, client=session))
            case "arrive" if session in self.moving:
                self.forget(session, self.moving.pop(session))
            case "tell":
                self.tell(Doubted(session=session, client=session))
            case "vanish" if session in self.stored and session not in self.here:
                self.forget(session, self.stored.pop(session))
            case "answer" | "refuse" | "mute" | "lose" if self.asked:
                self.answer(what, self.asked.pop(number % len(self.asked)))
            case "late" if self.late:
                self.execute(self.late.pop(number % len(self.late)))
                self.check()
            case "look" if self.looks:
                self.tell(self.looks.pop(number % len(self.looks)))
            case "timer" if self.timers:
                timer = sorted(self.timers)[number % len(self.timers)]
                del self.timers[timer]
                self.tell(TimerFired(name=timer))
            case "scan" if self.scan:
                self.tell(self.scan.pop(0))
            case "restart":
                for session in [each for each in self.here if each not in self.stored]:
                    self.forget(session, self.here[session])
                self.restart()

    def nobody_waits(self, session: str) -> None:
        """Whoever asked is gone, or has changed its mind: what it is told means nothing."""
        self.tickets = {
            t: ("", name) if of == session else (of, name) for t, (of, name) in self.tickets.items()
        }

    def forget(self, session: str, names: set[str]) -> None:
        self.nobody_waits(session)
        self.promised -= {(session, MEANT[name]) for name in names}
        for name in names & self.stored.get(session, set()):
            self.stored[session] = self.stored[session] - {name}
        if session in self.here:
            self.here[session] = self.here[session] - names

    def execute(self, asked: PutKey | DeleteKey) -> Event:
        if isinstance(asked, PutKey):
            self.revision += 1
            self.table[asked.key] = self.revision
            return Stored(request=asked.request, value=self.revision)
        if self.table.get(asked.key, 0) != asked.revision:
            error = Conflict("delete", asked.revision or 0, self.table.get(asked.key, 0))
            return StoreFailed(request=asked.request, error=error)
        self.revision += 1
        del self.table[asked.key]
        return Stored(request=asked.request)

    def answer(self, how: str, asked: PutKey | DeleteKey) -> None:
        if how == "answer":
            self.tell(self.execute(asked))
        elif how == "refuse":
            self.tell(StoreFailed(request=asked.request, error=UNAVAILABLE))
        else:
            if how == "mute":
                self.execute(asked)
            else:
                self.late.append(asked)
            self.tell(StoreFailed(request=asked.request, error=UNKNOWN))

    def settle(self) -> None:
        for session in tuple(self.moving):
            self.forget(session, self.moving.pop(session))
        for _ in range(3):  # a scan may be under way that knew less
            self.timers[HoldingsTimer.SCAN] = None
            for _ in range(200):
                for what in ("scan", "answer", "look", "timer"):
                    if (
                        what != "timer"
                        or any(name in self.timers for name in (HoldingsTimer.AGAIN, HoldingsTimer.LATER))
                        or not self.scan
                    ):
                        self.timers = {
                            name: None
                            for name in self.timers
                            if name in (HoldingsTimer.AGAIN, HoldingsTimer.LATER, HoldingsTimer.SCAN)
                        }
                        self.happen(what, 0)
        assert not self.tickets, "somebody waits for ever"


WHAT = (
    *(
        "want",
        "want",
        "want",
        "unwant",
        "leave",
        "leave",
        "move",
        "vanish",
        "tell",
        "arrive",
        "timer",
        "timer",
    ),
    *("answer", "answer", "answer", "answer", "refuse", "mute", "lose", "late", "look", "look"),
    *("scan", "scan", "scan", "scan", "restart"),
)


def tell_a_story(happenings: Iterable[tuple[str, int]], *, scanned: bool) -> None:
    history = History()
    if scanned:
        history.happen("scan", 0)
    for what, number in happenings:
        history.happen(what, number)
    for late in tuple(history.late):
        history.late.remove(late)
        history.execute(late)
        history.check()
    history.settle()
    wanted = {MEANT[name] for names in (*history.here.values(), *history.stored.values()) for name in names}
    assert {key.split(".")[1] for key in history.table} == wanted


@settings(max_examples=100, deadline=None)
@given(st.booleans(), st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 5)), max_size=40))
def test_promised_cells_stay_and_in_the_end_the_store_matches_the_wants(
    scanned: bool, happenings: list[tuple[str, int]]
) -> None:
    tell_a_story(happenings, scanned=scanned)


@pytest.mark.parametrize("seed", range(200))
def test_so_it_is_in_long_stories(seed: int) -> None:
    """Longer than Hypothesis likes them: what is wrong takes half a dozen happenings in one order."""
    chance = random.Random(seed)
    story = [(chance.choice(WHAT), chance.randrange(6)) for _ in range(200)]
    tell_a_story(story, scanned=True)
