"""``tocsin drain``: empty a broker before it is stopped or changed.

The order is a cell in the coordinators' table. The leader reads it, and tells the broker how fast its clients are to
go, and where (``core.coordination.leader.balancing``).
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final

import msgspec
import typer

from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings
from tocsin.config import Settings
from tocsin.coordinator.status import Draining, Status, read_all
from tocsin.core.coordination.leader.balancing import KEY, ORDER, Order
from tocsin.core.coordination.names import StoreNames
from tocsin.errors import OperatorError
from tocsin.ports import Table
from tocsin.store.jetstream.store import JetStreamStore

NOT_EMPTY: Final = 1  # the exit code where clients are left when the time is over
LOOK_S: Final = 0.5


def drain(
    broker: Annotated[
        str,
        typer.Argument(metavar="BROKER", help="Id of the broker to empty. Without it: show all drains."),
    ] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Let the broker take clients again.")] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait until it is empty.")
    ] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Empty a broker: it takes no new clients, and its clients are moved to others.

        tocsin drain north-1 --wait 120

        tocsin drain

        tocsin drain north-1 --undo

    Clients are moved at `balance.rate` a second. Clients that are not known to follow a redirect are let go after
    `balance.grace_s`. Sessions of clients that are away stay in the store: they resume at any broker. With `--wait`
    the exit code is 1 if clients are left when the time is over.
    """
    settings = network_settings(config, sets, state)
    if undo and not broker:
        raise OperatorError("--undo needs the id of a broker", "Write `tocsin drain BROKER --undo`")
    known = sorted(each.id for each in settings.brokers)
    if broker and broker not in known:
        raise OperatorError(f"there is no broker {broker!r}", f"Name one of {', '.join(known[:20])}")
    found = asyncio.run(_drain(settings, broker, undo, wait))
    if json:
        typer.echo(msgspec.json.encode({"draining": [as_json(each) for each in found]}).decode())
    elif not found:
        typer.echo("no broker is being emptied" if not undo else f"{broker} takes clients again")
    else:
        for each in found:
            typer.echo(words(each))
    if wait and not undo and any(each.broker == broker and not each.empty for each in found):
        raise typer.Exit(NOT_EMPTY)


def as_json(each: Draining) -> dict[str, Any]:
    return {"broker": each.broker, "clients": each.clients, "running": each.here, "empty": each.empty}


def words(each: Draining) -> str:
    """One line about a broker that is being emptied."""
    if not each.here:
        return f"{each.broker} is not running; it takes no clients when it comes back"
    if each.clients:
        return f"{each.broker} is being emptied: {each.clients} clients left"
    if not each.refuses:
        return f"{each.broker} has not heard of the order yet"
    return f"{each.broker} is empty: it can be stopped"


async def _drain(settings: Settings, broker: str, undo: bool, wait_s: float) -> tuple[Draining, ...]:
    store = await JetStreamStore.open(settings.nats, "operator", name="drain")
    try:
        table = await store.table(StoreNames(settings.network).table)
        if broker and undo:
            await table.delete(f"{KEY}{broker}")
        elif broker:
            await _order(table, broker)
        return await _watch(table, broker, undo, wait_s)
    finally:
        await store.close()


async def _order(table: Table, broker: str) -> None:
    if await table.get(f"{KEY}{broker}") is None:
        await table.put(f"{KEY}{broker}", ORDER.write(Order(time.time_ns() // 1_000)))


async def _watch(table: Table, broker: str, undo: bool, wait_s: float) -> tuple[Draining, ...]:
    """What the leader says, when it has heard of the order, and with ``wait_s`` when the broker is empty."""
    heard_by = time.monotonic() + 10.0
    until = time.monotonic() + wait_s
    while True:
        leader = next((each for each in await read_all(table) if each.role == "leader"), None)
        if leader is None and time.monotonic() > heard_by:
            raise OperatorError(
                "no coordinator leads", "Look at `tocsin coordinator status`; the order stands"
            )
        if leader is not None and _heard(leader, broker, undo):
            left = [each for each in leader.draining if each.broker == broker]
            if not wait_s or undo or all(each.empty for each in left) or time.monotonic() > until:
                return leader.draining
        elif leader is not None and time.monotonic() > heard_by:
            return leader.draining
        await asyncio.sleep(LOOK_S)


def _heard(leader: Status, broker: str, undo: bool) -> bool:
    return not broker or any(each.broker == broker for each in leader.draining) != undo
