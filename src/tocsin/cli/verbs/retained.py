"""``tocsin retained``: which messages are retained, and removing them, without a broker: the store alone is asked."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer

from tocsin.broker.retained.table import retained_table
from tocsin.cli.auditing import audited
from tocsin.cli.layout import console, lay_out
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings
from tocsin.config import Settings
from tocsin.core.retained.kept import KEPT
from tocsin.errors import Conflict, OperatorError
from tocsin.model.subjects import topic_of
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Table
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.wire.mqtt.topics import FilterInvalid, check_filter, matches

app = typer.Typer(
    help="List and remove retained messages, even while no broker accepts clients.", no_args_is_help=True
)
SHOWN: Final = 50  # messages that are listed unless more are asked for
SHOWN_MAX: Final = 10_000
LEFT: Final = 1  # the exit code of ``remove`` where some were written again during it

FilterArgument = Annotated[str, typer.Argument(metavar="FILTER", help="A topic filter, as in SUBSCRIBE.")]


class Message(msgspec.Struct, frozen=True):
    """A retained message as an operator sees it."""

    topic: str
    bytes: int  # of its payload; of one that is unreadable, of all
    qos: int = 0
    client: str = ""
    user: str = ""
    at: str = ""  # when it was taken
    problem: str = ""  # why it is unreadable
    key: str = ""
    revision: int = 0


@app.command("list")
def list_messages(
    topic_filter: FilterArgument = "#",
    most: Annotated[
        int, typer.Option("--limit", min=1, max=SHOWN_MAX, help="Messages to show, the largest first.")
    ] = SHOWN,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """List retained messages, the largest first, and say how many there are and how many bytes.

    tocsin retained list

    tocsin retained list 'cameras/#' --limit 10 --json
    """
    _check(topic_filter)
    count, total, largest = asyncio.run(_list(network_settings(config, sets, state), topic_filter, most))
    if json:
        shown = [_facts(each) for each in largest]
        found = {"filter": topic_filter, "messages": count, "bytes": total, "largest": shown}
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    out = console()
    if largest:
        rows = [
            [each.topic, f"{each.bytes:,}", str(each.qos), each.client, each.user, each.at or each.problem]
            for each in largest
        ]
        headings = ["topic", "bytes", "QoS", "client", "user", "taken"]
        out.print(lay_out(headings, rows, [False, True, True, False, False, False], out.width))
    more = f"; the {len(largest)} largest are shown" if count > len(largest) else ""
    typer.echo(f"{count:,} retained messages, {total:,} bytes{more}")


@app.command()
def remove(
    topic_filter: Annotated[str, typer.Argument(metavar="FILTER", help="A topic filter, as in SUBSCRIBE.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object; needs --yes.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Remove the retained messages of the topics that a filter matches, at every broker.

        tocsin retained remove cameras/7/picture

        tocsin retained remove 'cameras/#' --yes

    A message published on such a topic during the removal stays; then the exit code is 1.
    """
    _check(topic_filter)
    if json and not yes:
        raise OperatorError("--json cannot ask", "Say --yes too")
    settings = network_settings(config, sets, state)
    what = f"tocsin retained remove {topic_filter}"
    with audited(settings.state, "remove retained", topic_filter, what) as note:
        count, total, _ = asyncio.run(_list(settings, topic_filter, 1))
        if not yes and count:
            typer.confirm(
                f"Remove {count:,} retained messages, {total:,} bytes, of the network {settings.network}?",
                abort=True,
                err=True,
            )
        removed, freed, left = asyncio.run(_remove(settings, topic_filter))
        kept = f"; {left:,} were written again during the removal, and stay" if left else ""
        note.result = f"removed {removed:,} retained messages, {freed:,} bytes{kept}"
    if json:
        typer.echo(msgspec.json.encode({"removed": removed, "bytes": freed, "left": left}).decode())
    else:
        typer.echo(note.result)
    raise typer.Exit(LEFT if left else 0)


def _check(topic_filter: str) -> None:
    try:
        check_filter(topic_filter)
    except FilterInvalid as error:
        raise OperatorError(
            str(error), "Write it as in SUBSCRIBE, such as 'cameras/#' or 'a/+/state'"
        ) from None


async def _list(settings: Settings, topic_filter: str, most: int) -> tuple[int, int, list[Message]]:
    """How many there are, their bytes, and the largest."""
    count = total = 0
    largest: list[tuple[int, int, Message]] = []
    async with (
        _opened(settings, "tocsin retained list") as table,
        aclosing(_found(table, topic_filter)) as all_,
    ):
        async for message in all_:
            count += 1
            total += message.bytes
            push = heapq.heappush if len(largest) < most else heapq.heappushpop
            push(largest, (message.bytes, -count, message))
    return count, total, [message for _, _, message in sorted(largest, reverse=True)]


async def _remove(settings: Settings, topic_filter: str) -> tuple[int, int, int]:
    """How many were removed, their bytes, and how many were not, because they were written again."""
    removed = freed = left = 0
    async with _opened(settings, "tocsin retained remove") as table:
        async with aclosing(_found(table, topic_filter)) as all_:
            found = [(each.key, each.revision, each.bytes) async for each in all_]
        for key, revision, size in found:
            try:
                await table.delete(key, revision=revision)
            except Conflict:
                left += await table.get(key, fresh=True) is not None
            else:
                removed += 1
                freed += size
    return removed, freed, left


@asynccontextmanager
async def _opened(settings: Settings, name: str) -> AsyncIterator[Table]:
    store = await JetStreamStore.open(settings.nats, "operator", name=name)
    try:
        yield await store.table(retained_table(settings.network))
    finally:
        await store.close()


async def _found(table: Table, topic_filter: str) -> AsyncGenerator[Message, None]:
    """The table's current messages, one after the other: no more than one is kept."""
    changes = table.watch()
    async with aclosing(changes):  # type: ignore[type-var]
        async for change in changes:
            if change.kind == "ready":
                return
            if change.kind == "put" and matches(topic_filter, topic := topic_of(change.key)):
                yield _read(topic, change.key, change.value, change.revision)


def _read(topic: str, key: str, value: bytes, revision: int) -> Message:
    try:
        kept = KEPT.read(value)
    except UNREADABLE as error:
        return Message(topic, len(value), problem=str(error), key=key, revision=revision)
    publication = kept.publication
    at = datetime.fromtimestamp(kept.at_s, UTC).isoformat(timespec="seconds")
    size = len(publication.payload)
    return Message(topic, size, publication.qos, publication.client, kept.user, at, "", key, revision)


def _facts(message: Message) -> dict[str, object]:
    return {
        name: value for name, value in msgspec.to_builtins(message).items() if name not in ("key", "revision")
    }
