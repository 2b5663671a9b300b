"""``tocsin sessions``: which sessions are stored, and removing one, without a broker: the store alone is asked."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Final

import msgspec
import typer

from tocsin.broker.channels.backend_subscriptions import OVER
from tocsin.cli.auditing import audited
from tocsin.cli.layout import console, lay_out
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings
from tocsin.config import Settings
from tocsin.core.delivery.stored_session import FOREVER_S, StoredSession, decode_session, session_key
from tocsin.errors import Conflict, FormatNewer, OperatorError
from tocsin.model.versions import UNREADABLE
from tocsin.ports import Table, TableSpec
from tocsin.store.jetstream.store import JetStreamStore

app = typer.Typer(help="List and remove stored sessions, including damaged ones.", no_args_is_help=True)
SHOWN: Final = 50  # sessions that are listed unless more are asked for
SHOWN_MAX: Final = 10_000
LIST: Final = "See `tocsin sessions list`"


class Session(msgspec.Struct, frozen=True):
    """A stored session as an operator sees it."""

    key: str
    bytes: int
    client: str = ""
    user: str = ""
    broker: str = ""  # that serves it, or did when it died
    expiry_s: int | None = 0  # None: never
    subscriptions: int = 0
    problem: str = ""  # why it is unreadable


@app.command("list")
def list_sessions(
    user: Annotated[str | None, typer.Option("--user", help="Only this user's sessions.")] = None,
    damaged: Annotated[bool, typer.Option("--damaged", help="Only sessions that cannot be read.")] = False,
    most: Annotated[
        int, typer.Option("--limit", min=1, max=SHOWN_MAX, help="Sessions to show, the largest first.")
    ] = SHOWN,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """List stored sessions, the largest first, and say how many there are and how many bytes.

    tocsin sessions list

    tocsin sessions list --damaged --json
    """
    settings = network_settings(config, sets, state)
    count, total, largest = asyncio.run(_list(settings, user, damaged, most))
    if json:
        found = {"sessions": count, "bytes": total, "largest": largest}
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    out = console()
    if largest:
        rows = [
            [
                each.client or each.problem,
                each.user,
                each.broker,
                f"{each.bytes:,}",
                str(each.subscriptions),
                "never" if each.expiry_s is None else f"{each.expiry_s:,} s",
                each.key,
            ]
            for each in largest
        ]
        headings = ["client", "user", "served by", "bytes", "subscriptions", "expires after", "key"]
        out.print(lay_out(headings, rows, [False, False, False, True, True, True, False], out.width))
    more = f"; the {len(largest)} largest are shown" if count > len(largest) else ""
    typer.echo(f"{count:,} stored sessions, {total:,} bytes{more}")


@app.command()
def remove(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The client id, or with --key the key.")],
    by_key: Annotated[
        bool, typer.Option("--key", help="CLIENT is a key as `list` shows it; for damaged sessions.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove it even if a broker serves it or a newer release wrote it."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Remove a client's stored session, with its subscriptions and whatever waits for it.

        tocsin sessions remove sensor-7

        tocsin sessions remove --key 3f9c… --yes

    A session that a broker serves is not removed without --force: its client is connected, or that broker died. The
    session of a connected client is stored again as soon as the client sends something.
    """
    settings = network_settings(config, sets, state)
    key = client if by_key else session_key(client)
    found = asyncio.run(_find(settings, key, client))
    if not yes:
        typer.confirm(
            f"Remove {_words(found)}, of the network {settings.network}?",
            abort=True,
            err=True,
        )
    what = f"tocsin sessions remove {'--key ' if by_key else ''}{client}{' --force' if force else ''}"
    with audited(settings.state, "remove session", found.client or key, what) as note:
        asyncio.run(_remove(settings, key, client, force))
        note.result = f"removed {_words(found)}"
    typer.echo(note.result)


def _words(session: Session) -> str:
    whose = (
        f"the session of {session.client!r}" if session.client else f"the unreadable session {session.key}"
    )
    return f"{whose}, {session.bytes:,} bytes, {session.subscriptions:,} subscriptions"


async def _list(
    settings: Settings, user: str | None, damaged: bool, most: int
) -> tuple[int, int, list[Session]]:
    """How many there are, their bytes, and the largest."""
    count = total = 0
    largest: list[tuple[int, int, Session]] = []
    async with _opened(settings) as (_, table), aclosing(_all(table)) as sessions:
        async for each in sessions:
            if (user is not None and each.user != user) or (damaged and not each.problem):
                continue
            count += 1
            total += each.bytes
            push = heapq.heappush if len(largest) < most else heapq.heappushpop
            push(largest, (each.bytes, -count, each))
    return count, total, [each for _, _, each in sorted(largest, reverse=True)]


async def _find(settings: Settings, key: str, client: str) -> Session:
    async with _opened(settings) as (_, table):
        cell = await table.get(key, fresh=True)
    if cell is None:
        raise OperatorError(f"{client!r} has no stored session", LIST)
    return _read(key, cell.value)


async def _remove(settings: Settings, key: str, client: str, force: bool) -> None:
    async with _opened(settings) as (store, table):
        cell = await table.get(key, fresh=True)
        if cell is None:
            raise OperatorError(f"{client!r} has no stored session any more", LIST)
        session: StoredSession | None = None
        try:
            session = decode_session(cell.value)
        except FormatNewer as error:
            if not force:
                raise OperatorError(
                    f"a newer release wrote this session: {error.problem}",
                    "Upgrade this program, or say --force to remove it all the same",
                ) from None
        except UNREADABLE:
            pass  # that is why it is removed
        if session is not None and session.broker and not force:
            raise OperatorError(
                f"the broker {session.broker} serves {session.client!r}, or died while it did",
                "Have the client disconnect first, or say --force if that broker is gone",
            )
        try:
            await table.delete(key, revision=cell.revision)
        except Conflict:
            raise OperatorError(
                "the session was written again during the removal, and stays",
                "Its client is connected: see `list`",
            ) from None
        if session is not None and session.home:  # which holds its channels, and looks for itself
            said = OVER.seal(f"{session.uid} {session.client}".encode())
            await store.bus.publish(f"{settings.network}.holders.{session.home}", said)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[JetStreamStore, Table]]:
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin sessions")
    try:
        yield store, await store.table(TableSpec(f"{settings.network}-sessions"))
    finally:
        await store.close()


async def _all(table: Table) -> AsyncGenerator[Session, None]:
    """The table's current sessions, one after the other."""
    changes = table.watch()
    async with aclosing(changes):  # type: ignore[type-var]
        async for change in changes:
            if change.kind == "ready":
                return
            if change.kind == "put":
                yield _read(change.key, change.value)


def _read(key: str, value: bytes) -> Session:
    try:
        session = decode_session(value)
    except UNREADABLE as error:
        return Session(key, len(value), problem=str(error))
    expiry_s = None if session.expiry_s >= FOREVER_S else session.expiry_s
    subscriptions = len(session.subscriptions)
    return Session(key, len(value), session.client, session.owner, session.broker, expiry_s, subscriptions)
