"""How a broker moves to another address while it serves: first it listens there, then it tells others.

    settled ──the addresses differ──► moving ──it listens there──► settled, and the coordinator is told
                                        └── it cannot ──► settled as before: the next look tries again

Transitions of ``Readdressing``:

    settled  Looked → moving
    moving   Looked
             Listens, CannotListen → settled

The shell looks every few seconds. An address that cannot be found out changes nothing: a machine that is between two
networks has none, and what it had may be there again in a moment. Others are told of no address at which nobody
listens yet. What is reached at the same address as before is left alone, with all its connections.

Invariant: ``addresses`` are those at which the broker listens, and that others were told.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

import msgspec

from tocsin.core.machine import Effect, Event, Say, Table, TableMachine
from tocsin.model.network import BrokerInfo

At = tuple[str, int]  # host and port


class Addresses(msgspec.Struct, frozen=True):
    """Where a broker listens, by the name of the listener, and where others reach it."""

    listening: Mapping[str, At]
    info: BrokerInfo


class Looked(Event, frozen=True, kw_only=True):
    """The addresses that the broker should have now; None: ``problem`` says why they cannot be found out."""

    addresses: Addresses | None
    problem: str = ""


class Listens(Event, frozen=True, kw_only=True):
    """It listens where ``ListenAt`` said, and where it did before no longer."""


class CannotListen(Event, frozen=True, kw_only=True):
    """It does not, and listens where it did before."""

    problem: str


class ListenAt(Effect, frozen=True, kw_only=True):
    """Have these listeners listen there instead: all of them, or none."""

    listening: Mapping[str, At]


class Announce(Effect, frozen=True, kw_only=True):
    """Tell the coordinator, and through it all others, where this broker is reached from now on."""

    info: BrokerInfo


class ReaddressingState(StrEnum):
    """Whether a broker is about to listen elsewhere."""

    SETTLED = "settled"
    MOVING = "moving"


class Readdressing(TableMachine):
    """Decides when one broker listens elsewhere, and when others hear of it."""

    state: ReaddressingState = ReaddressingState.SETTLED

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self.problem: str | None = None  # why the broker is not where it should be
        self._next = addresses  # while it moves

    def _look(self, event: Looked, now_us: int) -> list[Effect]:
        if event.addresses is None:
            return self._fail(f"its address cannot be found: {event.problem}")
        found = {
            name: event.addresses.listening.get(name, at) for name, at in self.addresses.listening.items()
        }
        self._next = Addresses(found, event.addresses.info)
        elsewhere = {name: at for name, at in found.items() if at != self.addresses.listening[name]}
        if not elsewhere:
            return self._settle()
        self.state = ReaddressingState.MOVING
        return [ListenAt(listening=elsewhere)]

    def _listens(self, event: Listens, now_us: int) -> list[Effect]:
        self.state = ReaddressingState.SETTLED
        return self._settle()

    def _settle(self) -> list[Effect]:
        before, self.addresses = self.addresses, self._next
        self.problem = None
        if before == self.addresses:
            return []
        facts = {"listening": sorted({host for host, _ in self.addresses.listening.values()})}
        said = Say(text="the broker has moved to another address", facts=facts)
        told = before.info != self.addresses.info
        return [said, *([Announce(info=self.addresses.info)] if told else [])]

    def _stays(self, event: CannotListen, now_us: int) -> list[Effect]:
        self.state = ReaddressingState.SETTLED
        return self._fail(f"it cannot listen at its new address: {event.problem}")

    def _fail(self, problem: str) -> list[Effect]:
        before, self.problem = self.problem, problem
        text = "the broker stays at its old address"
        return [] if before == problem else [Say(text=text, level="warning", facts={"problem": problem})]

    def _overlook(self, event: Looked, now_us: int) -> list[Effect]:
        return []

    table: ClassVar[Table] = {
        (ReaddressingState.SETTLED, Looked): _look,
        (ReaddressingState.MOVING, Looked): _overlook,
        (ReaddressingState.MOVING, Listens): _listens,
        (ReaddressingState.MOVING, CannotListen): _stays,
    }
