"""Takeovers in virtual time: the product's machines decide, measured rates say how long each step takes.

Each broker that stands in has its ``ChannelHoldings`` (``core.channels.machine``), which knows what was prepared and
decides what is written, when, and who waits for it; and a ``SessionTaking`` (``core.delivery.taking``) for each client
that comes. The store is one queue for all of them. Each broker's processor is a queue, and so are its links.

    word ──► clients dial ──► CONNECT ──► session read ──► channels held ──► session written ──► served
                                            (store)         (prepared: at once;   (store)          │
                                                             else store, in bulk)                  ▼
                                           results fetched, once for each k ──► delivered to each client

The time begins when the network knows of the loss: detection has its own figures. Lost brokers are gone from the bus,
so that nobody waits for their answer.

``one_by_one``: subscriptions are created each after the one before, as the paper has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tocsin.core.channels.machine import ChannelHoldings
from tocsin.core.channels.signals import Defined, Held, Prepared, Wanted
from tocsin.core.delivery.stored_session import StoredSession, encode_session, session_key
from tocsin.core.delivery.taking import (
    AskHandOver,
    ChannelsHeld,
    HandOverEnded,
    HoldChannels,
    SessionTaken,
    SessionTaking,
    TakeAsked,
)
from tocsin.core.forwarding.table import Subscription
from tocsin.core.machine import DeleteKey, Effect, Event, GetKey, PutKey, SetTimer, Stored, TimerFired
from tocsin.model.catalogue import Channel, Parameter
from tocsin.ports import Cell
from tocsin.sim.schedule import Act, Schedule
from tocsin_labs.reaps.rates import Rates
from tocsin_labs.reaps.workload import SECOND_US, Workload

EXPIRY_S: Final = 3_600
END_US: Final = 24 * 3_600 * SECOND_US
REQUESTS: Final = 3  # of a client's session to the store: two reads and a write


class Taken(msgspec.Struct, frozen=True):
    """One lost broker's subscribers, as the stand-in has to serve them."""

    broker: str
    remote: bool  # by the remote backup
    subscribers: Sequence[int]  # the k of each
    due: Mapping[int, int]  # k → results that its subscribers are to get: those in (eta, tau]


class Standing(msgspec.Struct, frozen=True):
    """One broker that stands in: for whom, and what it had before."""

    name: str
    own: frozenset[int]  # the k of its own subscribers
    backs: Mapping[str, frozenset[int]]  # the brokers of its cluster that it backs → their k
    taken: Sequence[Taken]


class Recovered(msgspec.Struct, frozen=True):
    """One takeover; seconds from the word of the loss, of so many subscribers."""

    subscribers: int = 0
    created: int = 0  # subscriptions that a client waited for
    served_s: float = 0.0  # the last has its session
    sum_s: float = 0.0  # until each has what it missed
    longest_s: float = 0.0


