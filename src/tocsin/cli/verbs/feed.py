"""``tocsin feed``: what fills datasets, and how far that is."""

from __future__ import annotations

from typing import Final

import typer

from tocsin.cli.listing import (
    JsonOption,
    NameArgument,
    Reached,
    Row,
    Shown,
    asks,
    figure,
    print_description,
    print_list,
    words,
)

app = typer.Typer(help="Show feeds.", no_args_is_help=True)


def _agent(row: Row) -> str:
    """The agent's state; without a feeder nobody reads the feed's source."""
    return "no feeder" if row["agent"] is None else str(row["agent"]["state"])


def _behind(row: Row) -> str:
    """The records of the source that the agent has not taken; empty if unknown."""
    lag = -1 if row["agent"] is None else row["agent"]["lag"]
    return "" if lag < 0 else f"{lag:,}"


def _error(row: Row) -> str:
    return str(row["error"] or (row["agent"] or {}).get("error", ""))


COLUMNS: Final = (
    Shown("feed", lambda row: str(row["name"])),
    words("dataset"),
    words("source"),
    Shown("agent", _agent),
    Shown("behind", _behind, number=True),
    figure("lag"),
    figure("records"),
    figure("quarantined"),
    Shown("error", _error),
)


@app.command("list")
@asks
def list_feeds(reached: Reached, json: JsonOption = False) -> None:
    """List feeds: what their source still has (behind), what waits for the pipeline (lag), and what is quarantined."""
    print_list(reached, "feed", COLUMNS, json)


@app.command()
@asks
def describe(reached: Reached, name: NameArgument, json: JsonOption = False) -> None:
    """Show a feed's source, dataset and status."""
    print_description(reached, "feed", name, json)
