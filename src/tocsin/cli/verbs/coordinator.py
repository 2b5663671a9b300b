"""``tocsin coordinator``: a coordinator process, and how the coordinators are."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from tocsin.cli.layout import console, lay_out
from tocsin.cli.setting_options import (
    ConfigOption,
    SetOption,
    StateOption,
    network_settings,
    process_settings,
)
from tocsin.config import Settings
from tocsin.coordinator.main import serve
from tocsin.coordinator.status import Status, read_all
from tocsin.core.coordination.names import StoreNames
from tocsin.errors import OperatorError
from tocsin.runtime.process import run
from tocsin.store.jetstream.store import JetStreamStore

app = typer.Typer(help="Run a coordinator, or show the status of all coordinators.")
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NOBODY: Final = 1  # the exit code of ``status`` where nobody leads


@app.callback(invoke_without_command=True)
def coordinator(
    context: typer.Context,
    name: Annotated[
        str, typer.Option("--id", metavar="ID", help="Name of the coordinator, unique in the network.")
    ] = "coordinator-1",
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Run one coordinator in the foreground, or show the status of all.

    `tocsin up` runs as many as the setting `coordinators` says. Run them by hand for a network that is spread over
    machines; one leads, and the others take its place within seconds:

        tocsin coordinator --id coordinator-2 -c tocsin.toml

        tocsin coordinator status
    """
    if context.invoked_subcommand is not None:
        return
    if not NAME.fullmatch(name):
        raise OperatorError(
            f"--id {name!r} is not a name",
            "Use lower-case letters, digits and inner hyphens, at most 63, such as coordinator-2",
        )
    raise typer.Exit(run(name, process_settings(config, sets, state), lambda process: serve(process, name)))


@app.command()
def status(
    json: Annotated[
        bool, typer.Option("--json", help="One JSON array with an object for each coordinator.")
    ] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Show each coordinator: its role, epoch, how far it is in the command log, and what it knows; links that are
    cut, brokers that are not heard, standbys, and brokers that are recruited or cannot be.

        tocsin coordinator status

        tocsin coordinator status --json -c tocsin.toml

    The exit code is 1 if nobody leads.
    """
    found = asyncio.run(_read(network_settings(config, sets, state)))
    if json:
        newest = max((each.position for each in found), default=0)
        rows = [{**msgspec.to_builtins(each), "lag": newest - each.position} for each in found]
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    else:
        out = console()
        out.print(table(found, out.width))
        if any(each.cut or each.shunned for each in found):
            out.print(links(found))
        if any(each.gone for each in found):
            out.print(lost(found))
        if any(each.standbys or each.promoted or each.recruits for each in found):
            out.print(standbys(found))
        if any(each.lacking for each in found):
            out.print(lacking(found))
    raise typer.Exit(0 if any(each.role == "leader" for each in found) else NOBODY)


async def _read(settings: Settings) -> list[Status]:
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin coordinator status")
    try:
        return await read_all(await store.table(StoreNames(settings.network).table))
    finally:
        await store.close()


def table(found: list[Status], width: int) -> Table:
    """One line a coordinator."""
    newest = max((each.position for each in found), default=0)
    numbers = ("epoch", "position", "lag", "brokers", "streams", "queries")
    rows = [
        [
            each.id,
            each.role,
            *map(str, (each.epoch, each.position, newest - each.position)),
            *map(str, (each.brokers, each.streams, each.queries)),
            f"{each.host}, {each.pid}",
        ]
        for each in found
    ]
    right = [False, False, *(True for _ in numbers), False]
    return lay_out(["coordinator", "role", *numbers, "where"], rows, right, width)


def links(found: list[Status]) -> Table:
    """One line for each cut link between brokers, as the coordinator that is furthest in the log knows them."""
    newest = max(found, key=lambda each: each.position)
    shown = Table("broker", "does not reach", "sends by way of", title="links between brokers that are cut")
    for cut in newest.cut:
        shown.add_row(cut.broker, cut.peer, ", ".join(cut.via) or Text("nobody", style="red"))
    for hub in newest.shunned:
        shown.add_row("everybody", hub, "other routing brokers, or none")
    return shown


def lost(found: list[Status]) -> Table:
    """One line for each broker that is not heard, as the coordinator that is furthest in the log knows them."""
    newest = max(found, key=lambda each: each.position)
    clusters = Counter(each.cluster for each in newest.gone)
    shown = Table("broker", "cluster", "stands in for it", title="brokers that the leader does not hear")
    for gone in newest.gone:
        cluster = (
            f"{gone.cluster} ({clusters[gone.cluster]} of it)" if clusters[gone.cluster] > 1 else gone.cluster
        )
        shown.add_row(gone.broker, cluster, gone.by or Text("nobody", style="red"))
    return shown


def standbys(found: list[Status]) -> Table:
    """One line a standby, as the coordinator that has read the most of the log knows them."""
    newest = max(found, key=lambda each: each.position)
    title = (
        "standbys" if newest.standbys else "standbys: none is free, and the next lost broker is not replaced"
    )
    shown = Table("standby", "has the place of", title=title)
    for standby, broker in sorted(newest.promoted.items()):
        shown.add_row(standby, broker)
    recruits = {each.broker: each for each in newest.recruits}
    recruits |= {each.broker: each for status in found for each in status.recruits if not each.stands_by}
    for standby in newest.standbys:
        recruited = " (recruited)" if standby in recruits else ""
        shown.add_row(standby, f"nobody, it is free{recruited}")
    for name, each in sorted(recruits.items()):
        if not each.stands_by:
            shown.add_row(name, f"nobody yet: it is recruited, and {each.clients} clients have to leave it")
    return shown


def lacking(found: list[Status]) -> Table:
    """One line for each broker that cannot be recruited though its cluster lacks standbys, as the leader knows."""
    title = "nobody can be recruited as a standby"
    shown = Table("cluster", "free standbys", "broker", "why not", title=title)
    for status in found:
        for lack in status.lacking:
            for broker, why in sorted(lack.obstacles.items()):
                shown.add_row(lack.cluster, f"{lack.free} of {lack.wanted}", broker, why)
    return shown
