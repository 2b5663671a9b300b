"""The TCP traffic between processes: by sender and reader.

A ``Meter`` is told which processes there are, by name, and looks now and then; every look adds what was carried since
the one before. Traffic of a connection between the last look and its end is not seen, so that an experiment with short
connections looks often. ``account`` is the pure part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from tocsin_labs import sockets
from tocsin_labs.sockets import SEGMENT_BYTES, Address, Socket

OTHERS: Final = "others"  # peers other than the named processes: clients, the experiment itself


class Amount(msgspec.Struct, frozen=True):
    """The traffic in one direction."""

    bytes: int = 0
    segments: int = 0

    @property
    def wire_bytes(self) -> int:
        """As a network interface would count it."""
        return self.bytes + self.segments * SEGMENT_BYTES

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.bytes + other.bytes, self.segments + other.segments)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.bytes - other.bytes, self.segments - other.segments)


NOTHING: Final = Amount()
Carried = dict[tuple[str, str], Amount]  # by sender and reader


class Account:
    """The traffic of all sockets that were ever seen."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[str, str]] = {}  # socket → its owner, and the process at the other end
        self._counted: dict[int, tuple[Amount, Amount]] = {}  # socket → sent, received

    def note(self, found: Iterable[Socket], owners: Mapping[int, str]) -> None:
        """``owners``: the names of processes, by the inodes of their sockets."""
        found = list(found)
        names: dict[tuple[Address, Address], str] = {}
        for each in found:
            if each.inode in owners:
                names[each.local, each.remote] = owners[each.inode]
        for each in found:
            own = names.get((each.local, each.remote))
            if own is None:
                continue
            other = names.get((each.remote, each.local), OTHERS)
            known = self._ends.get(each.cookie)
            if known is None or known[1] == OTHERS:  # the other end may be gone by now
                self._ends[each.cookie] = own, other
            sent = Amount(each.sent_bytes, each.sent_segments)
            self._counted[each.cookie] = sent, Amount(each.received_bytes, each.received_segments)

    def totals(self) -> Carried:
        """Since the first look. The traffic that others send is known from the sockets that read it."""
        found: Carried = {}
        for cookie, (own, other) in self._ends.items():
            sent, received = self._counted[cookie]
            found[own, other] = found.get((own, other), NOTHING) + sent
            if other == OTHERS:
                found[other, own] = found.get((other, own), NOTHING) + received
        return found


class Meter:
    """Counts the traffic of a set of processes. ``processes`` names those that run now: name → process id."""

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes
        self._account = Account()

    def look(self) -> Carried:
        """The traffic so far."""
        found = sockets.read()
        owners = {inode: name for name, pid in self._processes().items() for inode in sockets.inodes_of(pid)}
        self._account.note(found, owners)
        return self._account.totals()


def between(before: Carried, after: Carried) -> Carried:
    """The traffic from one look to another."""
    return {ends: amount - before.get(ends, NOTHING) for ends, amount in after.items()}


def among(carried: Carried) -> Amount:
    """The traffic between the processes, each byte once."""
    return sum((amount for ends, amount in carried.items() if OTHERS not in ends), NOTHING)


def of(carried: Carried, name: str) -> Amount:
    """The traffic that one process sent to the others, and read from them."""
    mine = (amount for ends, amount in carried.items() if name in ends and OTHERS not in ends)
    return sum(mine, NOTHING)


def without(carried: Carried, name: str) -> Carried:
    """All but what one of them said, and was told."""
    return {ends: amount for ends, amount in carried.items() if name not in ends}


def outside(carried: Carried, kind: str) -> Amount:
    """The traffic of processes with this prefix to and from others."""
    found = NOTHING
    for (sender, reader), amount in carried.items():
        process = reader if sender == OTHERS else sender if reader == OTHERS else ""
        if process.startswith(kind):
            found += amount
    return found
