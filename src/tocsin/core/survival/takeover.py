"""Takeover: what a backup does with its copy of a broker that is lost.

Transitions of ``TakeoverMachine``:

    *  StoodIn, StoodDown, Restarted, ClientCame

Sessions need no copy: they are in the store, and a broker takes each when its client comes (decision 030). The copy has
what was only in the lost broker's memory:

- **Its clients.** The backup awaits them; the time until the last one comes is the recovery time.
- **Wills** of clients that were connected, or whose wills were waiting. Nobody knows whether such a client is alive
  until it connects somewhere. If it does not within its will delay, and at least within the grace, the backup publishes
  its will; unless the lost broker is back by then. In that case the broker was only cut off and its clients are its own
  again, or its process goes on and reports the will as settled. Reports in the copy from before the loss do not
  count: the broker's name may have passed to another process, or to another backup, since.

The backup stops awaiting a client when the client connects to any broker, when the lost broker is back, or after
AWAITED_US. It does not await a client that connected elsewhere within RECENT_US before the takeover (the client was
quicker than the leader), unless a later copy shows that client back on the lost broker: then only the announcement of
its return was missed.

Two more cases leave wills behind:

- A broker that **restarts** before it was missed has forgotten its clients (``Restarted``). Its backup awaits those
  that do not come back to it, even if the backup still stands in after an earlier loss from which they had returned.
- In a cluster that is cut off, a backup stands in **meanwhile**, with epoch 0 (``core.survival.landmark``). It
  publishes wills for the cluster only and writes none to the log, because outside the cluster another broker stands in
  by then. That broker may have no copy. So those above QoS 0 come once more, as ``Restarted``, when the backup hears
  that another stands in or that the broker restarted (``core.replication.backup``). By then the cut may be long ago: a
  client that came since the backup stood in is alive, however long ago that was.

Invariants: each broker has one takeover, with the largest epoch that was stated; a client is awaited for one takeover;
a copy is kept while there is a takeover for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, Protocol

from tocsin.core.access.ownership import may_take
from tocsin.core.machine import Effect, Event, OneState, Say, Table, TableMachine
from tocsin.core.replication.gamma import ClientSnapshot, Left
from tocsin.wire.internal.replication import Bequest

AWAITED_US: Final = 600_000_000  # a client that is not here by then has gone elsewhere, or for good
RECENT_US: Final = 15_000_000  # longer than a leader takes to find out, and a backup to be told
RECENT_MAX: Final = 20_000  # clients of which that is remembered; some 150 B each
MEANWHILE: Final = 0  # the epoch of a takeover without the leader's word


class StoodIn(Event, frozen=True, kw_only=True):
    """This broker stands in for a lost broker. Harmless when repeated."""

    broker: str
    epoch: int
    standings: tuple[ClientSnapshot, ...]  # what the copy says, but for clients that are here


class StoodDown(Event, frozen=True, kw_only=True):
    """That broker is back, or another stands in for it. ``meanwhile``: only if no leader has said so."""

    broker: str
    meanwhile: bool = False


class Restarted(Event, frozen=True, kw_only=True):
    """A broker restarted before it was missed and has forgotten these clients; their wills."""

    broker: str
    wills: tuple[Left, ...]


class ClientCame(Event, frozen=True, kw_only=True):
    """A client has come to this broker or another."""

    client: str
    broker: str
    owner: str = ""  # the user that it has proven to be


class AwaitWill(Effect, frozen=True, kw_only=True):
    """Publish a will after a while, unless its client is alive by then (``TakeoverMachine.is_alive``).

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
    """The copies of other brokers that this broker has."""

    def has(self, primary: str, client: str) -> bool | None:
        """Whether that broker has a client, or had it and was never dead, by the copy; None: not heard of since."""
        ...

    def settled(self, primary: str, client: str) -> bool:
        """Whether the process that was lost has said since that no will of a client is left."""
        ...


class _Takeover:
    """One lost broker that this broker stands in for."""

    def __init__(self, epoch: int, awaited: Iterable[str], now_us: int) -> None:
        self.epoch = epoch
        self.awaited = dict.fromkeys(awaited)
        self.began_us = now_us


