"""Faults carried out on the processes of a network, and healed.

| kind | what is done |
| --- | --- |
| kill | SIGKILL, to all of the target's processes at once; ``tocsin up`` starts them again |
| restart | SIGTERM: the processes stop in order, and ``tocsin up`` starts them again |
| pause | SIGSTOP, and SIGCONT when the time is over |
| slow | SIGSTOP and SIGCONT in turns, so that a process runs for a fifth of the time |
| partition | the processes hold what goes between them back (``runtime.faults.partition``), for as long |
| lag, loss, rate | they delay what goes between them (``runtime.faults.weather``), for as long |
| own | a program is called that begins it, and called again to end it (``chaos.own``) |

``heal`` lets every process go on that was stopped, whatever happened in between, ends every cut (these end by
themselves too), and has every program end what it began.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Final

import msgspec

from tocsin.chaos import own
from tocsin.chaos.own import OwnFailed
from tocsin.chaos.parts import Child, Running
from tocsin.chaos.plan import INSTANT, ON_LINKS, OWN, Fault
from tocsin.chaos.targets import LEADER, TOGETHER, resolve, sides
from tocsin.errors import OperatorError, TocsinError
from tocsin.runtime.faults import partition_socket as cut_socket
from tocsin.runtime.faults.partition import Address
from tocsin.runtime.faults.partition_socket import CutRefused, socket_path

SLICE_S: Final = 0.1  # of a process that is slow: so long in all,
RUNS_S: Final = 0.02  # of which it runs so long


class Done(msgspec.Struct, frozen=True):
    """The outcome of a fault. ``pids`` of the parts that it met, by name; empty if none of them had a process.

    For a program of the operator's it is the program's.
    """

    pids: dict[str, int]
    connections: int = 0  # that were cut
    problem: str = ""  # why it was not carried out, if it is known


class Breaker:
    """Breaks one network. ``heal`` it at the end."""

    def __init__(self, network: Running, leader: Callable[[], Awaitable[str | None]]) -> None:
        self.problems: list[str] = []  # faults that did not end as they should
        self._network = network
        self._leader = leader  # which coordinator leads just now
        self._ending: set[asyncio.Task[None]] = set()
        self._programs: set[asyncio.Task[None]] = set()  # that are to end what they began
        self._healing = asyncio.Event()
        # By process id: what stops it, one for each fault that does. It runs only if nothing does.
        self._holders: dict[int, set[Child]] = {}

    @property
    def under_way(self) -> int:
        """How many faults are, of those that stop processes or are programs."""
        return len(self._ending) + len(self._programs)

    def check(self, fault: Fault) -> None:
        """``OperatorError`` if it cannot be carried out here."""
        if fault.kind == OWN:
            own.check(fault.target)
            return
        resolve(fault.target, self._network.parts)
        if fault.kind not in ON_LINKS:
            return
        self._network.check_partitions(str(fault))
        if not self._sides(fault, resolve(fault.target, self._network.parts)):
            raise OperatorError(
                f"{fault}: there is no connection between them",
                "Name brokers and other brokers, or brokers or coordinators and `store`: all else goes through it",
            )

    async def carry_out(self, fault: Fault, names: Sequence[str]) -> Done:
        """Begin a fault on the parts that ``met`` said; it ends by itself after its time."""
        if fault.kind in ON_LINKS:
            return await self._cut(fault, names)
        if fault.kind == OWN:
            return await self._begin_own(fault)
        children = self._network.children(names)
        if fault.kind in INSTANT:
            number = signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM
            met = {child.name: child.pid for child in children if child.signal(number)}
            for child in children:
                child.close()
            return Done(met)
        met = {child.name: child.pid for child in children if self._hold(child)}
        lasting = self._slow if fault.kind == "slow" else self._pause
        _let_end(self._ending, lasting(children, fault.seconds))
        return Done(met)

    async def met(self, target: str) -> tuple[str, ...]:
        """The parts that a target stands for just now."""
        found: dict[str, None] = {}
        for each in target.split(TOGETHER):
            if each != LEADER:
                found.update(dict.fromkeys(resolve(each, self._network.parts)))
            elif (name := await self._leader()) is not None:
                found[name] = None
        return tuple(found)

    async def _pause(self, children: Sequence[Child], seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            self._end(children)

    async def _slow(self, children: Sequence[Child], seconds: float) -> None:
        """They are stopped when this begins."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        try:
            while loop.time() < end_s:
                await asyncio.sleep(SLICE_S - RUNS_S)
                for child in children:
                    self._release(child)
                await asyncio.sleep(RUNS_S)
                for child in children:
                    self._hold(child)
        finally:
            self._end(children)

    def _hold(self, child: Child) -> bool:
        """Stop a process for one fault; whether it was there."""
        self._holders.setdefault(child.pid, set()).add(child)
        return child.signal(signal.SIGSTOP)

    def _release(self, child: Child) -> None:
        """This fault no longer stops it; it goes on if no other does."""
        holders = self._holders.get(child.pid, set())
        holders.discard(child)
        if not holders:
            self._holders.pop(child.pid, None)
            child.signal(signal.SIGCONT)

    def _end(self, children: Sequence[Child]) -> None:
        for child in children:
            self._release(child)
            child.close()

    # ── programs ────────────────────────────────────────────────────────────────────────────────────────────

    async def _begin_own(self, fault: Fault) -> Done:
        try:
            pid = await own.call(fault.target, "begin")
        except OwnFailed as error:
            return Done({}, problem=str(error))
        _let_end(self._programs, self._end_own(fault))
        return Done({fault.target: pid})

    async def _end_own(self, fault: Fault) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(fault.seconds):
                await self._healing.wait()
        try:
            await own.call(fault.target, "end")
        except OwnFailed as error:
            self.problems.append(str(error))

    # ── partitions ──────────────────────────────────────────────────────────────────────────────────────────

    async def _cut(self, fault: Fault, names: Sequence[str]) -> Done:
        """The dialling side cuts: each side is told the addresses of the other's listeners."""
        cutting = self._sides(fault, names)
        pids = self._pids((*names, *cutting))
        state, until_s = self._network.state, time.monotonic() + fault.seconds
        asked = [
            _answered(cut_socket.ask(socket_path(state, name), addresses, until_s, fault.weather))
            for name, addresses in cutting.items()
            if name in pids
        ]
        answers = [each for each in await asyncio.gather(*asked) if each is not None]
        met = {name: pid for name, pid in pids.items() if name in names}
        return Done(met if answers else {}, sum(answers))

    def _sides(self, fault: Fault, names: Sequence[str]) -> Mapping[str, tuple[Address, ...]]:
        return sides(names, fault.others, self._network.parts, self._network.store_addresses)

    def _pids(self, names: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for child in self._network.children(names):
            found[child.name] = child.pid
            child.close()
        return found

    # ── healing ─────────────────────────────────────────────────────────────────────────────────────────────

    async def heal(self) -> None:
        """End every fault that is under way."""
        self._healing.set()
        await asyncio.gather(*self._programs)
        for task in tuple(self._ending):
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._end([child for holders in tuple(self._holders.values()) for child in holders])
        await heal_cuts(self._network)


def _let_end(tasks: set[asyncio.Task[None]], ending: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(ending)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _answered(asked: Awaitable[int]) -> int | None:
    """None if a process did not obey: it is stopped, or gone."""
    try:
        return await asked
    except CutRefused:
        return None


async def heal_cuts(network: Running) -> None:
    """Have every process that can be cut off connect again."""
    paths = [socket_path(network.state, part.name) for part in network.parts]
    asked = [cut_socket.ask(path, (), 0.0) for path in paths if path.exists()]
    await asyncio.gather(*asked, return_exceptions=True)


async def heal_all(network: Running) -> list[str]:
    """Let go whatever an earlier run has left stopped or cut off: the names of those that were stopped."""
    names: list[str] = []
    for child in network.stopped():
        if child.signal(signal.SIGCONT):
            names.append(child.name)
        child.close()
    with contextlib.suppress(TocsinError):
        await heal_cuts(network)
    return names
