"""One backup from its primary's side: what it was sent, what it still lacks, and the tickets that wait for it.

A client is *dirty* if the backup may know something of it that is no longer so; **dirt** says what: subscriptions by
name, the rest, positions, or all of it. It says nothing of how things are: that is read (``CopiedState``) when an
update is made, so that a thousand changes of one client between two updates are one delta. At the beginning of a series
every client is *pending*: dirty, but without hurry; clients that change in that time go first.

One update is under way at a time; it is sent again until it is answered. Changes before the answer are the next update.
An update is bounded in bytes; a client with more subscriptions than fit is sent in several.

Invariants: whatever the backup does not have is dirty, pending, or in the update under way; a ticket is with the
dirt that it waits for, or with the update that carries it, and with nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from tocsin.core.replication.gamma import CopiedState
from tocsin.model.publication import encode_publication
from tocsin.wire.internal.replication import Delta, Head, Option, Role, Series, Update

UPDATE_MAX_BYTES: Final = (
    128 << 10
)  # some 500 clients; with the largest piece below half of what the bus takes
WILL_MAX_BYTES: Final = (
    256 << 10
)  # a larger one is not copied: MQTT has 64 kB of payload, the rest is properties
NAMES_MAX: Final = 1_000  # changed subscriptions of one client, before all of it is sent
SLICE: Final = 500  # clients: about what an update has room for
CLIENT_BYTES: Final = 120  # of a delta, beside names
NAME_BYTES: Final = 24  # of a subscription, beside its name


class Dirt:
    """The changes of one client since the last update."""

    __slots__ = ("begin", "head", "names", "positions", "tickets")

    def __init__(self, *, begin: bool = False) -> None:
        self.begin = begin  # everything
        self.head = False
        self.names: dict[str, None] = {}
        self.positions = False
        self.tickets: list[int] = []


class Recipient:
    """One backup: what it was sent, what it still lacks, and the tickets that wait for it."""

    def __init__(self, backup: str, role: Role, series: Series, clients: Iterable[str]) -> None:
        self.backup = backup
        self.role: Role = role
        self.series = series
        self.number = 0  # of the last update that was made
        self.flight: Update | None = None  # the update without an answer yet
        self.degraded = False  # it did not answer in time, and is still behind
        self.declined = False  # it does not want this series
        self.sent_us = 0  # when the update under way was sent first
        self.silent_since_us: int | None = None  # when the oldest unanswered update was sent
        self.delay_us = 0  # before it is sent again
        self.whole = False  # everything of this series was sent once, or is in the update under way
        self.large_wills = 0  # that were left out
        self.tickets: dict[int, str] = {}  # all that wait here → the client
        self._dirty: dict[str, Dirt] = {}
        self._pending: dict[str, None] = dict.fromkeys(clients)
        self._flying: dict[str, list[int]] = {}  # the clients in the update under way → tickets
        self._moved: dict[str, None] = {}  # of them, those whose positions it has

    # ── what is not known there ─────────────────────────────────────────────────────────────────────────────

    @property
    def behind(self) -> int:
        """Clients of which something is still to be sent, or to be answered."""
        return len(self._dirty.keys() | self._flying.keys()) + len(self._pending)

    @property
    def unmoved(self) -> int:
        """Clients whose positions are."""
        waiting = sum(dirt.positions for dirt in self._dirty.values())
        return waiting + sum(each not in self._dirty for each in self._moved)

    @property
    def level(self) -> bool:
        """Whether it has everything, or will have it with the update under way."""
        return self.whole and not self._dirty and not self._pending

    def came(self, client: str) -> None:
        self._touch(client).begin = True

    def altered(self, client: str, names: Iterable[str]) -> None:
        if client in self._pending:
            return  # all of it is to be sent
        dirt, named = self._touch(client), False
        for name in names:
            named = True
            dirt.names[name] = None
        dirt.head = dirt.head or not named
        if len(dirt.names) > NAMES_MAX:
            dirt.begin, dirt.names = True, {}

    def moved(self, client: str) -> None:
        if client not in self._pending:
            self._touch(client).positions = True

    def _touch(self, client: str) -> Dirt:
        dirt = self._dirty.get(client)
        if dirt is None:
            begin = client in self._pending
            if begin:
                del self._pending[client]
            dirt = self._dirty[client] = Dirt(begin=begin)
        return dirt

    # ── tickets ─────────────────────────────────────────────────────────────────────────────────────────────

    def wait(self, client: str, ticket: int) -> bool:
        """Whether a ticket has to wait for what this backup does not have of a client."""
        if client in self._dirty or client in self._pending:
            self._touch(client).tickets.append(ticket)
        elif client in self._flying:
            self._flying[client].append(ticket)
        else:
            return False
        self.tickets[ticket] = client
        return True

    def release(self) -> tuple[int, ...]:
        """Let nobody wait any longer."""
        tickets, self.tickets = tuple(self.tickets), {}
        for dirt in self._dirty.values():
            dirt.tickets = []
        self._flying = {client: [] for client in self._flying}
        return tickets

    # ── updates ─────────────────────────────────────────────────────────────────────────────────────────────

    def make(self, primary: str, gamma: CopiedState, *, sole: bool = False) -> Update | None:
        """The next update; None if one is under way, or there is nothing to say. ``sole``: to the only backup."""
        if self.flight is not None or self.declined:
            return None
        room, deltas = UPDATE_MAX_BYTES, list[Delta]()
        for client in self._next():
            if client in self._pending and gamma.head(client) is None:
                del self._pending[client]  # it went: what is not repeated is dropped there
                if void := gamma.void(
                    client
                ):  # of itself: a process that had the name may have the client since
                    deltas.append(Delta(client, void=void))
                    room -= CLIENT_BYTES + len(client.encode())
                if room <= 0:
                    break
                continue
            dirt = self._touch(client)
            delta, size, done = self._delta(client, dirt, gamma, room)
            deltas.append(delta)
            room -= size
            if done:
                del self._dirty[client]
                self._flying.setdefault(client, []).extend(dirt.tickets)
                if delta.positions is not None:
                    self._moved[client] = None
            if room <= 0 or not done:
                break
        whole = not self.whole and not self._dirty and not self._pending
        if not deltas and not whole:
            return None
        self.whole = self.whole or whole
        self.number += 1
        self.flight = Update(primary, self.role, self.series, self.number, tuple(deltas), whole, sole)
        return self.flight

    def _next(self) -> Iterator[str]:
        """The clients with changes to send, dirty ones first; each is forgotten before the next is asked for.

        They are taken in slices: a table from whose front entries are taken one by one is searched through each time.
        """
        while self._dirty or self._pending:
            yield from tuple(islice(self._dirty or self._pending, SLICE))

    def _delta(self, client: str, dirt: Dirt, gamma: CopiedState, room: int) -> tuple[Delta, int, bool]:
        """The delta of a client, as far as there is room; its approximate size; whether it is all."""
        head, size = gamma.head(client), CLIENT_BYTES + len(client.encode())
        void = gamma.void(client)
        if head is None:
            return Delta(client, gone=True, void=void), size, True
        begin = dirt.begin
        if begin:
            dirt.begin, dirt.head, dirt.positions = False, True, True
            dirt.names = dict.fromkeys(gamma.names(client))
        if dirt.head:
            head, will_size = self._bounded(head)
            size += will_size
        said: list[tuple[str, Option | None]] = []
        for name in tuple(islice(dirt.names, max(1, room // NAME_BYTES))):
            if size >= room and said:
                break
            del dirt.names[name]
            said.append((name, gamma.option(client, name)))
            size += NAME_BYTES + len(name.encode())
        # A subscription may be the first of its kind: how far the client is with it goes along.
        positions = gamma.positions(client) if dirt.positions or said else None
        changed = head if dirt.head else None
        delta = Delta(client, begin, False, changed, tuple(said), positions, void if dirt.head else "")
        dirt.head = dirt.positions = False
        return delta, size, not dirt.names

    def _bounded(self, head: Head) -> tuple[Head, int]:
        if head.will is None:
            return head, 0
        size = len(encode_publication(head.will.publication))
        if size <= WILL_MAX_BYTES:
            return head, size
        self.large_wills += 1
        return Head(head.connected, head.scheme, head.expiry_s, head.session, head.owner), 0

    def landed(self) -> tuple[int, ...]:
        """The update under way is answered: the tickets that waited for it."""
        done = tuple(ticket for tickets in self._flying.values() for ticket in tickets)
        for ticket in done:
            self.tickets.pop(ticket, None)
        self.flight, self._flying, self._moved = None, {}, {}
        return done

    def restart(self, series: Series, clients: Iterable[str]) -> None:
        """The backup lacks something: begin a new series. Clients that a ticket waits for go first."""
        waiting = tuple(self.tickets.items())
        self.series, self.number, self.flight = series, 0, None
        self.whole = self.declined = False
        self._dirty, self._flying, self._moved = {}, {}, {}
        self._pending = dict.fromkeys(clients)
        self.tickets = {}
        for ticket, client in waiting:
            dirt = self._touch(client)
            dirt.begin = True
            dirt.tickets.append(ticket)
            self.tickets[ticket] = client
