"""``tocsin sub``: print messages as they arrive."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import msgspec
import typer

from tocsin.cli.target import calls
from tocsin.client import AsyncClient, Message
from tocsin.client.subscription import Subscription
from tocsin.errors import OperatorError


@calls
def subscribe(
    client: AsyncClient,
    filters: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILTER…", help="Topic filters: + is one level, # all below."),
    ] = None,
    query: Annotated[
        str,
        typer.Option(
            "--query",
            metavar="PREDICATE",
            help="Instead of filters: all streams whose metadata satisfies this predicate, now and later.",
        ),
    ] = "",
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="The highest QoS to ask for.")] = 0,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="Exit after N messages; 0 means never.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print the messages of these topics or streams, from the whole network, until Ctrl-C.

    tocsin sub -b south-2 'alerts/#'

    tocsin sub --query 'Location/Room = "410" AND has Point/Type'

    tocsin sub --at wss://alerts.example.org/mqtt --user gateway 'alerts/#'
    """
    if bool(filters) == bool(query):
        raise OperatorError(
            "there is nothing to subscribe to" if not query else "there are topic filters and a query",
            "Give topic filters, such as 'alerts/#', or --query PREDICATE",
        )
    # In JSON there is a place for what is known of a stream; in a line for people there is not.
    wanted = (
        client.query(query, qos=qos, with_streams=json)
        if query
        else client.subscribe(*filters or (), qos=qos)
    )
    asyncio.run(_subscribe(client, wanted, count, json))


async def _subscribe(client: AsyncClient, wanted: Subscription, count: int, json: bool) -> None:
    async with client:
        seen = 0
        async for message in wanted:
            sys.stdout.write(_line(message, json))
            sys.stdout.flush()
            seen += 1
            if seen == count:
                return


def _line(message: Message, json: bool) -> str:
    if not json:
        return f"{message.topic} {message.text}\n"
    said = {"topic": message.topic, "payload": message.text}
    if message.metadata is None:
        return msgspec.json.encode(said).decode() + "\n"
    return msgspec.json.encode({**said, "metadata": message.metadata}).decode() + "\n"
