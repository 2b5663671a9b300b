"""``tocsin sub``: print messages as they arrive."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import msgspec
import typer

from tocsin.cli.target import DEFAULT_STATE, AddressOption, BrokerOption, StateOption, find_broker
from tocsin.client import Client, Message


def subscribe(
    filters: Annotated[
        list[str], typer.Argument(metavar="FILTER…", help="Topic filters: + is one level, # all below.")
    ],
    broker: BrokerOption = "",
    address: AddressOption = "",
    state: StateOption = DEFAULT_STATE,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="End after so many messages; 0: never.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the messages of these topics, from wherever in the network they come, until Ctrl-C.

    Example: tocsin sub -b south-2 'alerts/#'
    """
    host, port = find_broker(broker, address, state)
    asyncio.run(_subscribe(host, port, filters, count, json))


async def _subscribe(host: str, port: int, filters: list[str], count: int, json: bool) -> None:
    async with Client(host, port) as client:
        for topic_filter in filters:
            await client.subscribe(topic_filter)
        seen = 0
        async for message in client.messages():
            sys.stdout.write(_line(message, json))
            sys.stdout.flush()
            seen += 1
            if seen == count:
                return


def _line(message: Message, json: bool) -> str:
    text = message.payload.decode(errors="backslashreplace")
    if json:
        return msgspec.json.encode({"topic": message.topic, "payload": text}).decode() + "\n"
    return f"{message.topic} {text}\n"
