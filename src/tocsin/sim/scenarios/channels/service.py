"""One client's connection at a broker that delivers channels: the part of the asyncio shells around the cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tocsin.core.attendance import AwaitSave, Began, Subscribed, Unsubscribed
from tocsin.core.attendance_signals import (
    DeliverResult,
    ReadResults,
    ResultOffered,
    ResultsFailed,
    ResultsRead,
)
from tocsin.core.forwarding import Subscription
from tocsin.core.machine import Effect, Event, ReadLog, Say, Stored, StoreFailed, TimerFired
from tocsin.core.stored_session import StoredSession
from tocsin.errors import Conflict
from tocsin.model.results import ORDINALS, place, position_of
from tocsin.ports import Entry
from tocsin.sim.scenarios.channels.wire import (
    NOTICES,
    Row,
    Unsuback,
    Unsubscribe,
    meant_by,
    notice_of,
    read_files,
)
from tocsin.sim.scenarios.durable.service import Service
from tocsin.sim.scenarios.durable.wire import Packet, Publish, Subscribe
from tocsin.wire.topics import CHANNEL_PREFIX

if TYPE_CHECKING:
    from tocsin.sim.scenarios.channels.broker import ChannelBroker

RECEIVE_MAX = 4  # the least of which some is spared for critical results
NOTICES_MAX = 3  # in one batch: few, so that catching up takes several
ROWS_MAX = 4  # same


class ChannelService(Service):
    """From CONNECT until all that the connection leaves is stored."""

    _broker: ChannelBroker
    _before: StoredSession | None = None  # the session, as it was taken

    # ── taking the session ──────────────────────────────────────────────────────────────────────────────────

    def claim(self, before: StoredSession | None, go: Callable[[], None]) -> None:
        self._before = before
        if before is None:
            go()
        else:
            self.prepare(before, _channels(before), lambda: go() if self.open else None)

    def prepare(self, before: StoredSession, names: tuple[str, ...], go: Callable[[], None]) -> None:
        self._broker.keeping.hold(before.uid, self.client, names, go, every=True)

    def _on_taken(self, event: Stored | StoreFailed, present: bool) -> None:
        before = self._before
        if before is not None and isinstance(event, Stored):
            self.moved(before)
        elif before is not None and isinstance(event, StoreFailed) and isinstance(event.error, Conflict):
            self._broker.keeping.leave(before.uid, before.expiry_s)
            self._broker.keeping.doubt(before.uid, self.client)
        super()._on_taken(event, present)

    def moved(self, before: StoredSession) -> None:
        self._broker.tell_home(before)

    def tell(self, event: Event) -> None:
        if isinstance(event, Began):
            tail = self.begin_at()
            event = msgspec.structs.replace(event, receive_max=RECEIVE_MAX, results_tail=tail)
            facts = {"client": self.client, "connection": self.stream.connection, "tail": tail}
            facts |= {} if event.session is None else {"epoch": event.session.epoch, "uid": event.session.uid}
            self._broker.say(Say(text="began", facts=facts))
        elif isinstance(event, TimerFired) and self.open:
            self.machine.results.passed(self._broker.results_done)
        super().tell(event)

    def begin_at(self) -> int:
        return self._broker.results_tail

    # ── packets ─────────────────────────────────────────────────────────────────────────────────────────────

    def on_packet(self, packet: Packet) -> None:
        match packet:
            case Subscribe(topic_filter=name) if (
                name.startswith(CHANNEL_PREFIX) and self.machine.state == "attending"
            ):
                self._subscribe_channel(name)
            case Unsubscribe(topic_filter=name) if self.machine.state == "attending":
                self.tell(Unsubscribed(topic_filter=name))
                if name.startswith(CHANNEL_PREFIX):
                    self.release_channel(name)
                self.tell(AwaitSave(ticket=self._ticket(lambda: self.confirm(name))))
            case _:
                super().on_packet(packet)

    def _subscribe_channel(self, name: str) -> None:
        before = self.machine.subscriptions.get(name)
        since = self._broker.results_tail if before is None else before.since
        self.tell(Subscribed(topic_filter=name, subscription=Subscription(qos=1, since=since)))
        waits = {"stored", "held"}

        def done(what: str) -> None:
            waits.discard(what)
            if not waits:
                self.acknowledge(name, 1)

        self.hold(name, lambda: done("held"))
        self.tell(AwaitSave(ticket=self._ticket(lambda: done("stored"))))

    def confirm(self, name: str) -> None:
        """That it is subscribed to no longer is durable."""
        self._send(Unsuback(name))

    def hold(self, name: str, then: Callable[[], None]) -> None:
        assert self._taking is not None
        self._broker.keeping.hold(self._taking.uid, self.client, (name,), then)

    def release_channel(self, name: str) -> None:
        assert self._taking is not None
        self._broker.keeping.release(self._taking.uid, name)

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────

    def offer_result(self, where: int, tick: int, row: Row) -> None:
        for name, subscription in self.machine.subscriptions.items():
            if not name.startswith(CHANNEL_PREFIX) or meant_by(name) != row.k or where <= subscription.since:
                continue
            if self.machine.state == "attending":
                packet_id, repeat = self.machine.results.offer(where, row.critical, self.machine.congested)
                if packet_id:
                    self._deliver_result(name, tick, row, packet_id, repeat)

    def _deliver_result(self, name: str, tick: int, row: Row, packet_id: int, repeat: bool) -> None:
        self._send(Publish(packet_id, 1, name, "pipeline", tick * 1_000 + row.ordinal, repeat))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case DeliverResult(name=name, result=(tick, row), packet_id=packet_id, repeat=repeat):
                self._deliver_result(name, tick, row, packet_id, repeat)
            case ReadResults():
                self._read_results(effect)
            case _:
                super()._carry_out(effect)

    def _read_results(self, asked: ReadResults) -> None:
        position = position_of(asked.start)
        read = ReadLog(request="notices", log=NOTICES.name, subject=">", start=position, limit=NOTICES_MAX)

        def on_notices(event: Stored | StoreFailed) -> None:
            if isinstance(event, StoreFailed):
                self.tell(ResultsFailed(error=event.error, critical=asked.critical))
            else:
                self._read_files(asked, list(event.value.entries), place(event.value.next, 0), [])

        self._broker.ask(read, on_notices)

    def _read_files(
        self, asked: ReadResults, left: list[Entry], end: int, found: list[ResultOffered]
    ) -> None:
        if not left:
            self._tell_read(asked, found, end)
            return
        entry = left.pop(0)
        tick = notice_of(entry).tick
        read = read_files(tick)

        def on_files(event: Stored | StoreFailed) -> None:
            if isinstance(event, StoreFailed):
                self.tell(ResultsFailed(error=event.error, critical=asked.critical))
                return
            found.extend(self._chosen(asked, entry, event))
            if len(found) >= ROWS_MAX:
                cut = found[:ROWS_MAX]
                self._tell_read(asked, cut, cut[-1].position + 1)
            else:
                self._read_files(asked, left, end, found)

        self._broker.ask(read, on_files)

    def _tell_read(self, asked: ReadResults, found: list[ResultOffered], end: int) -> None:
        there = self.machine.subscriptions
        entries = [each for each in found if each.name in there and each.position > there[each.name].since]
        tail = self._broker.results_tail
        self.tell(ResultsRead(entries=entries, next=end, tail=tail, critical=asked.critical))

    def _chosen(self, asked: ReadResults, entry: Entry, event: Stored) -> list[ResultOffered]:
        from tocsin.sim.scenarios.channels.broker import rows_of

        names = {meant_by(name): name for name in asked.names}
        rows = rows_of(event.value, lambda broker, k: k in names)
        first = asked.start % ORDINALS if entry.position == position_of(asked.start) else 0
        tick = notice_of(entry).tick
        return [
            ResultOffered(place(entry.position, ordinal), names[rows[ordinal].k], (tick, rows[ordinal]))
            for ordinal in sorted(rows)
            if ordinal >= first and rows[ordinal].critical is asked.critical
        ]

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        if self.open:
            self.machine.results.passed(self._broker.results_done)
            self.leave()
        super().close()

    def leave(self) -> None:
        if self._taking is not None:
            self._broker.keeping.leave(self._taking.uid, self.expiry_s)


def _channels(session: StoredSession) -> tuple[str, ...]:
    return tuple(name for name in session.subscriptions if name.startswith(CHANNEL_PREFIX))
