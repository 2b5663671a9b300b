"""A broker: connections, group commit, the follower of the log. It plays the asyncio shells around the cores.

What a process has and a machine has not is here too: a request that is never answered (because the node slept) fails at
its deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from tocsin.core.commit import CommitQueue
from tocsin.core.machine import (
    Append,
    DeleteKey,
    Effect,
    Event,
    Followed,
    FollowLog,
    GetKey,
    PutKey,
    ReadLog,
    Received,
    Say,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    TimerFired,
)
from tocsin.errors import OutcomeUnknown
from tocsin.model.message import Address, Message
from tocsin.model.publication import Publication, decode_publication, encode_publication
from tocsin.model.subjects import CRITICAL_MESSAGES, all_of, is_critical, subject_of
from tocsin.ports import Entry, Record
from tocsin.sim.scenarios.durable.service import Service
from tocsin.sim.scenarios.durable.wire import LOG, NETWORK, Connect, Frame, Reset, Stream

TICK = "tick"
TICK_US = 500_000
SILENCE_US = 3_000_000  # of a client, before its connection counts as broken
DEADLINE_US = 6_000_000  # longer than the store's own
COMMITS_MAX = 1_000
PAGE = 100  # entries of one read, when a record is looked for

Request = Append | ReadLog | GetKey | PutKey | DeleteKey
Then = Callable[[Stored | StoreFailed], None]


class Timed(Protocol):
    """Something that has timers. Its name is nobody else's."""

    name: str

    def tell(self, event: Event) -> None: ...


