"""A coordinator process: the machine on the substrate."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from tocsin.config import Settings
from tocsin.coordinator.door.keeper import DoorKeeper, DoorPorts, real_ports
from tocsin.coordinator.growing import Grower
from tocsin.coordinator.planning import Planner
from tocsin.coordinator.presence import PresenceDesk
from tocsin.coordinator.standbys import StandbyDesk
from tocsin.coordinator.status import Teller, describe, free_standbys
from tocsin.core.coordination.coordinator import Coordinator, CoordinatorState, Resigning
from tocsin.core.coordination.leader.backup_planning import WantPlan
from tocsin.core.coordination.leader.balancing import BalanceRules
from tocsin.core.coordination.leader.broker_watch import AskPresence
from tocsin.core.coordination.leader.placing import PlacingRules
from tocsin.core.coordination.leader.promotions import Chosen, WantScores
from tocsin.core.coordination.leader.recruiting import RecruitRules
from tocsin.core.coordination.names import Options, StoreNames
from tocsin.core.machine import Effect
from tocsin.core.supervision.reserves import FACT
from tocsin.core.tiers.elasticity import GrowthRules
from tocsin.model.network import coordinator_address
from tocsin.model.subjects import messages_log
from tocsin.ports import Store
from tocsin.runtime.machines.driver import Driver
from tocsin.runtime.network.streams import open_within
from tocsin.runtime.process import Process, State
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.wire.internal.commands import Limits

REPORT_S: Final = 1.0
RESIGN_S: Final = 2.0  # for the lease to be given back; if it is not, it ends by itself


class Host(Protocol):
    """The process that a coordinator runs in: a real one (``runtime.process``) or a simulated one."""

    @property
    def settings(self) -> Settings: ...

    def report(self, state: State, **facts: object) -> None: ...

    async def stopped(self) -> None: ...


async def serve(process: Process, name: str) -> None:
    """Run one coordinator until the process is asked to stop."""
    settings = process.settings
    process.report("starting")
    store = await JetStreamStore.open(
        settings.nats, "coordinator", name=name, shares=settings.shares.by_name(settings.network)
    )
    try:
        where = (socket.gethostname(), os.getpid())
        await run_coordinator(process, name, store, where, door=real_ports(settings, name))
    finally:
        await store.close()


async def run_coordinator(
    host: Host,
    name: str,
    store: Store,
    where: tuple[str, int],
    began: Callable[[Coordinator], None] = lambda machine: None,
    door: DoorPorts | None = None,
) -> None:
    """Run one coordinator over a store until its host asks it to stop. ``where``: its machine and process id; ``began``
    is told of the machine; ``door``: what its door for clients needs, None if it has none."""
    settings = host.settings
    names = StoreNames(settings.network)
    machine = Coordinator(name, names, options(settings))
    began(machine)
    table = await store.table(names.table)
    # Brokers do not change the bounds of the message log; so what settings say is seen to here, where it is not
    # the operator who does (``runtime.network.streams``).
    await open_within(
        store, messages_log(settings.network, settings.messages.keep_s, settings.messages.keep_bytes)
    )
    driver = Driver(
        machine,
        coordinator_address(name),
        store,
        network=settings.network,
        logs={spec.name: await store.log(spec) for spec in (names.commands, names.snapshots)},
        tables={names.table.name: table},
        own=lambda effect: _carry_out(effect, planner, standbys, presence),
    )
    recovery = settings.recovery
    planner = Planner(store.bus, table, settings.network, driver.post, recovery.weights(), recovery.strategy)
    standbys = StandbyDesk(store.bus, table, settings.network, driver.post)
    keeper = None if door is None else DoorKeeper(settings, machine, table, door)
    address = coordinator_address(name)
    presence = PresenceDesk(store.bus, address, settings.network, driver.post, driver.fail)
    teller = Teller(table)
    grower = Grower(settings.routing.command)
    serving = asyncio.create_task(driver.run())
    stopped = asyncio.create_task(host.stopped())
    parts = [serving]
    if keeper is not None:
        parts += [asyncio.create_task(keeper.run()), asyncio.create_task(keeper.listener.ending.wait())]
    try:
        while not stopped.done() and not any(part.done() for part in parts):
            _report(host, machine, keeper)
            grower.heed({} if machine.leader is None else machine.leader.growth.wanted())
            telling = asyncio.create_task(teller.tell(describe(machine, *where)))
            await asyncio.wait((*parts, stopped), timeout=REPORT_S, return_when=asyncio.FIRST_COMPLETED)
            telling.cancel()
        for part in parts:
            if part.done():
                part.result()  # a bug of ours: let it be seen
        host.report("stopping")
        driver.post(Resigning(cause=f"{name}:stop"))
        await asyncio.wait((serving,), timeout=RESIGN_S)
    finally:
        for task in (*parts, stopped):
            task.cancel()
        await asyncio.gather(*parts, stopped, return_exceptions=True)
        await planner.close()
        await standbys.close()
        await presence.close()
        await grower.close()


def _carry_out(effect: Effect, planner: Planner, standbys: StandbyDesk, presence: PresenceDesk) -> None:
    match effect:
        case AskPresence():
            presence.ask(effect)
        case WantPlan():
            planner.want(effect)
        case WantScores():
            standbys.want(effect)
        case Chosen():
            standbys.chosen(effect)


def options(settings: Settings) -> Options:
    chosen = settings.coordinator
    return Options(
        suspect_after_us=settings.membership.suspect_after_ms * 1_000,
        suspect_least_us=settings.membership.least_ms * 1_000,
        heartbeat_us=settings.membership.beat_ms * 1_000,
        phi=settings.membership.threshold,
        lease_us=chosen.lease_s * 1_000_000,
        promote_after_us=settings.recovery.promote_after_ms * 1_000,
        recruit=RecruitRules(
            settings.recovery.standbys_wanted, settings.recovery.recruit_after_s * 1_000_000
        ),
        placing=PlacingRules(settings.routing.balance),
        growth=GrowthRules(
            settings.routing.least,
            settings.routing.most or max(map(len, settings.tiers().values()), default=0),
            settings.routing.cooldown_s * 1_000_000,
            settings.routing.shrink_after_s * 1_000_000,
        ),
        guests_stay=settings.recovery.standby_guests == "stay",
        balance=BalanceRules(
            settings.balance.mode == "on",
            settings.balance.rate,
            settings.balance.threshold_percent * 10,
            settings.balance.grace_s * 1_000_000,
        ),
        snapshot_every=chosen.snapshot_every,
        snapshot_every_bytes=chosen.snapshot_every_bytes,
        wait_bytes=4 * chosen.snapshot_every_bytes,
        limits=Limits(
            chosen.streams_max,
            chosen.queries_max,
            chosen.keep_s,
            chosen.publishers_max,
            settings.limits.metadata_max_bytes,
            chosen.streams_max_bytes,
            chosen.streams_max_bytes * chosen.user_percent // 100,
            chosen.queries_max_bytes,
            chosen.told_burst_bytes,
            chosen.told_rate_bytes,
        ),
    )


def _report(host: Host, machine: Coordinator, keeper: DoorKeeper | None) -> None:
    state = machine.replica
    facts: dict[str, object] = {
        "brokers": len(state.members),
        "streams": len(state.presence.streams),
        "queries": len(state.matching),
        "cut_links": len(state.detours),
        "standbys": len(free_standbys(state)),
    }
    if machine.state in (CoordinatorState.NEW, CoordinatorState.RESTORING):
        host.report("starting", problem=machine.problem or "reading the command log", **facts)
        return
    if machine.leader is not None and (wanted := machine.leader.growth.wanted()):
        facts[FACT] = msgspec.to_builtins(wanted)
    facts |= {"epoch": machine.epoch, "level": state.level, "leads": machine.leader is not None}
    if keeper is None:
        host.report("ready", **facts)
    elif keeper.problem:
        host.report("degraded", problem=keeper.problem, **facts, **keeper.facts())
    else:
        host.report("ready", **facts, **keeper.facts())
