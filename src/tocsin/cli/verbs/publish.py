"""``tocsin pub``: send messages from the command line."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import msgspec
import typer

from tocsin.cli.target import calls
from tocsin.client import AsyncClient
from tocsin.client.message import said_of
from tocsin.client.stream import Stream
from tocsin.errors import OperatorError
from tocsin.model.stream import Value

LINE_MAX_BYTES = 1 << 20


@calls
def publish(
    client: AsyncClient,
    topic: Annotated[str, typer.Argument(help="The topic, such as alerts/north/flood.")],
    message: Annotated[
        str | None, typer.Argument(help="The payload. Without it, each line of standard input is a message.")
    ] = None,
    qos: Annotated[
        int, typer.Option("--qos", "-q", min=0, max=2, help="1 and 2: wait until each message is durable.")
    ] = 0,
    meta: Annotated[
        list[str] | None,
        typer.Option(
            "--meta",
            "-m",
            metavar="KEY=TEXT",
            help="Metadata of the stream, sent with the first message; KEY:=JSON for numbers, true, false, and null "
            "to take it away. May be repeated.",
        ),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority",
            metavar="0-9|critical",
            help="Messages from 7 on are critical: they overtake others at QoS 1 and 2.",
        ),
    ] = None,
) -> None:
    """Publish a message, or each line of standard input, to a topic.

    tocsin pub -b north-1 alerts/north/flood "water at 3.2 m"

    tocsin pub building/4/temp 21.5 --meta Location/Room=410 --meta floor:=4

    tocsin pub --qos 1 --priority critical alerts/north/flood "the dam is open"

    tocsin pub --at mqtts://alerts.example.org:8883 --cafile ca.pem --user gateway alerts/test hello
    """
    metadata = dict(map(_pair, meta or ()))
    asyncio.run(_publish(client, topic, message, qos, metadata, _checked(priority)))


def _checked(priority: str | None) -> str | None:
    try:
        said_of(priority)
    except ValueError:
        raise OperatorError(
            f"--priority {priority!r} is not a priority", "Give 0 to 9, or critical, which is 9"
        ) from None
    return priority


def _pair(text: str) -> tuple[str, Value | None]:
    key, separator, value = text.partition("=")
    try:
        if not separator or key in ("", ":"):
            raise ValueError
        if not key.endswith(":"):
            return key, value
        return key[:-1], msgspec.json.decode(value, type=str | int | float | bool | None)
    except (ValueError, msgspec.DecodeError):
        raise OperatorError(
            f"--meta {text!r} cannot be read", "Write KEY=TEXT, or KEY:=JSON such as floor:=4 or old:=null"
        ) from None


async def _publish(
    client: AsyncClient,
    topic: str,
    message: str | None,
    qos: int,
    metadata: dict[str, Value | None],
    priority: str | None,
) -> None:
    async with client:
        stream = client.stream(topic, metadata, qos=qos)
        stream.priority = priority
        if message is not None:
            await stream.publish(message)
        else:
            await _publish_lines(stream)
        await client.flush()


async def _publish_lines(stream: Stream) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline, LINE_MAX_BYTES + 1):
        if len(line) > LINE_MAX_BYTES:
            raise OperatorError(
                f"a line of standard input is longer than {LINE_MAX_BYTES} bytes", "Send it in parts"
            )
        await stream.publish(line.removesuffix(b"\n"))