class Broker:
    """The machine."""

    service: type[Service] = Service  # so that a variant can be tried
    silence_us = SILENCE_US
    tick_us = TICK_US
    looks_fresh = True  # at what the log has, before it appends again; so that a variant can be tried

    def __init__(self, address: Address) -> None:
        self.address = address
        self.tail = -1  # the position that was dispatched last; -1 until it is known
        self.critical_tail = 0  # up to where there may be critical ones among those
        self.now_us = 0
        self.services: dict[str, Service] = {}  # client → its newest connection
        self._endings: dict[str, list[Service]] = {}  # client → what older ones have still to store
        self._requests: dict[str, tuple[int, Then]] = {}  # under way → when it was asked, and what then
        self._timers: dict[str, tuple[Timed, str]] = {}
        self._queue: CommitQueue[Callable[[], None]] = CommitQueue(COMMITS_MAX)
        self.incarnation = 0
        self._count = 0  # of requests, connections and timers
        self._cause = ""
        self._out: list[Effect] = []

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        self.now_us, self._cause = now_us, event.cause
        self.on(event)
        effects, self._out = self._out, []
        return effects

    def on(self, event: Event) -> None:
        match event:
            case Started():
                self.incarnation = event.incarnation
                self._find_tail()
                self._out.append(SetTimer(name=TICK, delay_us=self.tick_us, cause=self.address))
            case Received(message=Frame() as frame, sender=sender):
                self._on_frame(sender, frame)
            case Followed(entry=entry):
                self._dispatch(entry)
            case Stored() | StoreFailed():
                self._on_answer(event)
            case TimerFired(name=name):
                self._on_timer(name)

    # ── what connections ask for ────────────────────────────────────────────────────────────────────────────

    def ask(self, request: Request, then: Then) -> None:
        self._count += 1
        name = f"{request.request}#{self._count}"
        self._requests[name] = (self.now_us, then)
        self._out.append(msgspec.structs.replace(request, request=name, cause=self._cause))

    def send(self, client: Address, message: Message) -> None:
        self._out.append(Send(to=client, message=message, cause=self._cause))

    def say(self, say: Say) -> None:
        self._out.append(msgspec.structs.replace(say, cause=self._cause))

    def reset(self, client: Address, connection: int) -> None:
        self.send(client, Reset(connection))

    def set_timer(self, service: Timed, name: str, delay_us: int) -> None:
        full = f"{service.name} {name}"
        self._timers[full] = (service, name)
        self._out.append(SetTimer(name=full, delay_us=delay_us, cause=self._cause))

    def gone(self, service: Service) -> None:
        """Nothing of a connection is left to store; the next one of its client may begin."""
        endings = self._endings.get(service.client, [])
        if service in endings:
            endings.remove(service)
        self._timers = {name: timer for name, timer in self._timers.items() if timer[0] is not service}
        current = self.services.get(service.client)
        if current is service:
            del self.services[service.client]
        elif current is not None and not endings:
            current.take()

    @property
    def ready(self) -> bool:
        """Whether clients may come."""
        return self.tail >= 0

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────

    def _on_frame(self, client: Address, frame: Frame) -> None:
        service = self.services.get(client)
        if service is not None and service.stream.connection == frame.connection:
            match service.stream.take(frame):
                case "gap":
                    service.close()
                case "next" if service.open:
                    service.heard_us = self.now_us
                    service.on_packet(frame.packet)
            return
        newer = service is None or frame.connection > service.stream.connection
        if isinstance(frame.packet, Connect) and newer and self.ready:
            self._accept(client, frame, service)
        else:
            self.reset(client, frame.connection)

    def _accept(self, client: Address, frame: Frame, before: Service | None) -> None:
        self._count += 1
        name = f"{self.address}.{self.incarnation:x}.{self._count}"
        stream = Stream(frame.connection)
        stream.take(frame)
        service = self.services[client] = self.service(self, client, stream, name)
        if isinstance(frame.packet, Connect):
            service.lasting, service.expiry_s = frame.packet.lasting, frame.packet.expiry_s
        service.heard_us = self.now_us
        if before is not None and before.machine.state != "ended":
            self._endings.setdefault(client, []).append(before)
            before.close()  # and once it is gone, the new one goes on
        elif not self._endings.get(client):
            service.take()

    def _on_timer(self, name: str) -> None:
        if name == TICK:
            self._tick()
        elif name == "commit":
            self._append()
        elif name == "tail":
            self._find_tail()
        elif name in self._timers:
            service, own = self._timers.pop(name)
            service.tell(TimerFired(name=own))

    def _tick(self) -> None:
        self._out.append(SetTimer(name=TICK, delay_us=self.tick_us, cause=self.address))
        for service in list(self.services.values()):
            if self.now_us - service.heard_us > self.silence_us:
                service.close()
        late = [
            name for name, (asked_us, _) in self._requests.items() if self.now_us - asked_us > DEADLINE_US
        ]
        for name in late:
            self._on_answer(StoreFailed(request=name, error=OutcomeUnknown(name, DEADLINE_US / 1e6)))

    def _on_answer(self, event: Stored | StoreFailed) -> None:
        _, then = self._requests.pop(event.request, (0, None))
        if then is not None:
            then(event)

    # ── the log ─────────────────────────────────────────────────────────────────────────────────────────────

    def _find_tail(self) -> None:
        self.ask(ReadLog(request="tail", log=LOG.name, subject=">", start=0, limit=1), self._on_tail)

    def _on_tail(self, event: Stored | StoreFailed) -> None:
        if isinstance(event, StoreFailed):
            self._out.append(SetTimer(name="tail", delay_us=TICK_US, cause=self._cause))
            return
        critical, tail = all_of(NETWORK, CRITICAL_MESSAGES), event.value.last
        look = ReadLog(request="critical", log=LOG.name, subject=critical, start=0, limit=1, fresh=True)
        self.ask(look, lambda event: self._on_critical(tail, event))

    def _on_critical(self, tail: int, event: Stored | StoreFailed) -> None:
        if isinstance(event, StoreFailed):
            self._out.append(SetTimer(name="tail", delay_us=TICK_US, cause=self._cause))
            return
        self.tail, self.critical_tail = tail, tail if event.value.entries else 0
        self._out.append(FollowLog(log=LOG.name, subject=">", start=tail + 1, cause=self._cause))

    def _dispatch(self, entry: Entry) -> None:
        self.tail = entry.position
        if is_critical(entry.subject):
            self.critical_tail = entry.position
        publication = decode_publication(entry.payload)
        for service in list(self.services.values()):
            service.offer(entry, publication)

    def commit(
        self, publication: Publication, record_id: str, done: Callable[[], None], behind: int | None = None
    ) -> None:
        subject = subject_of(publication.topic, NETWORK, critical=publication.critical)
        record = Record(subject, encode_publication(publication), record_id)
        self._queue.add(record, done, self.tail, behind)
        self._append_next()

    def _append_next(self) -> None:
        if self._queue.start(self.tail, self.now_us):
            self._append()

    def _append(self) -> None:
        """Append the batch; what of it may be in the log already is looked for first."""
        doubted = self._queue.doubted
        if doubted is not None:
            records, behind = doubted
            self.find({each.id for each in records}, behind, self._on_found)
        elif records := self._queue.again():
            append = Append(request="append", log=LOG.name, records=tuple(records), cause=self._cause)
            self.ask(append, self._on_append)
        else:
            self._append_next()

    def _on_append(self, event: Stored | StoreFailed) -> None:
        if isinstance(event, StoreFailed):
            self._fail(event)
            return
        for done in self._queue.succeeded(self.now_us):
            done()
        self._append_next()

    def _on_found(self, found: dict[str, int] | StoreFailed, end: int) -> None:
        if isinstance(found, StoreFailed):
            self._fail(found)
            return
        for done, _ in self._queue.found(found, end, self.now_us):
            done()
        self._append()

    def _fail(self, event: StoreFailed) -> None:
        delay_us, failed = self._queue.failed(event.error, self.now_us)
        assert not failed, "the simulated store is never full"
        self._out.append(SetTimer(name="commit", delay_us=delay_us, cause=self._cause))

    def find(
        self, ids: set[str], behind: int, then: Callable[[dict[str, int] | StoreFailed, int], None]
    ) -> None:
        """Look for records behind a position: what ``runtime.appended`` does."""
        found: dict[str, int] = {}

        def on_page(event: Stored | StoreFailed) -> None:
            if isinstance(event, StoreFailed):
                then(event, behind)
                return
            page = event.value
            found.update((entry.id, entry.position) for entry in page.entries if entry.id in ids)
            if page.next > page.last:
                then(found, page.last)
            else:
                read(page.next)

        def read(start: int) -> None:
            look = ReadLog(
                request="find", log=LOG.name, subject=">", start=start, limit=PAGE, fresh=self.looks_fresh
            )
            self.ask(look, on_page)

        read(behind + 1)
