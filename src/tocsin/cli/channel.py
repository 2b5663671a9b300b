"""``tocsin channel``: which channels there are, how they are, and when they run."""

from __future__ import annotations

from typing import Final

import typer

from tocsin.cli.asking import WAIT_S, WaitOption, reach
from tocsin.cli.listing import (
    ConfigOption,
    JsonOption,
    NameArgument,
    Row,
    Shown,
    ago,
    figure,
    print_description,
    print_list,
    run_statement,
    words,
)
from tocsin.cli.sources import SetOption, StateOption

app = typer.Typer(help="Show channels, and pause, resume or run them.", no_args_is_help=True)


def _runs(row: Row) -> str:
    if row["paused"]:
        return "paused"
    return "continuous" if row["every_s"] is None else f"every {row['every_s']:g} s"


COLUMNS: Final = (
    Shown("channel", lambda row: str(row["name"])),
    Shown("runs", _runs),
    figure("subscriptions"),
    figure("executions"),
    Shown("last", lambda row: ago(row["last_at_us"])),
    Shown("ms", lambda row: f"{row['last_ms']:,.0f}", number=True),
    figure("matched"),
    figure("results"),
    figure("overruns"),
    figure("failures"),
    words("error"),
)


@app.command("list")
def list_channels(
    json: JsonOption = False,
    wait: WaitOption = WAIT_S,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """List channels: when they run, how long the last time took, how many subscriptions matched, what failed."""
    print_list(reach(config, sets, state, wait), "channel", COLUMNS, json)


@app.command()
def describe(
    name: NameArgument,
    json: JsonOption = False,
    wait: WaitOption = WAIT_S,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Show a channel's parameters, columns and query, and how it is."""
    print_description(reach(config, sets, state, wait), "channel", name, json)


@app.command()
def pause(
    name: NameArgument,
    wait: WaitOption = WAIT_S,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Let a channel rest: it is not run until it is resumed, and then finds what is new since it ran last."""
    run_statement(reach(config, sets, state, wait), "channel", "PAUSE", name)


@app.command()
def resume(
    name: NameArgument,
    wait: WaitOption = WAIT_S,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Let a channel that was paused go on."""
    run_statement(reach(config, sets, state, wait), "channel", "RESUME", name)


@app.command()
def run(
    name: NameArgument,
    wait: WaitOption = WAIT_S,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Run a channel in the next tick, whenever it would be due, and also if it is held back after a failure."""
    run_statement(reach(config, sets, state, wait), "channel", "RUN", name)