class Queue:
    """Whatever comes first is done first, one after the other."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._free_us = 0.0

    def serve(
        self, cost_s: float, act: Act, subject: Any, detail: Any = None, *, further_s: float = 0.0
    ) -> None:
        """Have it done, then wait ``further_s``, then act."""
        self._free_us = max(self._free_us, float(self._schedule.now_us)) + cost_s * SECOND_US
        self._schedule.at(round(self._free_us + further_s * SECOND_US), act, subject, detail)


class _Client(msgspec.Struct, eq=False):
    number: int
    name: str
    k: int
    cell: Cell
    machine: SessionTaking
    due: int


class _StandIn:
    """One broker's machines, and the shell around them."""

    def __init__(self, standing: Standing, world: _World) -> None:
        self._world = world
        self._rates = world.rates
        self._schedule = world.schedule
        self._processor = Queue(world.schedule)
        self._inward, self._outward = Queue(world.schedule), Queue(world.schedule)
        self._name = standing.name
        self._holdings = ChannelHoldings(standing.name)
        self._clients: dict[int, _Client] = {}
        self._fetching: dict[
            int, list[_Client] | None
        ] = {}  # k → who waits for its results; None: they are there
        self._waiting: deque[str] = deque()  # writes that wait for the one before
        self._timers: dict[str, int] = {}
        self.created = self.served_us = self.sum_us = self.longest_us = 0
        topic = world.workload.topic
        for channel in world.channels:
            self._at_once(Defined(channel=channel))
        names = tuple(map(topic, sorted(standing.own)))
        self._at_once(Wanted(session="own", client="own", names=names))
        for primary, ks in standing.backs.items():
            self._at_once(Prepared(primary=primary, names=tuple(map(topic, sorted(ks)))))

    def _at_once(self, event: Event) -> None:
        """Before the failure: everything is stored as soon as it is asked for."""
        waiting = deque(self._holdings.handle(event, 0))
        while waiting:
            effect = waiting.popleft()
            if isinstance(effect, PutKey | DeleteKey):
                waiting += self._holdings.handle(Stored(request=effect.request, value=1), 0)

    # ── a client comes ──────────────────────────────────────────────────────────────────────────────────────

    def expect(self, client: _Client, at_us: int) -> None:
        self._clients[client.number] = client
        self._schedule.at(at_us, self._connected, client, None)

    def _connected(self, client: _Client, _: None) -> None:
        self._processor.serve(self._rates.client_s, self._take, client)

    def _take(self, client: _Client, _: None) -> None:
        asked = TakeAsked(owner="", clean=False, expiry_s=EXPIRY_S, tail=0, uid=client.name)
        self._step(client, asked)

    def _step(self, client: _Client, event: Event) -> None:
        for effect in client.machine.handle(event, self._schedule.now_us):
            match effect:
                case GetKey(request=request):
                    self._ask_store(client, Stored(request=request, value=client.cell))
                case PutKey(request=request):
                    self._ask_store(client, Stored(request=request, value=client.cell.revision + 1))
                case AskHandOver():
                    after_us = round(2 * self._rates.near_s * SECOND_US)
                    at_us = self._schedule.now_us + after_us
                    self._schedule.at(at_us, self._step, client, HandOverEnded(lost=True))
                case HoldChannels(session=session):
                    self._hold(client, session)
                case SessionTaken():
                    self._served(client)

    def _ask_store(self, client: _Client, answer: Event) -> None:
        rates = self._rates  # a subscription makes the session's cell larger, prepared or not
        cost_s, further_s = (rates.client_store_s + rates.prepared_store_s) / REQUESTS, 2 * rates.near_s
        self._world.store.serve(cost_s, self._step, client, answer, further_s=further_s)

    # ── its subscriptions ───────────────────────────────────────────────────────────────────────────────────

    def _hold(self, client: _Client, session: StoredSession) -> None:
        event = Wanted(
            session=session.uid,
            client=session.client,
            names=tuple(session.subscriptions),
            all=True,
            ticket=client.number,
        )
        effects = self._holdings.handle(event, self._schedule.now_us)
        self.created += sum(isinstance(effect, PutKey) for effect in effects)
        self._carry_out(effects)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        rates, processor = self._rates, self._processor
        for effect in effects:
            match effect:
                case Held(tickets=tickets):
                    for ticket in tickets:
                        processor.serve(rates.prepared_s, self._step, self._clients[ticket], ChannelsHeld())
                case PutKey(request=request) | DeleteKey(request=request):
                    if self._world.one_by_one:
                        self._waiting.append(request)
                        if len(self._waiting) == 1:
                            self._write_next()
                    else:
                        processor.serve(rates.created_s, self._write, request)
                case SetTimer(name=name, delay_us=delay_us):
                    self._timers[name] = token = self._timers.get(name, 0) + 1
                    at_us = self._schedule.now_us + delay_us
                    self._schedule.at(at_us, self._fire, name, token)

    def _write(self, request: str, _: None) -> None:
        cost_s, further_s = self._rates.created_store_s, 2 * self._rates.near_s
        self._world.store.serve(cost_s, self._stored, request, further_s=further_s)

    def _write_next(self) -> None:
        rates = self._rates
        self._world.store.serve(
            rates.created_store_s, self._stored, self._waiting[0], further_s=rates.single_s
        )

    def _stored(self, request: str, _: None) -> None:
        if self._world.one_by_one:
            self._waiting.popleft()
            if self._waiting:
                self._write_next()
        self._carry_out(self._holdings.handle(Stored(request=request, value=2), self._schedule.now_us))

    def _fire(self, name: str, token: int) -> None:
        if self._timers[name] == token:
            self._carry_out(self._holdings.handle(TimerFired(name=name), self._schedule.now_us))

    # ── its results ─────────────────────────────────────────────────────────────────────────────────────────

    def _served(self, client: _Client) -> None:
        self.served_us = max(self.served_us, self._schedule.now_us)
        if not client.due:
            self._done(client, None)
            return
        waiting = self._fetching.get(client.k, ())
        if waiting is None:
            self._deliver(client)
        elif isinstance(waiting, list):
            waiting.append(client)
        else:
            self._fetching[client.k] = [client]
            cost_s = self._world.bytes_due(client) / self._rates.fetched_bytes_s
            self._inward.serve(cost_s, self._fetched, client.k)

    def _fetched(self, k: int, _: None) -> None:
        waiting, self._fetching[k] = self._fetching[k] or [], None
        for client in waiting:
            self._deliver(client)

    def _deliver(self, client: _Client) -> None:
        self._processor.serve(self._world.bytes_due(client) * self._rates.byte_s, self._send, client)

    def _send(self, client: _Client, _: None) -> None:
        self._outward.serve(self._world.bytes_due(client) / self._rates.delivered_bytes_s, self._done, client)

    def _done(self, client: _Client, _: None) -> None:
        self.sum_us += self._schedule.now_us
        self.longest_us = max(self.longest_us, self._schedule.now_us)

    def recovered(self) -> Recovered:
        served_s, longest_s = self.served_us / SECOND_US, self.longest_us / SECOND_US
        return Recovered(len(self._clients), self.created, served_s, self.sum_us / SECOND_US, longest_s)


