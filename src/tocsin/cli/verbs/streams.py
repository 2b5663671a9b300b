"""``tocsin streams``: which streams satisfy a predicate, and how that changes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tocsin.cli.target import calls
from tocsin.client import AsyncClient, Change, Changed, Joined, Left, Set
from tocsin.client.subscription import Streams
from tocsin.model.stream import Metadata

SIGNS: Final = {Joined: ("+", "green"), Changed: ("~", "yellow"), Left: ("-", "red")}


@calls
def streams(
    client: AsyncClient,
    predicate: Annotated[
        str,
        typer.Argument(
            metavar="PREDICATE",
            help="The predicate that their metadata must satisfy; TRUE means all streams.",
        ),
    ] = "TRUE",
    once: Annotated[bool, typer.Option("--once", help="Print the current set and exit.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line: the set, then each change.")
    ] = False,
) -> None:
    """Show the streams whose metadata satisfies a predicate, then each change of that set, until Ctrl-C.

    tocsin streams 'Location/Room = "410"'

    tocsin streams --once --json 'topic LIKE "alerts/%" AND has severity'

    A line that begins with + is a stream that joined, with ~ one that changed, with - one that left.
    """
    asyncio.run(_show(client, client.streams(predicate), once, json))


async def _show(client: AsyncClient, wanted: Streams, once: bool, json: bool) -> None:
    console = Console(soft_wrap=True)
    async with client:
        async for change in wanted:
            if json:
                print(_object(change), flush=True)
            else:
                console.print(_table(change) if isinstance(change, Set) else _line(change))
            if once:
                return


def _object(change: Change) -> str:
    if isinstance(change, Set):
        listed = [{"topic": topic, "metadata": metadata} for topic, metadata in change.streams.items()]
        return msgspec.json.encode({"streams": listed}).decode()
    said = {"topic": change.topic, "metadata": change.metadata}
    return msgspec.json.encode({type(change).__name__.lower(): said}).decode()


def _table(change: Set) -> Table:
    table = Table("stream", "metadata", box=None, padding=(0, 3, 0, 0), caption_justify="left")
    for topic, metadata in sorted(change.streams.items()):
        table.add_row(Text(topic), Text(_words(metadata)))
    table.caption = f"{len(change.streams)} streams"
    return table


def _line(change: Joined | Changed | Left) -> Text:
    sign, style = SIGNS[type(change)]
    return Text(f"{sign} {change.topic}   {_words(change.metadata)}", style=style)


def _words(metadata: Metadata) -> str:
    """Without the topic, which is there already."""
    return "  ".join(
        f"{key}={msgspec.json.encode(value).decode()}"
        for key, value in sorted(metadata.items())
        if key != "topic"
    )
