"""The pipeline, played: a tick makes results for what is held, commits them at once, and then says so in a notice.

It is killed between any two of these steps. Every commit gets its notice in the end: a pipeline that starts compares
both. It learns the subscriptions by watching their table, a little late.
"""

from __future__ import annotations

import msgspec

from tocsin.core.machine import (
    Append,
    Effect,
    Event,
    ReadLog,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    TimerFired,
    Watched,
    WatchTable,
)
from tocsin.model.network import Address
from tocsin.model.results import (
    BackendSubscription,
    Execution,
    Notice,
    ResultFile,
    decode_notice,
    decode_subscription,
    encode_notice,
)
from tocsin.ports import READ_MAX, Change, Page, Record
from tocsin.sim.process.stage import CHANNELS
from tocsin.sim.scenarios.channels.dataset import CHANNEL, FILES, Part, Row, files_subject, part_of

TICK_MASK = 0x7FFFF  # up to half a second from one tick to the next
AGAIN_US = 300_000
RESULTS_MAX = 3  # of one k in one tick
CRITICAL_ONE_IN = 4
LOOK_US = 4_000_000
DEADLINE_US = 6_000_000  # of a request: longer than the store's own


class Pipeline:
    """The machine. It makes results until ``until_us``."""

    def __init__(self, address: Address, until_us: int) -> None:
        self.address = address
        self._until_us = until_us
        self._chance = 0
        self._held: dict[str, BackendSubscription] = {}  # by key
        self._held_anew: dict[str, BackendSubscription] | None = None  # the same, while it is told again
        self._seen = 0
        self._tick = -1  # the newest that is committed; -1 until it is known
        self._noticed = -1
        self._committed: list[Part] = []  # of that tick
        self._end = 0  # of the log of files
        self._asked = ""  # the request under way
        self._asked_us = 0
        self._count = 0
        self._looked_us = 0

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case Started():
                self._chance = event.incarnation
                return [WatchTable(table=CHANNELS.subscriptions.name, cause=self.address), *self._think()]
            case Watched(change=change):
                self._on_change(change)
            case TimerFired():
                return [*self._think(), *self._go_on(now_us)]
            case Stored(request=request) if request == self._asked:
                self._asked = ""
                return self._on_stored(event, now_us)
            case StoreFailed(request=request) if request == self._asked:
                self._asked = ""
                self._tick = self._noticed = -1  # look again at what there is
        return []

    def _on_change(self, change: Change) -> None:
        """Follow the table of subscriptions. While the watch repeats all of them, the earlier set counts."""
        match change.kind:
            case "reset":
                self._held_anew = {}
            case "ready" if self._held_anew is not None:
                self._held, self._held_anew = self._held_anew, None
                self._seen = max(self._seen, change.revision)
            case "put":
                held = self._held if self._held_anew is None else self._held_anew
                held[change.key] = decode_subscription(change.value)
            case "delete" if self._held_anew is None:
                self._held.pop(change.key, None)
        if self._held_anew is None:
            self._seen = max(self._seen, change.revision)

    def _draw(self, mask: int) -> int:
        self._chance = (self._chance * 6_364_136_223_846_793_005 + 1) & ((1 << 64) - 1)
        return (self._chance >> 40) & mask

    def _think(self) -> list[Effect]:
        return [SetTimer(name="think", delay_us=AGAIN_US + self._draw(TICK_MASK), cause=self.address)]

    def _request(self, name: str, now_us: int) -> str:
        self._count += 1
        self._asked, self._asked_us = f"{name}#{self._count}", now_us
        return self._asked

    def _go_on(self, now_us: int) -> list[Effect]:
        """The next step: know what is committed, say it in a notice, make more."""
        if self._asked and now_us - self._asked_us < DEADLINE_US:
            return []
        if self._tick < 0:
            return [self._read("files", FILES.name, now_us)]
        if self._noticed < 0:
            return [self._read("notices", CHANNELS.notices.name, now_us)]
        if self._noticed < self._tick:
            return [self._notify(now_us)]
        if now_us < self._until_us:
            return self._execute(now_us)
        if now_us - self._looked_us > LOOK_US:  # a commit may have taken effect after its answer was given up
            self._looked_us = now_us
            self._tick = self._noticed = -1
        return []

    def _read(self, name: str, log: str, now_us: int) -> Effect:
        request = self._request(name, now_us)
        return ReadLog(request=request, log=log, subject=">", start=0, limit=READ_MAX, cause=self.address)

    def _on_stored(self, event: Stored, now_us: int) -> list[Effect]:
        if isinstance(event.value, Page):
            page = event.value
            assert page.next > page.last, "a run has few enough of them"
            if event.request.startswith("files"):
                parts = [part_of(entry) for entry in page.entries]
                self._tick = max((part.tick for part in parts), default=0)
                self._committed = [part for part in parts if part.tick == self._tick]
                self._end = page.last
            else:
                self._noticed = max((decode_notice(entry.payload).tick for entry in page.entries), default=0)
        elif event.request.startswith("commit"):
            self._tick += 1
            self._end = max(event.value)
        else:
            self._noticed = self._tick
        return self._go_on(now_us) if self._noticed < self._tick else []

    def _execute(self, now_us: int) -> list[Effect]:
        rows: dict[str, list[Row]] = {}
        ordinal = 0
        for k, brokers in sorted(self._recipients().items()):
            for _ in range(self._draw(0xFF) % (RESULTS_MAX + 1)):
                row = Row(ordinal, k, critical=self._draw(0xFF) % CRITICAL_ONE_IN == 0)
                for broker in brokers:
                    rows.setdefault(broker, []).append(row)
                ordinal += 1
        if not rows:
            return []
        tick, seen = self._tick + 1, self._seen
        self._committed = [Part(tick, seen, broker, tuple(each)) for broker, each in rows.items()]
        records = tuple(
            Record(files_subject(tick), msgspec.msgpack.encode(part), f"{tick} {part.broker} {now_us}")
            for part in self._committed
        )
        request = self._request("commit", now_us)
        cause = f"{self.address}#{tick}"
        return [Append(request=request, log=FILES.name, records=records, expected=self._end, cause=cause)]

    def _recipients(self) -> dict[str, list[str]]:
        """k → the brokers that get its results: those with an active cell, or else the standbys."""
        earnest: dict[str, set[str]] = {}
        standby: dict[str, set[str]] = {}
        for cell in self._held.values():
            (standby if cell.standby else earnest).setdefault(cell.k, set()).add(cell.broker)
        return {k: sorted(brokers) for k, brokers in (standby | earnest).items()}

    def _notify(self, now_us: int) -> Effect:
        tick, seen = self._tick, self._committed[0].seen
        rows = {row.ordinal: row for part in self._committed for row in part.rows}
        execution = Execution(CHANNEL.name, tick, len(rows), sum(row.critical for row in rows.values()))
        files = tuple(ResultFile(part.broker, part.broker, len(part.rows)) for part in self._committed)
        notice = Notice(tick, now_us, (execution,), files, rows=len(rows), seen=seen)
        record = Record(CHANNELS.notices_subject, encode_notice(notice), notice.id)
        request = self._request("notice", now_us)
        cause = f"{self.address}#{tick}"
        return Append(request=request, log=CHANNELS.notices.name, records=(record,), cause=cause)
