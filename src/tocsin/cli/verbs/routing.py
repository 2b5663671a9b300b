"""``tocsin routing``: who carries what between clusters."""

from __future__ import annotations

import asyncio

import msgspec
import typer
from rich.text import Text

from tocsin.cli.layout import console, lay_out
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings
from tocsin.cli.verbs.explain_route import JsonOption
from tocsin.config import Settings
from tocsin.coordinator.reading import read_state
from tocsin.coordinator.status import read_all
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.explaining import Part, TierShown, tiers_of
from tocsin.core.tiers.slots import SLOTS
from tocsin.store.jetstream.store import JetStreamStore

app = typer.Typer(help="Show who carries messages between clusters.", no_args_is_help=True)
NO_TIER = 1  # the exit code of a network without routing brokers


@app.callback()
def routing() -> None:
    """Show who carries messages between clusters."""


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
    tiers, emptied = asyncio.run(_read(network_settings(config, sets, state)))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(tiers), indent=2).decode())
    elif not tiers:
        typer.echo("there are no routing brokers: brokers of all clusters send straight to each other")
    else:
        for each in tiers:
            _show(each, emptied)
    raise typer.Exit(0 if tiers else NO_TIER)


async def _read(settings: Settings) -> tuple[tuple[TierShown, ...], frozenset[str]]:
    names = StoreNames(settings.network)
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin routing status")
    try:
        tiers = tiers_of(await read_state(store, names))
        coordinators = await read_all(await store.table(names.table))
        return tiers, frozenset(each.broker for status in coordinators for each in status.draining)
    finally:
        await store.close()


def _show(tier: TierShown, emptied: frozenset[str]) -> None:
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


def _note(part: Part, emptied: frozenset[str]) -> str:
    if part.shunned:
        return "not reached by other clusters"
    return "is being emptied" if part.broker in emptied else ""