class TakeoverMachine(TableMachine):
    """The takeovers of one broker. ``grace_s``: how long a client takes to notice that its broker is gone."""

    state = OneState.ONLY

    def __init__(self, copies: Copies, grace_s: int) -> None:
        self._copies = copies
        self._grace_s = grace_s
        self._takeovers: dict[str, _Takeover] = {}
        self._awaited: dict[str, tuple[str, str]] = {}  # client → the broker that it was at, and its user
        # Recent arrivals: time, broker and user; oldest first.
        self._recent: dict[str, tuple[int, str, str]] = {}
        self._meanwhile: dict[
            str, int
        ] = {}  # broker → when this broker last stood in for it without a leader
        self.recovered = 0  # clients that were awaited and came

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(self._takeovers)

    def statistics(self, now_us: int) -> dict[str, int]:
        awaited = sum(
            len(takeover.awaited)
            for takeover in self._takeovers.values()
            if now_us - takeover.began_us <= AWAITED_US
        )
        return {"standing_in": len(self._takeovers), "awaited": awaited, "recovered": self.recovered}

    def knows(self, broker: str, epoch: int) -> bool:
        """Whether this broker stands in for a broker already, by that epoch or a later one."""
        takeover = self._takeovers.get(broker)
        return takeover is not None and takeover.epoch >= epoch

    def is_alive(self, broker: str, client: str) -> bool | None:
        """Whether a client whose will is due still belongs to its broker, which is back, or never stopped. None: ask
        again later.
        """
        of_copy = self._copies.settled if broker in self._takeovers else self._copies.has
        return of_copy(broker, client)

    # ── places ──────────────────────────────────────────────────────────────────────────────────────────────

    def _stand_in(self, event: StoodIn, now_us: int) -> list[Effect]:
        if self.knows(event.broker, event.epoch):
            return []
        before = self._end(event.broker)
        meanwhile = event.epoch == MEANWHILE
        if meanwhile:
            self._meanwhile[event.broker] = now_us
        absent = [
            each
            for each in event.standings
            if not self._is_elsewhere(each.client, each.head.owner, event.broker, each.since_us, now_us)
        ]
        awaited = {each.client: (event.broker, each.head.owner) for each in absent if each.head.connected}
        self._takeovers[event.broker] = _Takeover(event.epoch, awaited, now_us)
        self._awaited.update(awaited)
        wills = [
            self._await(event.broker, each.client, each.head.will, aloud=meanwhile)
            for each in absent
            if each.head.will is not None
        ]
        facts = {"broker": event.broker, "epoch": event.epoch, "clients": len(awaited)}
        said = Say(text="stands in for a broker that is gone", level="warning", facts=facts)
        return [*self._said_down(event.broker, before), *wills, said]

    def _await(self, broker: str, client: str, will: Bequest, *, aloud: bool = False) -> Effect:
        delay_s = max(will.delay_s, self._grace_s)
        return AwaitWill(broker=broker, client=client, bequest=will, delay_s=delay_s, aloud=aloud)

    def _stand_down(self, event: StoodDown, now_us: int) -> list[Effect]:
        takeover = self._takeovers.get(event.broker)
        if takeover is None or (event.meanwhile and takeover.epoch != MEANWHILE):
            return []
        self._end(event.broker)
        release = ReleaseCopy(broker=event.broker)
        return [release, *self._said_down(event.broker, takeover)]

    def _end(self, broker: str) -> _Takeover | None:
        takeover = self._takeovers.pop(broker, None)
        if takeover is not None:
            for client in takeover.awaited:
                self._awaited.pop(client, None)
        return takeover

    def _said_down(self, broker: str, takeover: _Takeover | None) -> list[Effect]:
        return [] if takeover is None else [Say(text="stands in no longer", facts={"broker": broker})]

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    def _is_elsewhere(self, client: str, owner: str, broker: str, since_us: int, now_us: int) -> bool:
        """Whether a client, which by the copy has been at that broker since then, came to another broker lately, or
        since this broker stood in for that one without a leader.
        """
        at_us, at, user = self._recent.get(client, (0, broker, ""))
        from_us = min(now_us - RECENT_US, self._meanwhile.get(broker, now_us))
        return at != broker and may_take(owner, user) and at_us >= max(since_us, from_us)

    def _came(self, event: ClientCame, now_us: int) -> list[Effect]:
        self._recent.pop(event.client, None)
        self._recent[event.client] = (now_us, event.broker, event.owner)
        if len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        broker, owner = self._awaited.get(event.client, ("", ""))
        if not broker or not may_take(owner, event.owner):
            return []
        del self._awaited[event.client]
        takeover = self._takeovers[broker]
        del takeover.awaited[event.client]
        if now_us - takeover.began_us > AWAITED_US:
            return []
        self.recovered += 1
        if takeover.awaited:
            return []
        facts = {"broker": broker, "took_ms": (now_us - takeover.began_us) // 1_000}
        words = "all clients of a broker that is gone are back"
        return [Say(text=words, facts=facts)]

    def _restart(self, event: Restarted, now_us: int) -> list[Effect]:
        wills = [
            self._await(event.broker, each.client, each.will)
            for each in event.wills
            if not self._is_elsewhere(each.client, each.will.owner, event.broker, each.since_us, now_us)
        ]
        facts = {"broker": event.broker, "wills": len(wills)}
        return [
            *wills,
            Say(text="a broker is back that forgot its clients", facts=facts),
        ]

    table: ClassVar[Table] = {
        ("*", StoodIn): _stand_in,
        ("*", StoodDown): _stand_down,
        ("*", Restarted): _restart,
        ("*", ClientCame): _came,
    }
