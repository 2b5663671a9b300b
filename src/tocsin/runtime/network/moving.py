"""A cluster of before there were two accounts: its streams are moved to the account where they belong now.

A server by itself keeps its streams in a directory, which is renamed (``store_access.adopt``). Three servers have the
account's name in the log of their cluster too. So their streams are saved and loaded, as a backup is, each with every
position, while nothing else runs:

    save      every stream into nats/moving; then nats/moving/streams.json
    set aside nats/store-N/data as data.before, of each server
    load into servers that start empty
    done      streams.json is removed, then all that was set aside

With ``streams.json`` the content of ``nats/moving`` is whole, and loading begins again, wherever it was broken off. If
it fails, everything is put back, and the cluster goes on as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
import structlog

from tocsin.config import Settings
from tocsin.errors import Malformed, StoreError
from tocsin.model.versions import Document
from tocsin.runtime.network import plan as network
from tocsin.runtime.network.directory import StateDirectory, make_private, write_private
from tocsin.runtime.network.store_access import is_global
from tocsin.store.jetstream import snapshots
from tocsin.store.jetstream.snapshots import Saved
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.servers.embedded import DATA

LEADERS_S: Final = 60.0  # for the streams of servers that have just started to have leaders
STOP_S: Final = 20.0  # for a server that was started for this
LIST: Final = "streams.json"
BEFORE: Final = "data.before"

_log = structlog.get_logger()


class Moving(msgspec.Struct, frozen=True):
    """The streams that are saved."""

    streams: tuple[Saved, ...]


MOVING: Final = Document("the streams that are moved", msgspec.json.Decoder(Moving))


async def move(settings: Settings, directory: StateDirectory) -> None:
    """Move the streams of a cluster, from settings that were prepared, if they are not where they belong."""
    spool, homes = directory.nats / "moving", sorted(directory.nats.glob("store-*"))
    whole = (spool / LIST).exists()
    if not whole and not is_global(directory.path):
        _clear(spool, homes)
        return
    if not whole and not _has_room(directory.nats, homes):
        _log.warning(
            "the streams of the store are not moved: there is not enough room", need="twice what it has"
        )
        return
    try:
        if not whole:
            await _save(settings, directory, spool)
        saved = MOVING.read((spool / LIST).read_bytes()).streams
        _set_aside(homes)
        await _load(settings, directory, spool, saved)
        (spool / LIST).unlink()
    except (StoreError, Malformed, OSError) as error:
        _log.warning("the streams of the store are not moved", problem=str(error))
        _put_back(homes)
    _clear(spool, homes)


async def _save(settings: Settings, directory: StateDirectory, spool: Path) -> None:
    shutil.rmtree(spool, ignore_errors=True)
    make_private(spool)
    saved: list[Saved] = []
    async with running(settings, directory, "moving.log"), _operator(settings) as store:
        for number, name in enumerate(await snapshots.all_names(store)):
            _log.info("the streams of the store are moved to an account of their own", stream=name)
            path = spool / str(number)
            saved.append(await snapshots.save(store, name, path, path.name))
            with path.open("rb") as file:
                os.fsync(file.fileno())
    write_private(spool / LIST, MOVING.write(Moving(tuple(saved))))


async def _load(
    settings: Settings, directory: StateDirectory, spool: Path, streams: tuple[Saved, ...]
) -> None:
    async with running(settings, directory, "moving.log"), _operator(settings) as store:
        for saved in streams:
            replicas = int(saved.config["num_replicas"])
            await snapshots.load(store, saved, spool / saved.file, replicas=replicas)


def _set_aside(homes: list[Path]) -> None:
    """The streams of a server, except leftovers of an interrupted attempt."""
    for home in homes:
        if (home / BEFORE).exists():
            shutil.rmtree(home / DATA, ignore_errors=True)
        else:
            (home / DATA).rename(home / BEFORE)


def _put_back(homes: list[Path]) -> None:
    for home in homes:
        if (home / BEFORE).exists():
            shutil.rmtree(home / DATA, ignore_errors=True)
            (home / BEFORE).rename(home / DATA)


def _clear(spool: Path, homes: list[Path]) -> None:
    for path in (spool, *(home / BEFORE for home in homes)):
        shutil.rmtree(path, ignore_errors=True)


def _has_room(nats: Path, homes: list[Path]) -> bool:
    """For one copy of what all servers have, and for the streams as files."""
    taken = sum(path.stat().st_size for home in homes for path in home.rglob("*") if path.is_file())
    return shutil.disk_usage(nats).free > 2 * taken


@contextlib.asynccontextmanager
async def _operator(settings: Settings) -> AsyncIterator[JetStreamStore]:
    store = await JetStreamStore.open(settings.nats, "operator", name="tocsin move", deadline_s=LEADERS_S)
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def running(settings: Settings, directory: StateDirectory, log: str) -> AsyncIterator[None]:
    """The embedded servers, from settings that were prepared, for as long as this lasts, and nothing else."""
    plans = [
        plan
        for plan in network.plans(settings, directory, empty=True)
        if plan.child.stage == network.STORE_STAGE and plan.ready is not None
    ]
    with (directory.logs / log).open("ab") as output:
        processes = [
            await asyncio.create_subprocess_exec(
                *plan.argv, stdout=output, stderr=output, start_new_session=True
            )
            for plan in plans
        ]
        try:
            for plan in plans:
                assert plan.ready is not None
                await plan.ready()
            yield
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            for process in processes:
                try:
                    async with asyncio.timeout(STOP_S):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()
