"""The keeping side of replication: copies of the brokers that this broker backs.

    (REAPS, section IV: Algorithm 3, ``on lsync``, ``on rsync``)

Transitions of ``Backup``:

    *  Received, PrimariesSet, Kept, Forgotten, TimerFired

A copy belongs to one broker and to its newest run of updates (``core.replication.gamma``). The backup applies updates
in their order. It answers an update again that it has applied before. If something is missing before an update it
answers ``Behind``, and the broker sends everything. It declines a run that is older than the known one: that comes
from a process that has ended.

**As a local backup** it has the channels of its primary's clients held, as standby cells, and their queries answered:
S1 is what the copies' clients have and this broker did not prepare (``Prepare``), S2 what was prepared and no client
has any longer (``Unprepare``). Whether this broker's own clients hold them, and what they mean, is decided by
``core.channels.machine``. A remote backup only stores.

**A broker that is back before it was missed** names the clients of its new process. Clients that the old process had
and the new one lacks may be dead, and their wills were in no other memory (``WillsLeft``). Every backup reports them,
since the other may not have known. They put a will into the log under one id. A will at QoS 0 goes into no log and
would be heard twice: only the local backup reports it, or the only backup there is.

**A former backup** is sent nothing more. If its broker's next process says that it began (``Begun``), the former
backup may be the only one that knows the wills of the process before. It gives them out as well, except those at QoS
0. It gives out nothing about a process that is heard after that: a standby had begun and has gone again.

**If another broker stands in** for a broker, it says so (``Mourned``): its copy may be new and incomplete. Every broker
that has a copy as well sees to the wills in it, except those at QoS 0; the first to publish settles them for all. So
does a backup that stood in in a cluster that was cut off: it published the wills at QoS 0, and owes those above QoS 0
to the log. It also gives them out if the broker's next process is heard and nobody mourned.

**Settled wills** are remembered by their ids (``is_void``), even when the copy that had them has changed: a broker
that finds one of them in an older copy asks the others before it publishes. The backup also remembers which sessions
clients took here, and with which epoch (``note_taken``): what they left with earlier epochs is settled.

**A will whose client is connected here** (``note_here``) is this broker's to publish, and nobody else's (``sees_to``).
A broker that was taken for lost and goes on says so to whoever asks: a younger process may have written over the copy
that its own word would otherwise correct.

**A copy is dropped** some time after this broker learned that it no longer backs the other, and last heard from it. The
news may come together with the other's end, and then the copy is just what is needed. A broker that goes on with its
updates counts on its copy: it may know of a plan that this broker has not heard of. While this broker stands in for the
other, it keeps the copy (``Kept``).

Invariants: ``Applied`` is answered after the update is in the copy; what is prepared for a primary is what its copy's
clients have of channels if the copy is local, and nothing otherwise; copies are within COPIES_MAX_BYTES, except for
one update.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar, Final

from tocsin.core.delivery.taking import CopiedPositions
from tocsin.core.machine import (
    Effect,
    OneState,
    Received,
    Say,
    Send,
    SetTimer,
    Table,
    TableMachine,
    TimerFired,
)
from tocsin.core.replication.gamma import ClientSnapshot, Copy, Left
from tocsin.core.replication.signals import Forgotten, Kept, Prepare, PrimariesSet, Unprepare, WillsLeft
from tocsin.model.network import Message, broker_address
from tocsin.wire.internal.replication import (
    EPOCH,
    LOCAL,
    Applied,
    Begun,
    Behind,
    Declined,
    Dismiss,
    Mourned,
    Probe,
    Series,
    Update,
)

DROP_AFTER_US: Final = (
    60_000_000  # for another backup to have everything, and for the word of a failure to come
)
COPIES_MAX: Final = 64  # brokers that a broker backs: a plan gives it a few
VOID_MAX: Final = 50_000  # wills that are known to be settled: some 150 B each
COPIES_MAX_BYTES: Final = 256 << 20  # of all copies, about: some 125 000 clients with two subscriptions each


class BackupTimer(StrEnum):
    """The timers of a backup."""

    DROP = "drop"  # copies that are needed no longer


class Backup(TableMachine):
    """Keeps copies of the brokers that this broker backs."""

    timers = BackupTimer
    state = OneState.ONLY

    def __init__(
        self, broker: str, *, copies_max: int = COPIES_MAX, bytes_max: int = COPIES_MAX_BYTES
    ) -> None:
        self._broker = broker
        self._copies_max = copies_max
        self._bytes_max = bytes_max
        self._bytes = 0  # of all copies
        self.copies: dict[str, Copy] = {}
        self._prepared: dict[str, set[str]] = {}  # primary → what is prepared for it
        self._primaries: frozenset[str] | None = (
            None  # those that this broker backs; None: nobody has said so
        )
        self.declined = 0
        self._begun: dict[str, int] = {}  # primary → its newest process, as it said itself
        self._void: dict[str, None] = {}  # the ids of wills that are settled, oldest first
        self._taken: dict[
            str, int
        ] = {}  # session → the epoch with which it was taken here last; oldest first
        self._here: set[str] = set()  # the ids of the wills of clients that are connected here

    def is_void(self, name: str) -> bool:
        """Whether a will is known to be settled, by its id or by its session and epoch (``Bequest.names``)."""
        session, _, epoch = name.rpartition(EPOCH)
        return name in self._void or (epoch.isdigit() and self._taken.get(session, 0) > int(epoch))

    def sees_to(self, name: str) -> bool:
        """Whether another broker need not publish a will: it is settled, or its client is connected here."""
        return name in self._here or self.is_void(name)

    def note_here(self, will_id: str) -> None:
        """A client with this will is connected to this broker; harmless if it has no id."""
        if will_id:
            self._here.add(will_id)

    def note_gone(self, will_id: str) -> None:
        """That connection is over."""
        self._here.discard(will_id)

    def note_taken(self, session: str, epoch: int) -> None:
        """A client has come for its session to this broker: what it left with an earlier epoch is settled, also when
        the session has ended since, and the store knows nothing of it any more."""
        self._taken.pop(session, None)
        self._taken[session] = epoch
        if len(self._taken) > VOID_MAX:
            del self._taken[next(iter(self._taken))]

    def note_void(self, will_id: str) -> None:
        """A will is settled; harmless if it has no id."""
        if will_id:
            self._void[will_id] = None
            if len(self._void) > VOID_MAX:
                del self._void[next(iter(self._void))]

    def statistics(self) -> dict[str, int]:
        copies = self.copies.values()
        return {
            "copies": len(copies),
            "copies_whole": sum(each.whole for each in copies),
            "copied_clients": sum(len(each.clients) for each in copies),
            "copied_subscriptions": sum(each.subscriptions for each in copies),
            "copied_bytes": self._bytes,
            "copies_declined": self.declined,
        }

    def take_over(self, primary: str) -> Iterator[ClientSnapshot]:
        """Everything that is known of a broker's clients; nothing if there is no copy. Ask ``copies[…].whole``, too."""
        copy = self.copies.get(primary)
        return iter(()) if copy is None else copy.standings()

    def has(self, primary: str, client: str) -> bool | None:
        """Whether a client belongs to a broker: it is connected there, as far as the copy says; or it was there when
        that process was falsely taken for lost: that process knows best what became of it. None: it was connected there
        then, and nothing was heard since of a process in that place.
        """
        copy = self.copies.get(primary)
        if copy is None:
            return False
        replica = copy.clients.get(client)
        connected = replica is not None and replica.head.connected
        if copy.used:
            return None if connected else False
        return connected or client in copy.had

    def positions(self, client: str) -> CopiedPositions | None:
        """How far a client is in its stored session, by the copy that has its latest epoch; None: no copy knows."""
        found = [copy.clients[client] for copy in self.copies.values() if client in copy.clients]
        newest = max(found, key=lambda each: each.head.epoch, default=None)
        if newest is None or not newest.head.session:
            return None
        return CopiedPositions(newest.head.session, newest.positions)

    def settled(self, primary: str, client: str) -> bool:
        """Whether a broker that is stood in for has said since that no will of a client is left: it was only slow, and
        the client had gone in order, or came to it again."""
        copy = self.copies.get(primary)
        return copy is not None and client in copy.settled

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_message(self, event: Received, now_us: int) -> list[Effect]:
        match event.message:
            case Update() as update:
                return [
                    *self._on_update(update, now_us),
                    *self._welcome(update.primary, now_us),
                ]
            case Probe() as probe:
                return [
                    *self._on_probe(probe),
                    *self._welcome(probe.primary, now_us),
                ]
            case Dismiss(primary=primary, series=series):
                copy = self.copies.get(primary)
                if copy is None or copy.series > series:
                    return []
                return self._condemn(primary, copy, now_us)
            case Mourned(primary=primary):
                return self._on_mourned(primary, now_us)
            case Begun(primary=primary, incarnation=incarnation):
                return self._on_begun(primary, incarnation)
            case other:
                raise AssertionError(f"{other} is not for a backup")

    def _on_update(self, update: Update, now_us: int) -> list[Effect]:
        copy = self.copies.get(update.primary)
        if copy is not None and update.series < copy.series:
            return self._decline(update, copy)
        self._speaks(update.primary, update.series)
        if copy is not None and update.series == copy.series:
            copy.heard()
        if copy is None or update.series > copy.series:
            if update.number != 1:
                return [self._answer(update.primary, Behind(self._broker, update.series))]
            if copy is None and (len(self.copies) >= self._copies_max or self._bytes >= self._bytes_max):
                return self._decline(update, None)
            copy = self.copies.setdefault(update.primary, Copy(update.role))
            copy.begin(update.series, update.role)
        if update.number > copy.number + 1:
            return [self._answer(update.primary, Behind(self._broker, update.series))]
        if update.number <= copy.number:
            return [self._answer(update.primary, Applied(self._broker, copy.series, copy.number))]
        if self._bytes >= self._bytes_max:
            return self._decline(update, None)
        before, wills = copy.bytes, list[Left]()
        for delta in update.deltas:
            self.note_void(delta.void)
        sensible = all(copy.apply(delta, now_us) for delta in update.deltas)
        if sensible:
            copy.number = update.number
            wills = copy.sweep() if update.whole else wills
        self._bytes += copy.bytes - before
        answer = (
            Applied(self._broker, copy.series, copy.number) if sensible else Behind(self._broker, copy.series)
        )
        first = update.role == LOCAL or update.sole
        left = [each for each in wills if first or each.will.publication.qos]
        return [
            *self._prepare(update.primary),
            self._answer(update.primary, answer),
            *([WillsLeft(primary=update.primary, wills=tuple(left))] if left else []),
        ]

    def _on_begun(self, primary: str, incarnation: int) -> list[Effect]:
        copy = self.copies.get(primary)
        if copy is not None and copy.series[1] > incarnation:
            known = Declined(self._broker, (0, incarnation, 0), copy.series)
            return [self._answer(primary, known)]
        if len(self._begun) < self._copies_max or primary in self._begun:
            self._begun[primary] = max(incarnation, self._begun.get(primary, 0))
        return [] if copy is None else self._give_out(primary, copy)

    def _speaks(self, primary: str, series: Series) -> None:
        """A process goes on with its series: it is not over, though one in its place may have said that it began."""
        if self._begun.get(primary, 0) > series[1]:
            del self._begun[primary]

    def _on_mourned(self, primary: str, now_us: int) -> list[Effect]:
        """Another stands in for a broker. The copy's wills are used too, as if this broker stood in."""
        copy = self.copies.get(primary)
        if copy is None or copy.seen_to:
            return []
        kept = copy.kept  # this broker stands in without a leader, and needs the copy
        copy.keep(now_us)
        copy.kept = kept
        left = tuple(each for each in copy.wills() if each.will.publication.qos)
        return [WillsLeft(primary=primary, wills=left)] if left else []

    def _give_out(self, primary: str, copy: Copy) -> list[Effect]:
        """The wills that a copy knows of a process that is over, if nothing more will be heard here of that broker."""
        if copy.condemned_us is None or copy.kept or copy.seen_to or primary not in self._begun:
            return []
        before = copy.bytes
        wills = copy.over(self._begun[primary])
        self._bytes += copy.bytes - before
        left = tuple(each for each in wills if each.will.publication.qos)
        given: list[Effect] = [WillsLeft(primary=primary, wills=left)] if left else []
        return [*self._prepare(primary), *given]

    def _on_probe(self, probe: Probe) -> list[Effect]:
        copy = self.copies.get(probe.primary)
        if copy is not None and copy.series > probe.series:
            return self._decline(probe, copy)
        self._speaks(probe.primary, probe.series)
        if copy is not None and copy.series == probe.series and copy.number >= probe.number:
            copy.heard()
            return [self._answer(probe.primary, Applied(self._broker, copy.series, copy.number))]
        return [self._answer(probe.primary, Behind(self._broker, probe.series))]

    def _decline(self, message: Update | Probe, copy: Copy | None) -> list[Effect]:
        """A series that is over, or one for which there is no room."""
        self.declined += 1
        known = None if copy is None else copy.series
        answer = self._answer(message.primary, Declined(self._broker, message.series, known))
        if known is not None:
            return [answer]
        words = "there is no room for the copy of a broker's state"
        facts = {"primary": message.primary, "copies": len(self.copies), "bytes": self._bytes}
        return [Say(text=words, level="warning", facts=facts), answer]

    def _answer(self, primary: str, message: Message) -> Effect:
        return Send(to=broker_address(primary), message=message)

    # ── channels and queries ────────────────────────────────────────────────────────────────────────────────

    def _prepare(self, primary: str) -> list[Effect]:
        """Have what is prepared for a primary be what its clients have."""
        copy = self.copies.get(primary)
        wanted = copy.prepared if copy is not None and copy.role == LOCAL else {}
        prepared = self._prepared.setdefault(primary, set())
        # In one order: a set of names is iterated over in another one by every process.
        doubtful = sorted(prepared.union(wanted) if copy is None or copy.moved else copy.turned)
        more = tuple(name for name in doubtful if name in wanted and name not in prepared)
        less = tuple(name for name in doubtful if name not in wanted and name in prepared)
        prepared.update(more)
        prepared.difference_update(less)
        if not prepared:
            del self._prepared[primary]
        if copy is not None:
            copy.turned, copy.moved = set(), False
        effects: list[Effect] = [Prepare(primary=primary, names=more)] if more else []
        return [*effects, Unprepare(primary=primary, names=less)] if less else effects

    # ── which copies ────────────────────────────────────────────────────────────────────────────────────────

    def _welcome(self, primary: str, now_us: int) -> list[Effect]:
        """A broker was heard: its copy lasts a while longer, even if this broker does not back it."""
        copy = self.copies.get(primary)
        if copy is None:
            return []
        if self._primaries is None or primary in self._primaries:
            copy.condemned_us = None
        elif copy.condemned_us is None:
            return self._condemn(primary, copy, now_us)
        else:
            copy.condemned_us = now_us + DROP_AFTER_US
        return []

    def _set_primaries(self, event: PrimariesSet, now_us: int) -> list[Effect]:
        self._primaries = frozenset(event.primaries)
        effects: list[Effect] = []
        for primary, copy in self.copies.items():
            if primary in event.primaries:
                copy.condemned_us = None
            elif copy.condemned_us is None:
                effects += self._condemn(primary, copy, now_us)
        return effects

    def _condemn(self, primary: str, copy: Copy, now_us: int) -> list[Effect]:
        copy.condemned_us = now_us + DROP_AFTER_US
        timer = SetTimer(name=BackupTimer.DROP, delay_us=DROP_AFTER_US)
        return [timer, *self._give_out(primary, copy)]

    def _on_timer(self, event: TimerFired, now_us: int) -> list[Effect]:
        assert event.name == BackupTimer.DROP
        effects: list[Effect] = []
        later: list[int] = []
        for primary, copy in tuple(self.copies.items()):
            if copy.condemned_us is None or copy.kept:
                continue
            if copy.condemned_us > now_us:
                later.append(copy.condemned_us - now_us)
            else:
                effects += self._drop(primary)
        return [*effects, SetTimer(name=BackupTimer.DROP, delay_us=min(later))] if later else effects

    def _drop(self, primary: str) -> list[Effect]:
        self._bytes -= self.copies.pop(primary).bytes
        return self._prepare(primary)

    def _keep(self, event: Kept, now_us: int) -> list[Effect]:
        if (copy := self.copies.get(event.primary)) is not None:
            copy.keep(now_us, meanwhile=event.meanwhile)
        return []

    def _forget(self, event: Forgotten, now_us: int) -> list[Effect]:
        copy = self.copies.get(event.primary)
        if copy is None:
            return []
        copy.kept = False
        return self._condemn(event.primary, copy, now_us)

    table: ClassVar[Table] = {
        ("*", Received): _on_message,
        ("*", PrimariesSet): _set_primaries,
        ("*", Kept): _keep,
        ("*", Forgotten): _forget,
        ("*", TimerFired): _on_timer,
    }
