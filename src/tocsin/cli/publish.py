"""``tocsin pub``: send messages from the command line."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from tocsin.cli.target import DEFAULT_STATE, AddressOption, BrokerOption, StateOption, find_broker
from tocsin.client import Client
from tocsin.errors import OperatorError

LINE_MAX_BYTES = 1 << 20


def publish(
    topic: Annotated[str, typer.Argument(help="The topic, such as alerts/north/flood.")],
    message: Annotated[
        str | None, typer.Argument(help="What to say. Without it, each line of standard input is a message.")
    ] = None,
    broker: BrokerOption = "",
    address: AddressOption = "",
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Publish a message, or each line of standard input, to a topic (best effort, QoS 0).

    Example: tocsin pub -b north-1 alerts/north/flood "water at 3.2 m"
    """
    host, port = find_broker(broker, address, state)
    asyncio.run(_publish(host, port, topic, message))


async def _publish(host: str, port: int, topic: str, message: str | None) -> None:
    async with Client(host, port) as client:
        if message is not None:
            client.publish(topic, message.encode())
        else:
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(None, sys.stdin.buffer.readline, LINE_MAX_BYTES + 1):
                if len(line) > LINE_MAX_BYTES:
                    raise OperatorError(
                        f"a line of standard input is longer than {LINE_MAX_BYTES} bytes", "Send it in parts"
                    )
                client.publish(topic, line.removesuffix(b"\n"))
        await client.flush()
