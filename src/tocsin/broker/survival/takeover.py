"""The shell of ``core.survival.takeover``: the copies of brokers that are gone, and the wills of their clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from tocsin.broker.delivery.wills import Wills
from tocsin.core.access.ownership import Claim
from tocsin.core.machine import Effect
from tocsin.core.replication.gamma import ClientSnapshot, Left
from tocsin.core.survival import takeover as core
from tocsin.core.survival.takeover import MEANWHILE, AwaitWill, ClientCame, ReleaseCopy, TakeoverMachine
from tocsin.runtime.machines.clock import now_us
from tocsin.runtime.machines.shell import Shell
from tocsin.runtime.machines.tasks import Failed


class Copies(core.Copies, Protocol):
    """This broker's knowledge of others."""

    def take_over(self, primary: str, *, meanwhile: bool) -> Iterable[ClientSnapshot]:
        """All that the copy of a broker says; it is kept until ``release``. ``meanwhile``: no leader has said that this
        broker stands in.
        """
        ...

    def release(self, primary: str) -> None: ...

    def mourn(self, primary: str) -> None:
        """Tell the other brokers that this broker stands in for a lost one."""
        ...

    def is_here(self, client: str, owner: str) -> bool:
        """Whether a client of this user is connected to this broker."""
        ...


class Takeovers:
    """The takeovers of one broker."""

    def __init__(
        self,
        machine: TakeoverMachine,
        copies: Copies,
        wills: Wills,
        *,
        failed: Failed,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._copies = copies
        self._wills = wills
        self._clock = clock
        self._machine = machine
        self._shell = Shell(self._machine, self._carry_out, failed, clock=clock)
        self._post = self._shell.post

    @property
    def brokers(self) -> tuple[str, ...]:
        return self._machine.brokers

    def statistics(self) -> dict[str, int]:
        return self._machine.statistics(self._clock())

    def close(self) -> None:
        """The broker is over: it stands in for nobody any more, and publishes nothing for others."""
        self._shell.close()

    def stand_in(self, broker: str, epoch: int = MEANWHILE) -> None:
        """A broker is lost, and this broker stands in for it. Harmless when repeated."""
        if self._machine.knows(broker, epoch):
            return
        taken = self._copies.take_over(broker, meanwhile=epoch == MEANWHILE)
        standings = tuple(each for each in taken if not self._copies.is_here(each.client, each.head.owner))
        cause = f"stand in for {broker}"
        self._post(core.StoodIn(broker=broker, epoch=epoch, standings=standings, cause=cause))
        if epoch != MEANWHILE:
            self._copies.mourn(broker)

    def stand_down(self, broker: str, *, meanwhile: bool = False) -> None:
        """That broker is back, or somebody else stands in for it."""
        cause = f"stand down for {broker}"
        self._post(core.StoodDown(broker=broker, meanwhile=meanwhile, cause=cause))

    def restarted(self, broker: str, wills: tuple[Left, ...]) -> None:
        """A broker is back that was never missed, and has forgotten these clients."""
        absent = tuple(each for each in wills if not self._copies.is_here(each.client, each.will.owner))
        if absent:
            self._post(core.Restarted(broker=broker, wills=absent, cause=f"restart of {broker}"))

    def client_alive(self, claim: Claim, *, back: bool) -> None:
        """A client is alive, at this broker or another; ``back``: for the session that it had. It does not concern
        another user's state under its id.
        """
        self._wills.came(claim.client, claim.owner, back=back)
        self.came(claim.client, claim.broker, claim.owner)

    def came(self, client: str, broker: str, owner: str = "") -> None:
        """A client of this user has come to this broker or another."""
        self._post(ClientCame(client=client, broker=broker, owner=owner, cause=client))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case AwaitWill(broker=broker, client=client, bequest=bequest, delay_s=delay_s, aloud=aloud):
                self._wills.delay(client, bequest, delay_s, moving=True, of=broker, aloud=aloud)
            case ReleaseCopy(broker=broker):
                self._copies.release(broker)
            case _:
                self._shell.carry_out(effect)
