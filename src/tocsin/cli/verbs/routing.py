"""``tocsin routing``: who carries what between clusters, and orders about it.

An order is a cell in the coordinators' table (``core.coordination.leader.pinning``), which the leader follows.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from tocsin.cli.layout import console, lay_out, printable
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings
from tocsin.cli.verbs.explain_route import JsonOption, checked
from tocsin.config import Settings
from tocsin.coordinator.reading import read_state
from tocsin.coordinator.status import read_all
from tocsin.core.coordination.leader.pinning import KEY, PIN, Pin, key_of, read_pin
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.explaining import Part, TierShown, carrier_of, tier_of, tiers_of
from tocsin.core.tiers.slots import SLOTS, slot_of
from tocsin.errors import OperatorError
from tocsin.ports import Table
from tocsin.store.jetstream.store import JetStreamStore

app = typer.Typer(help="Show who carries messages between clusters, and choose it.", no_args_is_help=True)
NO_TIER = 1  # the exit code of a network without routing brokers
NOT_YET = 1  # the exit code where a pin is stored, and the slot has not moved
WAIT_S = 10.0
LOOK_S = 0.3


class Pinned(msgspec.Struct, frozen=True):
    """A slot that a member is to carry."""

    tier: str
    slot: int
    broker: str
    topic: str


@app.callback()
def routing() -> None:
    """Show who carries messages between clusters, and choose it."""


@app.command()
def status(
    json: JsonOption = False, config: ConfigOption = None, sets: SetOption = None, state: StateOption = None
) -> None:
    """Show the tiers: their members, how many slots each carries, and the clusters that they carry for.

        tocsin routing status

        tocsin routing status --json -c tocsin.toml

    A tier has 1,024 slots; a topic is in one by its name. The exit code is 1 if there are no routing brokers: then
    brokers of all clusters send straight to each other.
    """
    tiers, emptied, pinned = asyncio.run(_read(network_settings(config, sets, state)))
    if json:
        rows = [
            {
                **msgspec.to_builtins(each),
                "pins": [msgspec.to_builtins(pin) for pin in pinned if pin.tier == each.tier],
            }
            for each in tiers
        ]
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    elif not tiers:
        typer.echo("there are no routing brokers: brokers of all clusters send straight to each other")
    else:
        for each in tiers:
            _show(each, emptied, pinned)
    raise typer.Exit(0 if tiers else NO_TIER)


@app.command()
def pin(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, as publishers have it.")],
    broker: Annotated[
        str, typer.Argument(metavar="BROKER", help="The routing broker that is to carry it.")
    ] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Let the leader place it again.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Have one routing broker carry a topic, and all others of its slot: for a topic with very much traffic.

        tocsin routing pin line/7 cloud-2

        tocsin routing pin line/7 --undo

    The slot moves without losing a message. It stays there until the pin is undone; while that broker is gone or is
    being emptied (`tocsin drain`), others carry it. The exit code is 1 if it has not moved within ten seconds.
    """
    if undo == bool(broker):
        raise OperatorError(
            "a pin needs a broker, and its undoing none",
            "Write `tocsin routing pin TOPIC BROKER`, or `tocsin routing pin TOPIC --undo`",
        )
    checked(topic)
    said, done = asyncio.run(_pin(network_settings(config, sets, state), topic, broker))
    typer.echo(said)
    raise typer.Exit(0 if done else NOT_YET)


async def _pin(settings: Settings, topic: str, broker: str) -> tuple[str, bool]:
    names, slot = StoreNames(settings.network), slot_of(topic)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin routing pin")
    try:
        table = await store.table(names.table)
        if not broker:
            found = [each for each in await _pins(table) if each.slot == slot]
            for each in found:
                await table.delete(key_of(each.tier, slot))
            return (f"{topic} (slot {slot}) is placed by the leader", True)
        tier = tier_of(await read_state(store, names), broker)
        await table.put(key_of(tier, slot), PIN.write(Pin(broker, topic)))
        until = time.monotonic() + WAIT_S
        while True:
            carrier = carrier_of(await read_state(store, names), tier, slot)
            if carrier == broker:
                return f"{broker} carries {topic} (slot {slot} of tier {tier})", True
            if time.monotonic() > until:
                return (
                    f"the pin is stored, and {carrier} still carries {topic}: is {broker} being emptied?",
                    False,
                )
            await asyncio.sleep(LOOK_S)
    finally:
        await store.close()


async def _pins(table: Table) -> list[Pinned]:
    found = []
    for key in sorted(await table.keys(KEY)):
        cell = await table.get(key)
        if cell is not None and (read := read_pin(key, cell.value)) is not None:
            tier, slot, order = read
            found.append(Pinned(tier, slot, order.broker, order.topic))
    return found


async def _read(settings: Settings) -> tuple[tuple[TierShown, ...], frozenset[str], list[Pinned]]:
    names = StoreNames(settings.network)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin routing status")
    try:
        tiers = tiers_of(await read_state(store, names))
        table = await store.table(names.table)
        emptied = frozenset(each.broker for status in await read_all(table) for each in status.draining)
        return tiers, emptied, await _pins(table)
    finally:
        await store.close()


def _show(tier: TierShown, emptied: frozenset[str], pinned: list[Pinned]) -> None:
    out = console()
    out.print(Text(f"tier {tier.tier}", style="bold"), Text(f"carries for {', '.join(tier.clusters)}"))
    rows = [
        [each.broker, each.cluster, str(each.slots), f"{each.slots / SLOTS:.1%}", str(each.deputy_of), note]
        for each in tier.members
        for note in [_note(each, emptied)]
    ]
    headings = ["member", "cluster", "slots", "part", "deputy of", ""]
    table = lay_out(headings, rows, [False, False, True, True, True, False], out.width)
    if not out.is_terminal:
        table.box = None
    out.print(table)
    for each in pinned:
        if each.tier == tier.tier:
            out.print(printable(f"pinned: {each.topic} (slot {each.slot}) to {each.broker}"))


def _note(part: Part, emptied: frozenset[str]) -> str:
    if part.shunned:
        return "not reached by other clusters"
    return "is being emptied" if part.broker in emptied else ""
