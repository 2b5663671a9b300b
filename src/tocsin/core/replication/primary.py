"""The sending side of replication: a broker's state on its way to its local and its remote backup.

    (REAPS, section IV: Algorithm 3, ``sync-routine``, *on new subscriber*, *on new subscription*)

Transitions of ``Primary``:

    new      Started → running
    running  BackupsSet, Came, Altered, Awaited, Received, TimerFired

**Clients, subscriptions and wills** go at once: what changed in one turn of the shell's loop is one update for each
backup, and the next follows when that is answered (``core.replication.recipient``). An answer that must wait for the
backups leaves a ticket (``Awaited``), and is released when all of them have the change.

**Positions** go later, because they change with every message. So that messages cost nothing they are compared by a
scan, some clients at a time: every ``period_us``; or, by threshold, more often, and sent when so many clients' differ.
The **volume out of sync** (REAPS IV-B) is the bytes that these clients were sent since their positions were given out:
about what is delivered twice if the broker fails now.

**A backup that does not answer** within ``wait_us`` is *degraded*: nobody waits for it any longer, and its update is
sent on, more and more seldom. It counts again when it answers in time, and lacks nothing but what the next update has.
One that lacks something, or is new, is sent everything, as a new series. Until then the primary remembers which clients
are dirty, never messages.

**A process that begins** tells all brokers so (``Begun``), several times: a former backup of an earlier process is sent
nothing else, and has to give out the wills that it knows.

A backup that is idle is asked now and then whether it still has what it had (``Probe``): it may have been restarted. As
long as all of them have, the pauses grow to PROBE_MAX_US. A backup that says that it began (``Begun``) is asked at
once.

Invariants: a ticket is released as *synced* only when every backup of that moment has answered an update that was made
after the ticket came, or needed none; it is released within ``wait_us`` in any case, once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

from tocsin.core.machine import (
    CancelTimer,
    Effect,
    Received,
    Say,
    Send,
    SetTimer,
    Started,
    Table,
    TableMachine,
    TimerFired,
)
from tocsin.core.replication.gamma import CopiedState
from tocsin.core.replication.recipient import Recipient
from tocsin.core.replication.signals import Altered, Awaited, BackupsSet, Came, Policy, Released
from tocsin.model.network import Message, broker_address
from tocsin.wire.internal.replication import (
    LOCAL,
    REMOTE,
    Applied,
    Begun,
    Behind,
    Declined,
    Dismiss,
    Positions,
    Probe,
    Role,
    Series,
)

BEGUN_MAX_S: Final = 32  # between the last two times: longer than a former backup keeps its copy
FLUSH_US: Final = 0  # in the next turn of the loop: the changes of this turn go together
PROBE_US: Final = 2_000_000
PROBE_MAX_US: Final = (
    32_000_000  # between probes that found nothing new; less than a former backup keeps its copy
)
RESEND_US: Final = 100_000  # some fifty round trips
RESEND_MAX_US: Final = 5_000_000
DECLINED_US: Final = 30_000_000  # before a backup that had no room is asked again
# … or a backup that knows a younger process: that may still be there, and then each declines the other's series in
# turn.
YOUNGER_US: Final = 3_000_000
SLICE_US: Final = 1_000  # between two slices of a scan
# Between two scans by threshold: 100 ms and 0.1 ms for each client, so that looking takes about one percent.
LOOK_US: Final = 100_000
LOOK_CLIENT_US: Final = 100
SCAN_SLICE: Final = 500  # clients that are looked at in one go: about a millisecond


class PrimaryState(StrEnum):
    """Whether a primary has started."""

    NEW = "new"
    RUNNING = "running"


class PrimaryTimer(StrEnum):
    """The timers of a primary."""

    BEGUN = "begun"  # this process says again that it began
    FLUSH = "flush"  # what this turn of the loop brought goes to the backups
    WAIT = "wait"  # the next ticket's patience is over
    PROBE = "probe"  # whether backups are there, and have everything
    SCAN = "scan"  # of positions
    RESEND_LOCAL = "resend local"  # an answer of a backup is missing
    RESEND_REMOTE = "resend remote"


def resend_timer(role: Role) -> PrimaryTimer:
    """The timer for the answer of one of the two backups."""
    return PrimaryTimer.RESEND_LOCAL if role == LOCAL else PrimaryTimer.RESEND_REMOTE


class Primary(TableMachine):
    """Sends a broker's client state to its two backups."""

    timers = PrimaryTimer
    state: PrimaryState = PrimaryState.NEW

    def __init__(self, broker: str, gamma: CopiedState, policy: Policy, others: Iterable[str] = ()) -> None:
        """``others``: the names that other brokers may have."""
        self._broker = broker
        self._others = tuple(each for each in others if each != broker)
        self._begun_s = 1  # after which this process announces again that it began
        self._gamma = gamma
        self._policy = policy
        self._incarnation = 0
        self._series_count = 0
        self._epoch = 0
        self.recipients: dict[Role, Recipient] = {}
        self._waiting: dict[int, int] = {}  # ticket → for how many backups it waits
        self._missed: set[int] = set()  # tickets that a backup will not have in time
        self._deadlines: deque[tuple[int, int]] = deque()  # (when, ticket), in order
        self._flushing = False
        self._probe_us = PROBE_US  # until the next probe
        self._scan = PositionScan(gamma)
        self.resyncs = 0  # series that began because a backup lacked something
        self.missed = 0  # tickets that were released without being synced

    def statistics(self) -> dict[str, int]:
        recipients = self.recipients.values()
        return {
            "backups": len(recipients),
            "backups_degraded": sum(each.degraded for each in recipients),
            "backups_behind": max((each.behind for each in recipients), default=0),
            "positions_out_of_sync": len(self._scan.found)
            + max((each.unmoved for each in recipients), default=0),
            "volume_out_of_sync": self._scan.volume,
            "replication_resyncs": self.resyncs,
            "replication_waits": len(self._waiting),
            "replication_waits_missed": self.missed,
            "replication_wills_left_out": sum(each.large_wills for each in recipients),
        }

    def problems(self) -> list[str]:
        """The backups that do not have everything, as text."""
        return [f"{each.role} backup {each.backup}" for each in self.recipients.values() if each.degraded]

    # ── backups ─────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, event: Started, now_us: int) -> list[Effect]:
        self.state, self._incarnation = PrimaryState.RUNNING, event.incarnation
        return self._tell_begun()

    def _tell_begun(self) -> list[Effect]:
        if not self._others or self._begun_s > BEGUN_MAX_S:
            return []
        word = Begun(self._broker, self._incarnation)
        told: list[Effect] = [Send(to=broker_address(each), message=word) for each in self._others]
        timer = SetTimer(name=PrimaryTimer.BEGUN, delay_us=self._begun_s * 1_000_000)
        self._begun_s *= 2
        return [*told, timer]

    def _set_backups(self, event: BackupsSet, now_us: int) -> list[Effect]:
        self._epoch = max(self._epoch, event.epoch)
        waiting = {ticket: each for one in self.recipients.values() for ticket, each in one.tickets.items()}
        changed, dismissed = False, list[Recipient]()
        wanted: dict[Role, str | None] = {LOCAL: event.local, REMOTE: event.remote}
        for role, backup in wanted.items():
            before = self.recipients.pop(role, None)
            if before is not None and before.backup == backup:
                self.recipients[role] = before
                continue
            changed = changed or before is not None or backup is not None
            if backup is not None:
                self.recipients[role] = self._recruit(backup, role, waiting)
            if before is not None:
                dismissed.append(before)
        effects = [effect for each in dismissed for effect in self._part(each)]
        if not changed:
            return []
        if not self.recipients:
            self._scan.clear()
            return [*effects, *(CancelTimer(name=name) for name in (PrimaryTimer.SCAN, PrimaryTimer.PROBE))]
        return [*effects, self._probe_soon(), self._scan_later(), *self._flush_later()]

    def _recruit(self, backup: str, role: Role, waiting: Mapping[int, str]) -> Recipient:
        """A new backup, for which those wait who wait already."""
        recipient = Recipient(backup, role, self._next_series(), self._known())
        for ticket, client in waiting.items():
            if recipient.wait(client, ticket):
                self._waiting[ticket] += 1
        return recipient

    def _part(self, before: Recipient) -> list[Effect]:
        """A backup is one no longer, and nobody waits for it."""
        dismissed = self._send(before, Dismiss(self._broker, before.series))
        timer = CancelTimer(name=resend_timer(before.role))
        return [dismissed, timer, *self._done(before.release())]

    def _known(self) -> Iterable[str]:
        """The clients of which a series has to tell: all, and those whose wills are settled."""
        yield from self._gamma.clients()
        yield from self._gamma.voided()

    def _next_series(self) -> Series:
        self._series_count += 1
        return self._epoch, self._incarnation, self._series_count

    def _send(self, to: Recipient, message: Message) -> Effect:
        return Send(to=broker_address(to.backup), message=message)

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_came(self, event: Came, now_us: int) -> list[Effect]:
        for each in self.recipients.values():
            each.came(event.client)
        return self._flush_later()

    def _on_altered(self, event: Altered, now_us: int) -> list[Effect]:
        for each in self.recipients.values():
            each.altered(event.client, event.names)
        if not event.names and self._gamma.head(event.client) is None:
            self._scan.forget(event.client)
        return self._flush_later()

    def _flush_later(self) -> list[Effect]:
        if self._flushing or not self.recipients:
            return []
        self._flushing = True
        return [SetTimer(name=PrimaryTimer.FLUSH, delay_us=FLUSH_US)]

    def _flush(self, now_us: int) -> list[Effect]:
        self._flushing = False
        effects: list[Effect] = []
        for each in self.recipients.values():
            effects += self._update(each, now_us)
        return effects

    def _update(self, to: Recipient, now_us: int) -> list[Effect]:
        """Send the next update, unless one is under way."""
        update = to.make(self._broker, self._gamma, sole=len(self.recipients) == 1)
        if update is None:
            return []
        if to.silent_since_us is None:
            to.silent_since_us = now_us
        to.sent_us, to.delay_us = now_us, RESEND_US
        resend = SetTimer(name=resend_timer(to.role), delay_us=to.delay_us)
        return [self._send(to, update), resend]

    # ── tickets ─────────────────────────────────────────────────────────────────────────────────────────────

    def _await(self, event: Awaited, now_us: int) -> list[Effect]:
        count = 0
        for each in self.recipients.values():
            if each.degraded:
                self._missed.add(event.ticket)
            elif each.wait(event.client, event.ticket):
                count += 1
        self._waiting[event.ticket] = max(1, count)
        if not count:
            return self._done((event.ticket,))
        self._deadlines.append((now_us + self._policy.wait_us, event.ticket))
        first = len(self._deadlines) == 1
        timer = SetTimer(name=PrimaryTimer.WAIT, delay_us=self._policy.wait_us)
        return [*([timer] if first else []), *self._flush_later()]

    def _done(self, tickets: Iterable[int]) -> list[Effect]:
        """One backup less to wait for."""
        synced: list[int] = []
        missed: list[int] = []
        for ticket in tickets:
            self._waiting[ticket] -= 1
            if not self._waiting[ticket]:
                del self._waiting[ticket]
                (missed if ticket in self._missed else synced).append(ticket)
        self._missed.difference_update(missed)
        self.missed += len(missed)
        effects: list[Effect] = [Released(tickets=tuple(synced), synced=True)] if synced else []
        return [*effects, Released(tickets=tuple(missed), synced=False)] if missed else effects

    def _on_deadline(self, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._deadlines and self._deadlines[0][0] <= now_us:
            _, ticket = self._deadlines.popleft()
            if ticket in self._waiting:
                for each in self.recipients.values():
                    if ticket in each.tickets:
                        effects += self._degrade(each)
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            self._deadlines.popleft()
        if self._deadlines:
            delay_us = max(1, self._deadlines[0][0] - now_us)
            effects.append(SetTimer(name=PrimaryTimer.WAIT, delay_us=delay_us))
        return effects

    def _degrade(self, backup: Recipient) -> list[Effect]:
        said: list[Effect] = []
        if not backup.degraded:
            backup.degraded = True
            facts = {"backup": backup.backup, "role": backup.role, "behind": backup.behind}
            words = "a backup does not answer in time; the broker goes on without it"
            said = [Say(text=words, level="warning", facts=facts)]
        tickets = backup.release()
        self._missed.update(tickets)
        return [*said, *self._done(tickets)]

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        message = event.message
        if isinstance(message, Begun):
            return self._on_begun(message.primary, now_us)
        assert isinstance(message, Applied | Behind | Declined), "nothing else is for a primary"
        for each in self.recipients.values():
            if each.backup == message.backup and each.series == message.series:
                match message:
                    case Applied(number=number):
                        return self._on_applied(each, number, now_us)
                    case Behind():
                        self.resyncs += 1
                        return self._begin_anew(each, now_us)
                    case Declined(known=known):
                        return self._on_declined(each, known)
        if isinstance(message, Declined) and message.known and message.series == self._named_in_begun():
            # An earlier process had a clock that was ahead.
            self._incarnation = max(self._incarnation, message.known[1] + 1)
            self._begun_s = 1
            return self._tell_begun()
        return []  # of a series that is over

    def _named_in_begun(self) -> Series:
        return 0, self._incarnation, 0

    def _on_applied(self, by: Recipient, number: int, now_us: int) -> list[Effect]:
        if number != by.number:
            return []  # a repeated answer to an earlier update
        in_time = by.flight is None or now_us - by.sent_us < self._policy.wait_us
        probed = by.flight is None and by.silent_since_us is not None
        by.silent_since_us = None
        effects: list[Effect] = self._probe_later() if probed else []
        if by.flight is not None:
            effects = [CancelTimer(name=resend_timer(by.role)), *self._done(by.landed())]
        has_all = by.whole  # of the series' beginning; the rest is what changed since
        effects += self._update(by, now_us)
        if by.degraded and has_all and by.level and in_time:
            by.degraded = False
            facts = {"backup": by.backup, "role": by.role}
            effects.append(Say(text="a backup has caught up", facts=facts))
        return effects

    def _on_begun(self, broker: str, now_us: int) -> list[Effect]:
        """A broker has a new process. If it is a backup, it has nothing."""
        begun = [each for each in self.recipients.values() if each.backup == broker]
        return [*self._ask(begun, now_us), self._probe_soon()] if begun else []

    def _begin_anew(self, to: Recipient, now_us: int) -> list[Effect]:
        to.restart(self._next_series(), self._known())
        return self._update(to, now_us)

    def _on_declined(self, by: Recipient, known: Series | None) -> list[Effect]:
        """It has no room; or a process of our name that it takes for a younger one has written to it."""
        if by.declined:
            return []
        by.declined, by.flight = True, None
        if known is not None:
            self._epoch = max(self._epoch, known[0])
            self._incarnation = max(self._incarnation, known[1] + 1)
        words = "a backup has no room" if known is None else "a backup knows a younger process of this broker"
        said = Say(text=words, level="warning", facts={"backup": by.backup})
        delay_us = DECLINED_US if known is None else YOUNGER_US
        resend = SetTimer(name=resend_timer(by.role), delay_us=delay_us)
        return [said, resend, *self._degrade(by)]

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        match event.name:
            case PrimaryTimer.FLUSH:
                return self._flush(now_us)
            case PrimaryTimer.WAIT:
                return self._on_deadline(now_us)
            case PrimaryTimer.SCAN:
                return self._look(now_us)
            case PrimaryTimer.PROBE:
                return self._probe(now_us)
            case PrimaryTimer.BEGUN:
                return self._tell_begun()
            case PrimaryTimer.RESEND_LOCAL:
                return self._resend(self.recipients.get(LOCAL), now_us)
            case PrimaryTimer.RESEND_REMOTE:
                return self._resend(self.recipients.get(REMOTE), now_us)
        return []

    def _resend(self, to: Recipient | None, now_us: int) -> list[Effect]:
        if to is None:
            return []
        if to.declined:
            return self._begin_anew(to, now_us)
        if to.flight is None:
            return []
        to.delay_us = min(2 * to.delay_us, RESEND_MAX_US)
        again = [
            self._send(to, to.flight),
            SetTimer(name=resend_timer(to.role), delay_us=to.delay_us),
        ]
        return [*again, *self._judge(to, now_us)]

    def _probe_soon(self) -> Effect:
        self._probe_us = PROBE_US
        return SetTimer(name=PrimaryTimer.PROBE, delay_us=PROBE_US)

    def _probe(self, now_us: int) -> list[Effect]:
        again = SetTimer(name=PrimaryTimer.PROBE, delay_us=PROBE_US)  # unless all answer
        return [again, *self._ask(self.recipients.values(), now_us)]

    def _probe_later(self) -> list[Effect]:
        """A probe was answered. If all backups are there, the next one waits longer."""
        if any(each.silent_since_us is not None or each.degraded for each in self.recipients.values()):
            return []
        self._probe_us = min(2 * self._probe_us, PROBE_MAX_US)
        return [SetTimer(name=PrimaryTimer.PROBE, delay_us=self._probe_us)]

    def _ask(self, backups: Iterable[Recipient], now_us: int) -> list[Effect]:
        """Whether backups have what they were sent."""
        effects: list[Effect] = []
        for each in backups:
            if each.flight is None and not each.declined:
                if each.silent_since_us is None:
                    each.silent_since_us = now_us
                effects.append(self._send(each, Probe(self._broker, each.series, each.number)))
                effects += self._judge(each, now_us)
        return effects

    def _judge(self, backup: Recipient, now_us: int) -> list[Effect]:
        since_us = backup.silent_since_us
        late = since_us is not None and now_us - since_us >= self._policy.wait_us
        return self._degrade(backup) if late and not backup.degraded else []

    # ── positions ───────────────────────────────────────────────────────────────────────────────────────────

    def _scan_later(self) -> Effect:
        policy = self._policy
        by_threshold = LOOK_US + LOOK_CLIENT_US * len(self._scan.told)
        delay_us = policy.period_us if policy.mode == "periodic" else by_threshold
        return SetTimer(name=PrimaryTimer.SCAN, delay_us=delay_us)

    def _look(self, now_us: int) -> list[Effect]:
        """Look at the positions of the next few clients."""
        if not self._scan.look():
            return [SetTimer(name=PrimaryTimer.SCAN, delay_us=SLICE_US)]
        return [self._scan_later(), *(self._give_out() if self._is_enough() else [])]

    def _is_enough(self) -> bool:
        """Whether the positions that differ are to be sent."""
        policy, found = self._policy, len(self._scan.found)
        if policy.mode == "periodic" or not found:
            return bool(found)
        by_clients = 0 < policy.threshold <= found
        return by_clients or 0 < policy.threshold_bytes <= self._scan.volume

    def _give_out(self) -> list[Effect]:
        """Have the positions sent that differ."""
        for client in self._scan.give_out():
            for each in self.recipients.values():
                each.moved(client)
        return self._flush_later()

    table: ClassVar[Table] = {
        (PrimaryState.NEW, Started): _start,
        (PrimaryState.RUNNING, BackupsSet): _set_backups,
        (PrimaryState.RUNNING, Came): _on_came,
        (PrimaryState.RUNNING, Altered): _on_altered,
        (PrimaryState.RUNNING, Awaited): _await,
        (PrimaryState.RUNNING, Received): _on_message,
        (PrimaryState.RUNNING, TimerFired): _on_timer,
    }


class PositionScan:
    """Finds the clients whose positions the backups do not know yet, one scan after the other."""

    def __init__(self, gamma: CopiedState) -> None:
        self._gamma = gamma
        self.told: dict[str, Positions] = {}  # client → the positions that were last given out
        self.found: dict[str, None] = {}  # by the scan under way, or the last: clients whose positions differ
        self.volume = 0  # bytes that these were sent since their positions were given out
        self._volumes: dict[str, int] = {}  # client → the bytes that it had been sent then
        self._rest: Iterator[str] | None = None  # those still to be looked at; None: no scan is under way

    @property
    def under_way(self) -> bool:
        """Whether a scan has begun, and is not at its end."""
        return self._rest is not None

    def look(self) -> bool:
        """Look at the next few clients, of a new scan if none is under way; whether these were the last."""
        if self._rest is None:
            self._rest, self.found, self.volume = iter(tuple(self._gamma.clients())), {}, 0
        some = tuple(islice(self._rest, SCAN_SLICE))
        for client in some:
            positions = self._gamma.positions(client)
            if positions is not None and positions != self.told.get(client):
                self.found[client] = None
                sent = self._gamma.volume(client)
                before = self._volumes.get(client, 0)
                self.volume += sent - before if sent >= before else sent  # less: it is another connection
        if len(some) == SCAN_SLICE:
            return False
        self._rest = None
        return True

    def give_out(self) -> list[str]:
        """The clients that were found and still have positions, with their current positions."""
        found, self.found, self.volume = self.found, {}, 0
        given: list[str] = []
        for client in found:
            positions = self._gamma.positions(client)
            if positions is not None:
                self.told[client] = positions
                self._volumes[client] = self._gamma.volume(client)
                given.append(client)
        return given

    def forget(self, client: str) -> None:
        """It is no client any more."""
        self.told.pop(client, None)
        self._volumes.pop(client, None)
        self.found.pop(client, None)

    def clear(self) -> None:
        """There is no backup any more."""
        self.told, self.found, self._rest = {}, {}, None
        self._volumes, self.volume = {}, 0
