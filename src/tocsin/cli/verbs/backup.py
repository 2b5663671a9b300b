"""``tocsin backup``: save a network, look at what was saved, and make a network of it again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tocsin.cli.auditing import audited
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, network_settings, read
from tocsin.config import Settings
from tocsin.errors import OperatorError
from tocsin.runtime.network import backup as backups
from tocsin.runtime.network.backup import Manifest
from tocsin.runtime.network.directory import StateDirectory, read_network

app = typer.Typer(help="Back up a network, and restore it.", no_args_is_help=True)
Target = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the backup.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]


@app.command()
def create(
    directory: Target,
    quiet: Quiet = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Save everything that a network stores: logs, tables and datasets.

    The network may run; everything that was acknowledged before the backup began is in it. It may be stopped, too: then
    its store is started for as long as it takes. The directory must be empty, or not there yet; nobody else may
    read it. Settings, users, certificates and keys are not in it.

        tocsin backup create /backups/monday

        tocsin backup create /backups/monday -c tocsin.toml
    """
    where, what = read(config, sets, state).settings.state, f"tocsin backup create {directory}"
    with audited(where, "create backup", str(directory.absolute()), what):
        manifest = asyncio.run(_create(config, sets, state, directory, _teller(quiet)))
    typer.echo(f"{directory}: {_summary(manifest)}")
    for doubt in manifest.doubts:
        typer.echo(f"  note: {doubt}")


@app.command()
def verify(directory: Target, quiet: Quiet = False) -> None:
    """Read a backup whole and compare it with its manifest: sizes, checksums, the files of every dataset. Needs no
    network.

        tocsin backup verify /backups/monday
    """
    manifest = backups.verify(directory, _teller(quiet))
    typer.echo(f"{directory}: whole; {_summary(manifest)}")


@app.command()
def restore(
    directory: Target,
    quiet: Quiet = False,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Restore a backup into an empty network. When you start it, it resumes where it was.

    The state directory must have no data, or the NATS servers of `nats.urls` nothing of a network of this name. The
    backup is verified first. Positions, sessions and retained messages are as they were; time went on, so that what had
    an expiry may be over.

        tocsin backup restore /backups/monday --state /var/lib/tocsin

        tocsin up --state /var/lib/tocsin
    """
    say = _teller(quiet)
    settings = read(config, sets, state).settings
    what = f"tocsin backup restore {directory}"
    with audited(settings.state, "restore backup", str(directory.absolute()), what):
        manifest = backups.verify(directory, say)
        backups.check_name(settings, manifest)
        asyncio.run(_restore(settings, directory, manifest, say))
    typer.echo(f"restored {_summary(manifest)}")


async def _create(
    config: Path | None, sets: list[str] | None, state: str | None, target: Path, say: backups.Say
) -> Manifest:
    settings = network_settings(config, sets, state)
    given = read(config, sets, state).settings
    where = Path(given.state)
    if given.nats.urls or StateDirectory.holder(where):
        return await _save(settings, target, say)
    if (file := read_network(where)) is None:
        raise OperatorError(
            f"no network was ever started on {where}", "Name its state directory with --state"
        )
    stopped = backups.as_it_was(given, file)
    async with backups.servers(stopped) as prepared:
        return await _save(prepared, target, say)


async def _save(settings: Settings, target: Path, say: backups.Say) -> Manifest:
    store = await backups.open_store(settings)
    try:
        return await backups.create(store, settings, target, say)
    finally:
        await store.close()


async def _restore(settings: Settings, source: Path, manifest: Manifest, say: backups.Say) -> None:
    if settings.nats.urls:
        await _fill(settings, source, manifest, say)
        return
    async with backups.servers(settings) as prepared:
        await _fill(prepared, source, manifest, say)


async def _fill(settings: Settings, source: Path, manifest: Manifest, say: backups.Say) -> None:
    store = await backups.open_store(settings)
    try:
        await backups.restore(store, settings, source, manifest, say)
    finally:
        await store.close()


def _teller(quiet: bool) -> backups.Say:
    return (lambda what: None) if quiet else (lambda what: typer.echo(what, err=True))


def _summary(manifest: Manifest) -> str:
    messages = sum(each.messages for each in manifest.streams)
    return (
        f"network {manifest.network} as of {manifest.began}: {len(manifest.streams)} streams with "
        f"{messages:,} records, {len(manifest.files):,} files of datasets, {manifest.bytes:,} bytes"
    )
