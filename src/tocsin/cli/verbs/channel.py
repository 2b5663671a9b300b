"""``tocsin channel``: which channels there are, how they are, and when they run."""

from __future__ import annotations

from typing import Final

import typer

from tocsin.cli.listing import (
    JsonOption,
    NameArgument,
    Reached,
    Row,
    Shown,
    ago,
    asks,
    figure,
    print_description,
    print_list,
    run_statement,
    words,
)

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
@asks
def list_channels(reached: Reached, json: JsonOption = False) -> None:
    """List channels: when they run, how long the last run took, how many subscriptions matched, what failed."""
    print_list(reached, "channel", COLUMNS, json)


@app.command()
@asks
def describe(reached: Reached, name: NameArgument, json: JsonOption = False) -> None:
    """Show a channel's parameters, columns, query and status."""
    print_description(reached, "channel", name, json)


@app.command()
@asks
def pause(reached: Reached, name: NameArgument) -> None:
    """Pause a channel. When it is resumed, it finds what is new since its last run."""
    run_statement(reached, "channel", "PAUSE", name)


@app.command()
@asks
def resume(reached: Reached, name: NameArgument) -> None:
    """Resume a paused channel."""
    run_statement(reached, "channel", "RESUME", name)


@app.command()
@asks
def run(reached: Reached, name: NameArgument) -> None:
    """Run a channel in the next tick, even if it is not due or is held back after a failure."""
    run_statement(reached, "channel", "RUN", name)
