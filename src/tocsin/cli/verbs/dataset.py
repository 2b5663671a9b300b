"""``tocsin dataset``: which datasets there are, how large they are, and files into them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from tocsin.cli.asking import Found, unreachable
from tocsin.cli.auditing import audited
from tocsin.cli.layout import console, lay_out
from tocsin.cli.listing import (
    JsonOption,
    NameArgument,
    Reached,
    Shown,
    asks,
    check_name,
    figure,
    finds,
    print_description,
    print_list,
)
from tocsin.errors import DatasetMissing, OperatorError, StoreUnavailable
from tocsin.model.catalogue import Dataset, decode_definition, is_name
from tocsin.model.channel_names import ChannelNames
from tocsin.runtime import extra
from tocsin.store.jetstream.store import JetStreamStore

if TYPE_CHECKING:
    from tocsin.pipeline.storage.landing import Landing
    from tocsin.pipeline.storage.rows.loading import Loaded

app = typer.Typer(help="Show datasets and quarantined records, and load files.", no_args_is_help=True)
CONNECT_S: Final = 5.0
SHOWN: Final = 20  # records of a quarantine
RECORD_SHOWN: Final = 1_000  # characters of one of them; the rest is in the JSON
COLUMNS: Final = (
    Shown("dataset", lambda row: str(row["name"])),
    Shown("key", lambda row: ", ".join(row["key"])),
    figure("rows"),
    figure("files"),
    figure("bytes"),
    figure("version"),
    figure("quarantined"),
    Shown("lag", lambda row: f"{row['lag_records']:,}", number=True),
)


@app.command("list")
@asks
def list_datasets(reached: Reached, json: JsonOption = False) -> None:
    """List datasets: rows, files, bytes, quarantined records, and records that wait to be taken in."""
    print_list(reached, "dataset", COLUMNS, json)


@app.command()
@asks
def describe(reached: Reached, name: NameArgument, json: JsonOption = False) -> None:
    """Show a dataset's columns, statement and status."""
    print_description(reached, "dataset", name, json)


@app.command()
@finds
def load(
    found: Found,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="CSV, JSON, JSON lines, GeoJSON or Parquet.")],
    into: Annotated[
        str, typer.Option("--into", metavar="NAME", help="The dataset; by default named after the file.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Load the file again even if it was loaded before.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Load a file into a dataset. Run it on a machine that has the storage; Spark need not run.

        tocsin dataset load shelters.csv --into Shelters

    Repeat an interrupted load to continue it. A file that was loaded before is skipped, unless
    `--again` says so. Rows that do not fit go to the dataset's quarantine. Channels see new rows within seconds.
    """
    name = into or path.stem
    if not into and not is_name(name):
        raise OperatorError(f"{name!r} is no name of a dataset", "Say which it is with --into NAME")
    landing, dataset = _open(name, found)
    what = f"tocsin dataset load {path} --into {dataset.name}{' --again' if again else ''}"
    with audited(found.state, "load file", dataset.name, what) as note:
        done = _load(landing, path, dataset, again)
        note.result = _account(done, path, dataset.name)
    if json:
        typer.echo(msgspec.json.encode(done).decode())
        return
    typer.echo(note.result)


@app.command()
@finds
def quarantine(
    found: Found,
    name: NameArgument,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="How many to show, newest first.")
    ] = SHOWN,
    json: JsonOption = False,
) -> None:
    """Show the records that did not fit a dataset, and why. They are kept for 30 days.

    Run it on a machine that has the storage; Spark need not run.
    """
    landing, dataset = _open(name, found)
    rows = landing.rejected(dataset.name, limit).to_pylist()
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    if not rows:
        typer.echo(f"every record fitted {dataset.name}")
        return
    out, headings = console(), ("at", "feed", "reason", "record")
    texts = [[str(row[each])[:RECORD_SHOWN] for each in headings] for row in rows]
    out.print(lay_out(headings, texts, (False,) * len(headings), out.width))
    total = landing.quarantined(dataset.name)
    if total > len(rows):
        typer.echo(f"{len(rows):,} of {total:,}; --limit shows more")


@app.command()
@finds
def replay(found: Found, name: NameArgument) -> None:
    """Fit the records in a dataset's quarantine once more, and move those that fit now.

    Use it after the dataset was created again with other columns. To channels the moved records are new. Run it on a
    machine that has the storage; Spark need not run.
    """
    landing, dataset = _open(name, found)
    what = f"tocsin dataset replay {dataset.name}"
    with audited(found.state, "replay quarantine", dataset.name, what) as note:
        done = landing.replay(dataset.name, time.time_ns() // 1_000)
        note.result = (
            f"{done.rows:,} records are in {dataset.name} now; {done.quarantined:,} still do not fit"
        )
    typer.echo(note.result)


def _open(name: str, found: Found) -> tuple[Landing, Dataset]:
    """The storage, with a dataset of it; ``OperatorError`` if it is not on this machine."""
    extra.check_installed()
    check_name("dataset", name)
    if not found.storage.is_dir():
        raise OperatorError(
            f"there are no datasets in {found.storage}",
            "Run this where the pipeline's storage is, and name it with --state DIR or --set pipeline.storage=DIR",
        )
    try:
        dataset = asyncio.run(definition(found, name))
    except StoreUnavailable as error:
        raise unreachable(error) from None
    from tocsin.pipeline.storage.landing import Landing  # it imports what only the extra brings

    landing = Landing(found.storage)
    landing.create(dataset)
    return landing, dataset


async def definition(found: Found, name: str) -> Dataset:
    """A dataset as it is defined; ``DatasetMissing``."""
    store = await JetStreamStore.open(found.nats, "operator", name="tocsin dataset", deadline_s=CONNECT_S)
    try:
        table = await store.table(ChannelNames(found.network).catalogue)
        cell = await table.get(f"dataset.{name.lower()}")
    finally:
        await store.close()
    known = None if cell is None else decode_definition(cell.value)
    if not isinstance(known, Dataset):
        raise DatasetMissing(name)
    return known


def _load(landing: Landing, path: Path, dataset: Dataset, again: bool) -> Loaded:
    from tocsin.pipeline.storage.rows.loading import Progress as Step  # it imports what only the extra brings
    from tocsin.pipeline.storage.rows.loading import load as load_file

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(path.name, total=None)

        def progress(step: Step) -> None:
            words = f"{path.name}: {step.rows:,} rows"
            bar.update(task, completed=step.bytes_read, total=step.bytes_total, description=words)

        return load_file(
            landing,
            path,
            dataset.name,
            now_us=lambda: time.time_ns() // 1_000,
            again=again,
            progress=progress,
        )


def _account(done: Loaded, path: Path, dataset: str) -> str:
    if done.repeated:
        return f"{path} is in {dataset} already; --again loads it once more"
    words = f"{done.rows:,} rows of {path} are in {dataset}"
    if done.quarantined:
        words += f"; {done.quarantined:,} did not fit: `tocsin dataset quarantine {dataset}` says why"
    if done.ignored:
        words += f"; columns that it does not have: {', '.join(sorted(done.ignored))}"
    return words
