"""Standing in for brokers that are gone: what a backup does with its copy, besides keeping what it prepared.

Sessions need nothing of it: they are in the store, and are taken when their clients come (decision 030). What was only
in the lost broker's memory is in the copy:

- **who was there**: they are awaited here, and how long the last of them takes is the time that recovery took;
- **wills** of clients that were connected, or that waited. Whether such a client is still alive nobody knows until it
  comes somewhere; if it does not within its delay, and the grace at the least, its will is published. Unless the lost
  broker is back by then: it was not dead, but cut off, and the client is its affair; or its process goes on and says
  that the will is settled. What the copy says from before it was lost does not count: the place may have passed to
  another process, or to another that stands in.

A client is no longer awaited when it has come to any broker, when the lost one is back, or after AWAITED_US. One that
came to another broker a moment before (RECENT_US) was quicker than the leader, and is not awaited at all; unless the
copy said after that that it is at the lost one: then it went back, and only the word of that was missed.

Two more things leave wills behind. A broker that is **back** before it was missed has forgotten its clients
(``Restarted``): its backup awaits those who do not come back to it; also if it stands in for it still, since an earlier
loss, after which they came. And in a cluster that is cut off one stands in
**meanwhile**, with the epoch 0 (``core.landmark``): what it publishes is for the cluster alone, and in no log, because
outside of it another stands in by then.

Invariants: of one broker there is one place, with the largest epoch that was said; whoever is awaited is so for one
place; a copy is kept as long as there is a place for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Protocol

from tocsin.core.machine import Effect, Event, Handler, Say, TableMachine
from tocsin.core.ownership import may_take
from tocsin.core.replication.gamma import Left, Standing
from tocsin.wire.replication import Bequest

AWAITED_US: Final = 600_000_000  # after that who has not come is counted as gone elsewhere, or for good
RECENT_US: Final = 15_000_000  # longer than a leader takes to find out, and a backup to be told
RECENT_MAX: Final = 20_000  # clients of which that is remembered; some 150 B each
MEANWHILE: Final = 0  # the epoch of one that stands in without the leader's word


class StoodIn(Event, frozen=True, kw_only=True):
    """A broker is gone, and this one stands in for it. Harmless when repeated."""

    broker: str
    epoch: int
    standings: tuple[Standing, ...]  # what the copy says, but for clients that are here


class StoodDown(Event, frozen=True, kw_only=True):
    """That broker is back, or somebody else stands in for it. ``meanwhile``: only if no leader has said so."""

    broker: str
    meanwhile: bool = False


class Restarted(Event, frozen=True, kw_only=True):
    """A broker is back that was never missed, and has forgotten these clients; their wills."""

    broker: str
    wills: tuple[Left, ...]


class ClientCame(Event, frozen=True, kw_only=True):
    """A client has come to a broker, this one or another."""

    client: str
    broker: str
    owner: str = ""  # the user that it has proven to be


class AwaitWill(Effect, frozen=True, kw_only=True):
    """Publish a will after a while, unless its client is alive by then (``StandIns.lives``).

    ``aloud``: to those who are listening in this cluster, and not into the log.
    """

    broker: str
    client: str
    bequest: Bequest
    delay_s: int
    aloud: bool = False


class ReleaseCopy(Effect, frozen=True, kw_only=True):
    """The copy of a broker is needed no longer."""

    broker: str


class Copies(Protocol):
    """What this broker knows of others."""

    def has(self, primary: str, client: str) -> bool | None:
        """Whether that broker has a client, or had it and was never dead, by the copy; None: not heard of since."""
        ...

    def settled(self, primary: str, client: str) -> bool:
        """Whether the process that was lost has said since that no will of a client is left."""
        ...


class _Place:
    """One broker that is gone."""

    def __init__(self, epoch: int, awaited: Iterable[str], now_us: int) -> None:
        self.epoch = epoch
        self.awaited = dict.fromkeys(awaited)
        self.began_us = now_us


class StandIns(TableMachine):
    """Those of one broker. ``grace_s``: for a client to notice that its broker is gone."""

    state = "ready"

    def __init__(self, copies: Copies, grace_s: int) -> None:
        self._copies = copies
        self._grace_s = grace_s
        self._places: dict[str, _Place] = {}
        self._awaited: dict[str, tuple[str, str]] = {}  # client → the broker that it was at, and its user
        # Who came lately: when, to whom, and as which user; oldest first.
        self._recent: dict[str, tuple[int, str, str]] = {}
        self.recovered = 0  # clients that were awaited and came

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(self._places)

    def statistics(self, now_us: int) -> dict[str, int]:
        awaited = sum(
            len(place.awaited) for place in self._places.values() if now_us - place.began_us <= AWAITED_US
        )
        return {"standing_in": len(self._places), "awaited": awaited, "recovered": self.recovered}

    def knows(self, broker: str, epoch: int) -> bool:
        """Whether this one stands in for a broker already, by that word or a later one."""
        place = self._places.get(broker)
        return place is not None and place.epoch >= epoch

    def lives(self, broker: str, client: str) -> bool | None:
        """Whether a client whose will is due is the affair of its broker, which is back, or goes on. None: ask again
        later."""
        of_copy = self._copies.settled if broker in self._places else self._copies.has
        return of_copy(broker, client)

    # ── places ──────────────────────────────────────────────────────────────────────────────────────────────

    def _stand_in(self, event: StoodIn, now_us: int) -> list[Effect]:
        if self.knows(event.broker, event.epoch):
            return []
        before = self._end(event.broker)
        meanwhile = event.epoch == MEANWHILE
        absent = [
            each
            for each in event.standings
            if not self._is_elsewhere(each.client, each.head.owner, event.broker, each.since_us, now_us)
        ]
        awaited = {each.client: (event.broker, each.head.owner) for each in absent if each.head.connected}
        self._places[event.broker] = _Place(event.epoch, awaited, now_us)
        self._awaited.update(awaited)
        wills = [
            self._await(event.broker, each.client, each.head.will, event.cause, aloud=meanwhile)
            for each in absent
            if each.head.will is not None
        ]
        facts = {"broker": event.broker, "epoch": event.epoch, "clients": len(awaited)}
        said = Say(
            text="stands in for a broker that is gone", level="warning", facts=facts, cause=event.cause
        )
        return [*self._said_down(event.broker, event.cause, before), *wills, said]

    def _await(self, broker: str, client: str, will: Bequest, cause: str, *, aloud: bool = False) -> Effect:
        delay_s = max(will.delay_s, self._grace_s)
        return AwaitWill(
            broker=broker, client=client, bequest=will, delay_s=delay_s, aloud=aloud, cause=cause
        )

    def _stand_down(self, event: StoodDown, now_us: int) -> list[Effect]:
        place = self._places.get(event.broker)
        if place is None or (event.meanwhile and place.epoch != MEANWHILE):
            return []
        self._end(event.broker)
        release = ReleaseCopy(broker=event.broker, cause=event.cause)
        return [release, *self._said_down(event.broker, event.cause, place)]

    def _end(self, broker: str) -> _Place | None:
        place = self._places.pop(broker, None)
        if place is not None:
            for client in place.awaited:
                self._awaited.pop(client, None)
        return place

    def _said_down(self, broker: str, cause: str, place: _Place | None) -> list[Effect]:
        return (
            [] if place is None else [Say(text="stands in no longer", facts={"broker": broker}, cause=cause)]
        )

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def _is_elsewhere(self, client: str, owner: str, broker: str, since_us: int, now_us: int) -> bool:
        """Whether a client, of which the copy says since then that it is at that broker, came to another one lately."""
        at_us, at, user = self._recent.get(client, (0, broker, ""))
        return at != broker and may_take(owner, user) and at_us >= since_us and now_us - at_us <= RECENT_US

    def _came(self, event: ClientCame, now_us: int) -> list[Effect]:
        self._recent.pop(event.client, None)
        self._recent[event.client] = (now_us, event.broker, event.owner)
        if len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        broker, owner = self._awaited.get(event.client, ("", ""))
        if not broker or not may_take(owner, event.owner):
            return []
        del self._awaited[event.client]
        place = self._places[broker]
        del place.awaited[event.client]
        if now_us - place.began_us > AWAITED_US:
            return []
        self.recovered += 1
        if place.awaited:
            return []
        facts = {"broker": broker, "took_ms": (now_us - place.began_us) // 1_000}
        words = "all clients of a broker that is gone are back"
        return [Say(text=words, facts=facts, cause=event.cause)]

    def _restart(self, event: Restarted, now_us: int) -> list[Effect]:
        wills = [
            self._await(event.broker, each.client, each.will, event.cause)
            for each in event.wills
            if not self._is_elsewhere(each.client, each.will.owner, event.broker, each.since_us, now_us)
        ]
        facts = {"broker": event.broker, "wills": len(wills)}
        return [
            *wills,
            Say(text="a broker is back that forgot its clients", facts=facts, cause=event.cause),
        ]

    table: ClassVar[Mapping[tuple[str, type[Event]], Handler]] = {
        ("*", StoodIn): _stand_in,
        ("*", StoodDown): _stand_down,
        ("*", Restarted): _restart,
        ("*", ClientCame): _came,
    }
