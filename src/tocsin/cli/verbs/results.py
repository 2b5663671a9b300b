"""``tocsin results``: print results of a channel that are there already."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer

from tocsin.cli.target import calls
from tocsin.client import AsyncClient, Notification, Pulled
from tocsin.core.channels.pull import RESULTS_MAX


@calls
def results(
    client: AsyncClient,
    channel: Annotated[str, typer.Argument(help="The channel, such as EmergenciesNearMe.")],
    values: Annotated[
        list[str] | None, typer.Argument(help="The values of its parameters, in their order.")
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option("--newest", "-n", min=1, max=RESULTS_MAX, help="How many of the newest; 10 by default."),
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(
            "--since", min=0, help="All results behind this position instead; 0: all that are kept."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with everything known.")
    ] = False,
) -> None:
    """Print results of a channel that are there already, oldest first.

    tocsin results EmergenciesNearMe alice --newest 5

    tocsin results EmergenciesNearMe alice --since 0 --json
    """
    asyncio.run(_print(client, channel, values or [], newest, since, as_json))


async def _print(
    client: AsyncClient, channel: str, values: list[str], newest: int | None, since: int | None, as_json: bool
) -> None:
    async with client:
        while True:
            answer = await client.results(channel, *values, newest=newest, since=since)
            for each in answer.results:
                typer.echo(_line(each, as_json))
            _warn(answer)
            if since is None or not answer.more:
                return
            since = answer.next


def _line(each: Notification, as_json: bool) -> str:
    value = msgspec.json.encode(each if as_json else each.value).decode()
    return value if as_json else f"{each.at:%Y-%m-%d %H:%M:%S}  {value}"


def _warn(answer: Pulled) -> None:
    if answer.trimmed:
        typer.echo("Older results are no longer kept (pipeline.results_keep_s).", err=True)
    if answer.too_large:
        typer.echo(f"{answer.too_large} results are larger than this client takes.", err=True)
