"""A coordinator on its own, with a log that takes what it is given: for tests of what it does."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tocsin.core.coordination.coordinator import Coordinator
from tocsin.core.coordination.leader import lease
from tocsin.core.coordination.leader import snapshot_writer as archivist
from tocsin.core.coordination.leader.snapshot_writer import Manifest
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.machine import (
    Append,
    Effect,
    Event,
    Followed,
    PutKey,
    ReadLog,
    Received,
    Send,
    Started,
    Stored,
    StoreFailed,
    TimerFired,
    Watched,
    WatchTable,
)
from tocsin.errors import Conflict, OutcomeUnknown, TocsinError
from tocsin.model.network import Message
from tocsin.ports import Change, Entry, Page
from tocsin.wire.internal.commands import (
    Batch,
    BrokerCommand,
    decode_batch,
    encode_batch,
    encode_command,
)
from tocsin.wire.internal.control import Beat, Submit

PLACES = StoreNames("net")
SUSPECT_US = 5_000_000
LEASE_US = 2_000_000
OPTIONS = Options(suspect_after_us=SUSPECT_US, lease_us=LEASE_US, snapshot_every=10, margin=3)
EffectT = TypeVar("EffectT", bound=Effect)
MessageT = TypeVar("MessageT", bound=Message)


def of(kind: type[EffectT], effects: list[Effect]) -> list[EffectT]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(kind: type[MessageT], effects: list[Effect]) -> list[MessageT]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


class Desk:
    """A coordinator with a clock, and a log that takes what it is given."""

    def __init__(self, options: Options = OPTIONS) -> None:
        self.machine = Coordinator("c1", PLACES, options)
        self.now_us = 0
        self.last = 0  # position of the log
        self.batches: list[Batch] = []
        self.beats = 0

    def handle(self, event: Event) -> list[Effect]:
        return self.machine.handle(event, self.now_us)

    def fire(self, name: str) -> list[Effect]:
        return self.handle(TimerFired(name=name))

    def watch(self, kind: str, key: str = "", value: bytes = b"", revision: int = 0) -> list[Effect]:
        change = Change(kind, key, value, revision)  # type: ignore[arg-type]
        return self.handle(Watched(table="net-coordination", change=change))

    def start(self, manifest: Manifest | None = None) -> list[Effect]:
        effects = self.handle(Started(incarnation=5))
        assert of(WatchTable, effects)
        self.watch("reset")
        self.watch("put", lease.KEY, b"other", 1)
        if manifest is not None:
            self.watch("put", archivist.KEY, msgspec.json.encode(manifest), 2)
        return self.watch("ready", revision=2)

    def follow(self, batch: Batch, record_id: str = "x-1") -> list[Effect]:
        self.last += 1
        data = encode_batch(
            epoch=batch.epoch,
            at_us=batch.at_us,
            previous=batch.previous,
            commands=tuple(map(encode_command, batch.commands)),
            notices=batch.notices,
        )
        entry = Entry(self.last, "net.c", data, record_id, 0)
        return self.handle(Followed(log="net-commands", entry=entry))

    def take(self, effects: list[Effect]) -> list[Effect]:
        """The log takes the append among these effects."""
        (append,) = of(Append, effects)
        assert append.expected == self.last, "the fence"
        positions = tuple(range(self.last + 1, self.last + 1 + len(append.records)))
        self.last = positions[-1]
        self.batches += [decode_batch(each.payload) for each in append.records if each.subject == "net.c"]
        return self.handle(Stored(request=append.request, value=positions))

    def claim(self) -> list[Effect]:
        """The lease is free, and ours; the next thing is to read the log."""
        (put,) = of(PutKey, self.watch("delete", lease.KEY, revision=5))
        assert (put.key, put.revision) == (lease.KEY, 0)
        return self.handle(Stored(request=put.request, value=6))

    def read(self, effects: list[Effect]) -> list[Effect]:
        (asked,) = of(ReadLog, effects)
        return self.handle(Stored(request=asked.request, value=Page((), self.last + 1, self.last)))

    def lead(self) -> list[Effect]:
        self.start()
        effects = self.take(self.read(self.claim()))
        assert self.machine.state == "leading"
        return effects

    def renew(self) -> None:
        (put,) = of(PutKey, self.fire("renew"))
        self.handle(Stored(request=put.request, value=9))

    def wait(self, us: int) -> None:
        """Let time pass with the lease renewed."""
        for _ in range(us // 500_000):
            self.now_us += 500_000
            self.renew()

    def listen(self, us: int, *brokers: str, check: str = "check") -> list[Effect]:
        """Let time pass: these brokers beat twice a second, the lease is renewed; all that the checks bring."""
        effects: list[Effect] = []
        for _ in range(us // 100_000):
            self.now_us += 100_000
            if self.now_us % 500_000 == 0:
                self.renew()
                self.beats += 1
                for broker in brokers:
                    self.hear(Beat(broker, 7, 1, number=self.beats, interval_ms=500))
            effects += self.fire(check)
        return effects

    def hear(self, message: Message) -> list[Effect]:
        return self.handle(Received(sender="broker/x", message=message))

    def submit(
        self, *commands: BrokerCommand, broker: str = "north", first: int = 1, incarnation: int = 7
    ) -> list[Effect]:
        return self.hear(Submit(broker, incarnation, first, commands))


def failed(effects: list[Effect], error: TocsinError) -> StoreFailed:
    (append,) = of(Append, effects)
    return StoreFailed(request=append.request, error=error)


CONFLICT = Conflict("append", 1, 2)
UNKNOWN = OutcomeUnknown("append", 5)
