"""The cells of the backend subscriptions that one broker holds: which are stored, and writing the others.

    absent ──wanted──► put ──Stored──► stored ──unwanted──► delete (of that revision) ──► absent

``core.cells`` writes each. A request whose outcome is not known is asked again before anything else. A put that may
have happened is put once more, also if nobody wants the cell any longer: so its revision is known, and only a known
revision is ever deleted. A delete that may have happened, or may still happen, can do no harm to a newer cell.

Nothing is deleted before a scan was whole (``scanned``): until then the wanted cells are unknown. An unknown cell that
a scan finds is deleted; or put again, if it is wanted. To take it for stored would be quicker after a start; but a
delete may be on its way to it, also one of the process before, which ended while the store was slow.

**The owner of a name.** A process that was just started, or that no leader hears, may not know that a standby has its
name, nor the subscriptions of the standby's clients. So while no leader counts on the process nothing is deleted
(``count``); and only a scan that began when one did says what nobody wants.

**A borrowed name.** A standby in the place of a lost broker has its cells, and the broker may not be dead: it believes
that its cells are there. So while the name is borrowed nothing is deleted: the other may delete what it has put itself,
by its revision, and no more. The broker's own scan finds leftover cells, when it is back.

**Later.** Cells that nobody waits for are written LATER_MAX at a time, with a pause in between: at a takeover, and when
a broker with many stored sessions starts, clients wait for other writes. A cell whose k a standby cell covers waits
LATER_US first. One for the session of a client that is away does not: until it is written, a late delete of the
incarnation before could take the old cell away.

Invariants: one request at a time for each cell; a ticket is answered when the cells of all that it waits for are
stored, or are not wanted any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from tocsin.core.cells import CellRules, CellWriter
from tocsin.core.channels.channel_filter import Bound
from tocsin.core.channels.signals import Held, HoldingsTimer, Unheld
from tocsin.core.machine import DeleteKey, Effect, SetTimer, Stored, StoreFailed
from tocsin.errors import StoreFull
from tocsin.model.results import SUBSCRIPTIONS, BackendSubscription, encode_subscription

ORPHAN: Final = "orphan "  # before the key: requests about cells that nobody knew
AGAIN_US: Final = 1_000_000  # before failed requests are tried once more
LATER_US: Final = 1_000_000  # longer than clients of a lost broker take to come
LATER_MAX, LATER_PAUSE_US = 64, 50_000  # as many as standby cells at a time, and as seldom


class _Cell(msgspec.Struct):
    """The cell of one k."""

    k: str
    subscription: BackendSubscription
    cell: CellWriter
    names: dict[str, None] = {}  # wanted ones that mean it
    tickets: dict[int, None] = {}
    found: bool = True  # since the last scan began, by it or by a write of ours

    @property
    def stored(self) -> bool:
        """Whether the cell is there, and nothing of ours is about to take it away."""
        cell = self.cell
        return cell.revision > 0 and not cell.unsure and cell.asked != "delete"


class SubscriptionCells:
    """Writes and deletes the cells of the backend subscriptions that one broker holds."""

    def __init__(self, broker: str, *, standby: bool = False) -> None:
        self._broker = broker
        self._standby = standby
        words = "a subscription to a channel is not stored yet"
        again = HoldingsTimer.AGAIN_STANDBY if standby else HoldingsTimer.AGAIN
        self._rules = CellRules(SUBSCRIPTIONS, words, again, AGAIN_US, conditional=False)
        self._cells: dict[str, _Cell] = {}  # by k
        self._keys: dict[str, _Cell] = {}  # the same, by their keys
        self._may_delete = False
        self.counted = True  # a leader counts on the process under its name …
        self._sure = True  # … and has since the scan under way began
        self.known = False  # a scan that was sure was whole
        self.borrowed = False  # the name is that of a broker that is gone, and perhaps not dead
        self._orphans: dict[str, int] = {}  # keys that a scan found and of which nothing is known → revision
        self._dropped: dict[
            str, None
        ] = {}  # keys that were deleted since the scan began, which may not know it
        self._waiting: dict[int, int] = {}  # ticket → for how many cells it waits
        self._unseen: dict[
            str, int
        ] = {}  # k → revision (0: not stored), while no tick is known to have seen it
        self._failed: dict[str, None] = {}  # keys to try again
        self._later: dict[str, None] = {}  # ks whose cells nobody waits for, and that are not asked for yet …
        self._later_us = 0  # … and after how long the first of them are

    def __len__(self) -> int:
        return len(self._cells)

    def count(self, counted: bool) -> list[Effect]:
        """A leader counts on the process under its name, or does not."""
        self.counted, self._sure = counted, counted and self._sure
        self._may_delete = counted and self.known and not self.borrowed
        if not self._may_delete:
            return []
        left = [cell for cell in self._cells.values() if not cell.names]
        return [effect for cell in left for effect in self._settle(cell)]

    def names(self, k: str) -> Iterable[str]:
        """The wanted names that mean k."""
        cell = self._cells.get(k)
        return () if cell is None else cell.names

    def holds(self, k: str) -> bool:
        """Whether k is wanted, and its cell is stored."""
        cell = self._cells.get(k)
        return cell is not None and bool(cell.names) and cell.stored

    def awaits(self, k: str) -> bool:
        """Whether k is wanted, and its cell is not stored yet."""
        cell = self._cells.get(k)
        return cell is not None and bool(cell.names) and not cell.stored

    def unseen(self, seen: int) -> set[str]:
        """The ks whose cells a tick did not know that knew the table up to this revision."""
        if seen:
            self._unseen = {k: revision for k, revision in self._unseen.items() if not 0 < revision <= seen}
        return set(self._unseen)

    # ── wanted cells ────────────────────────────────────────────────────────────────────────────────────────

    def want(self, name: str, bound: Bound, *, later_us: int | None = None) -> list[Effect]:
        """A name means this k. ``later_us``: nobody waits for its cell, which can be written then; None: now."""
        k = bound.k
        cell = self._cells.get(k)
        if cell is None:
            subscription = BackendSubscription(bound.channel, bound.values, self._broker, self._standby)
            key = subscription.key
            self._orphans.pop(key, None)
            cell = self._cells[k] = self._keys[key] = _Cell(k, subscription, CellWriter(self._rules, key))
            self._unseen[k] = 0
        cell.names[name] = None
        if later_us is None or cell.cell.busy or cell.stored:
            return self._settle(cell)
        sooner = not self._later or later_us < self._later_us
        self._later[k] = None
        if not sooner:
            return []
        self._later_us = later_us
        return [SetTimer(name=HoldingsTimer.LATER, delay_us=later_us)]

    def late(self) -> list[Effect]:
        """Write some of the cells that nobody waits for."""
        due = [self._cells[k] for k in islice(self._later, LATER_MAX)]
        effects = [effect for cell in due for effect in self._settle(cell)]
        if self._later:
            self._later_us = LATER_PAUSE_US
            effects.append(SetTimer(name=HoldingsTimer.LATER, delay_us=LATER_PAUSE_US))
        return effects

    def unwant(self, name: str, bound: Bound) -> list[Effect]:
        cell = self._cells[bound.k]
        del cell.names[name]
        return self._settle(cell)

    def wait(self, ticket: int, ks: Iterable[str]) -> list[Effect]:
        """Answer the ticket when these are stored."""
        pending = [self._cells[k] for k in dict.fromkeys(ks) if not self._cells[k].stored]
        if not pending:
            return [Held(tickets=(ticket,))]
        self._waiting[ticket] = len(pending)
        for cell in pending:
            cell.tickets[ticket] = None
        return [effect for cell in pending if cell.k in self._later for effect in self._settle(cell)]

    def _answer(self, cell: _Cell) -> list[Effect]:
        done: list[int] = []
        for ticket in cell.tickets:
            self._waiting[ticket] -= 1
            if not self._waiting[ticket]:
                del self._waiting[ticket]
                done.append(ticket)
        cell.tickets.clear()
        return [Held(tickets=tuple(done))] if done else []

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, cell: _Cell) -> list[Effect]:
        """Ask for what makes the cell as it should be, unless something is asked already."""
        self._later.pop(cell.k, None)
        if cell.cell.busy:
            return []
        if cell.names:
            return self._answer(cell) if cell.stored else [self._put(cell)]
        answered = self._answer(cell)  # nobody waits for what nobody wants
        if not cell.cell.revision and not cell.cell.unsure:
            self._drop(cell)
            return answered
        if not cell.cell.revision:
            return [*answered, self._put(cell)]
        if not self._may_delete:
            return answered
        self._unseen[cell.k] = 0
        return [*answered, cell.cell.remove()]

    def _put(self, cell: _Cell) -> Effect:
        return cell.cell.write(encode_subscription(cell.subscription))

    def _drop(self, cell: _Cell) -> None:
        del self._cells[cell.k], self._keys[cell.subscription.key]
        self._unseen.pop(cell.k, None)
        self._dropped[cell.subscription.key] = None

    def stored(self, event: Stored) -> list[Effect]:
        cell = self._keys.get(event.request)
        if cell is None or cell.cell.stored(event).kind == "ignored":
            return []  # an orphan is deleted, of which nothing is to be known
        cell.found = True
        self._unseen[cell.k] = cell.cell.revision
        return self._settle(cell)

    def failed(self, event: StoreFailed) -> list[Effect]:
        cell = self._keys.get(event.request)
        if cell is None:
            return []
        is_put = cell.cell.asked == "put"
        step = cell.cell.failed(event)
        if step.kind == "ignored":
            return []
        if step.kind == "overtaken":  # it is gone, or a younger process of our name has written it
            return self._settle(cell)
        full = cell.tickets and is_put and isinstance(event.error, StoreFull)
        refused: list[Effect] = [Unheld(tickets=self._refuse(cell))] if full else []
        first = not self._failed
        self._failed[event.request] = None
        return [*refused, *step.effects] if first else refused

    def _refuse(self, full: _Cell) -> tuple[int, ...]:
        """Have nobody wait for a cell any more; those who did."""
        tickets = tuple(full.tickets)
        for cell in self._cells.values():
            for ticket in tickets:
                cell.tickets.pop(ticket, None)
        for ticket in tickets:
            del self._waiting[ticket]
        return tickets

    def again(self) -> list[Effect]:
        """Repeat the failed requests."""
        failed, self._failed = self._failed, {}
        effects: list[Effect] = []
        for key in failed:
            cell = self._keys.get(key)
            if cell is not None:
                cell.cell.drop()
                self._unseen[cell.k] = cell.cell.revision if cell.stored else 0
                effects += self._settle(cell)
        return effects

    # ── scans ───────────────────────────────────────────────────────────────────────────────────────────────

    def scan(self) -> None:
        """Scan the table again."""
        self._orphans, self._dropped, self._sure = {}, {}, self.counted
        for cell in self._cells.values():
            cell.found = False

    def found(self, key: str, revision: int) -> None:
        """The scan found a cell of ours."""
        cell = self._keys.get(key)
        if cell is not None:
            cell.found = True
        elif key not in self._dropped:
            self._orphans[key] = revision

    def scanned(self) -> list[Effect]:
        """The scan is over, so that all who want something are known: delete what nobody wants, and write once more
        what should have been found."""
        self.known = self.known or self._sure
        self._may_delete = self._sure and not self.borrowed
        effects: list[Effect] = []
        for cell in tuple(self._cells.values()):
            if cell.stored and not cell.found and not cell.cell.busy:
                cell.cell.revision = 0
            if (not cell.names or not cell.stored) and cell.k not in self._later:
                effects += self._settle(cell)
        orphans, self._orphans = self._orphans, {}
        if not self._may_delete:
            return effects
        return [*effects, *(_delete(ORPHAN + key, key, revision) for key, revision in orphans.items())]


def _delete(request: str, key: str, revision: int) -> Effect:
    return DeleteKey(request=request, table=SUBSCRIPTIONS, key=key, revision=revision)