class _World:
    """What all stand-ins share."""

    def __init__(self, workload: Workload, rates: Rates, *, one_by_one: bool) -> None:
        self.workload = workload
        self.rates = rates
        self.one_by_one = one_by_one
        self.schedule = Schedule()
        self.store = Queue(self.schedule)
        parameters = (Parameter("x", "BIGINT"),)
        self.channels = [
            Channel(f"C{number}", parameters, (), "", every_s=period_us / SECOND_US)
            for number, period_us in enumerate(workload.periods_us)
        ]

    def bytes_due(self, client: _Client) -> int:
        return client.due * self.workload.sizes[client.k]


def recover(
    workload: Workload, standing: Sequence[Standing], rates: Rates, *, one_by_one: bool = False
) -> list[Recovered]:
    """All takeovers of one failure, at the same time."""
    world = _World(workload, rates, one_by_one=one_by_one)
    found = []
    number = 0
    for each in standing:
        stand_in = _StandIn(each, world)
        found.append(stand_in)
        for taken, k in _by_turns(each.taken):
            number += 1
            hop_s = rates.far_s if taken.remote else rates.near_s
            client = _client(workload, number, taken, k)
            # The word, and there and back for the connection, before CONNECT is under way.
            stand_in.expect(client, round(4 * hop_s * SECOND_US))
    world.schedule.run_until(END_US)
    return [each.recovered() for each in found]


def _by_turns(taken: Sequence[Taken]) -> list[tuple[Taken, int]]:
    """The subscribers of all brokers by turns: all are told at once."""
    longest = max(len(each.subscribers) for each in taken)
    return [
        (each, each.subscribers[at]) for at in range(longest) for each in taken if at < len(each.subscribers)
    ]


def _client(workload: Workload, number: int, taken: Taken, k: int) -> _Client:
    name = f"s{number:06}"
    session = StoredSession(
        client=name,
        uid=name,
        expiry_s=EXPIRY_S,
        broker=taken.broker,
        home=taken.broker,
        subscriptions={workload.topic(k): Subscription(qos=1)},
    )
    cell = Cell(session_key(name), encode_session(session), 1)
    return _Client(number, name, k, cell, SessionTaking(name, "stand-in"), taken.due.get(k, 0))
