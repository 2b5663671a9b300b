"""Channels, datasets and feeds as tables for people and as JSON for programs; what ``list`` and ``describe`` share."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final, Literal

import msgspec
import typer
from rich.table import Table

from tocsin.cli.answers import show
from tocsin.cli.asking import WAIT_S, Found, WaitOption, ask, find, reach
from tocsin.cli.layout import console, lay_out, printable
from tocsin.cli.options import made_by
from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption
from tocsin.client.sql import Pipeline, Problem, Reply
from tocsin.errors import OperatorError
from tocsin.model.catalogue import is_name

Kind = Literal["channel", "dataset", "feed"]
Row = Mapping[str, Any]
Reached = AbstractAsyncContextManager[Pipeline]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name (case-insensitive).")]
MICRO: Final = 1_000_000


def _reached(
    wait: WaitOption = WAIT_S,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> Reached:
    """The pipeline of the network that the options name."""
    return reach(config, sets, state, wait)


def _found(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> Found:
    """That network itself."""
    return find(config, sets, state)


asks = made_by(_reached, "reached")  # of commands that ask the pipeline
finds = made_by(_found, "found")  # of commands that do without it


class Shown(msgspec.Struct, frozen=True):
    """A column of a list: its heading, what it says of a row, and whether that is a number."""

    heading: str
    of: Callable[[Row], str]
    number: bool = False


def figure(key: str) -> Shown:
    """A whole number by its key."""
    return Shown(key.replace("_", " "), lambda row: f"{row[key]:,}", number=True)


def words(key: str) -> Shown:
    return Shown(key, lambda row: str(row[key]))


def ago(at_us: int | None) -> str:
    """How long ago something was; empty if it never was."""
    if not at_us:
        return ""
    seconds = max(0, time.time_ns() // 1_000 - at_us) // MICRO
    return f"{datetime.timedelta(seconds=seconds)} ago"


async def rows(pipeline: Pipeline, kind: Kind) -> list[dict[str, Any]]:
    """The pipeline's rows of all objects of a kind; a feed's row also has the feeder's status, as ``agent``."""
    if kind != "feed":
        told, agents = await pipeline.status(), {}
    else:
        told, feeder = await asyncio.gather(pipeline.status(), pipeline.feeder_status())
        agents = {str(each["name"]).lower(): each for each in feeder["feeds"]}
    found: list[dict[str, Any]] = sorted(told[f"{kind}s"], key=lambda each: str(each["name"]).lower())
    if kind == "feed":
        found = [{**each, "agent": agents.get(str(each["name"]).lower())} for each in found]
    return found


def print_list(reached: Reached, kind: Kind, columns: Sequence[Shown], as_json: bool) -> None:
    found = ask(reached, lambda pipeline: rows(pipeline, kind))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    out = console()
    if found:
        out.print(table(found, columns, out.width))
    else:
        out.print(f"there are no {kind}s yet; `tocsin sql` makes them", markup=False)


def table(found: Sequence[Row], columns: Sequence[Shown], width: int) -> Table:
    return lay_out(
        [column.heading for column in columns],
        [[column.of(row) for column in columns] for row in found],
        [column.number for column in columns],
        width,
    )


def print_description(reached: Reached, kind: Kind, name: str, as_json: bool) -> None:
    """The definition, and how it is."""
    check_name(kind, name)
    text = f"DESCRIBE {kind.upper()} `{name}`"

    async def both(pipeline: Pipeline) -> tuple[Reply, list[dict[str, Any]]]:
        return await pipeline.run(text), await rows(pipeline, kind)

    reply, found = ask(reached, both)
    if reply.error is not None:
        raise refused(reply.error)
    (answer,) = reply.results
    status = next((each for each in found if str(each["name"]).lower() == name.lower()), {})
    if as_json:
        said = {"definition": list(answer.objects()), "text": answer.message, "status": status}
        typer.echo(msgspec.json.format(msgspec.json.encode(said), indent=2).decode())
        return
    show(answer, "table")
    facts = Table("", "", show_header=False)
    for key, value in status.items():
        facts.add_row(key.replace("_", " "), printable(_told(key, value)))
    console().print(facts)


def _told(key: str, value: Any) -> str:
    if key.endswith("_at_us"):
        return "" if not value else f"{_moment(value)}"
    if isinstance(value, bool | str):
        return str(value)
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else msgspec.json.encode(value).decode()


def _moment(at_us: int) -> str:
    return datetime.datetime.fromtimestamp(at_us / MICRO, datetime.UTC).isoformat(timespec="seconds")


def run_statement(reached: Reached, kind: Kind, verb: str, name: str) -> None:
    """Run one statement about a named object; return its outcome as text."""
    check_name(kind, name)
    reply = ask(reached, lambda pipeline: pipeline.run(f"{verb} {kind.upper()} `{name}`"))
    if reply.error is not None:
        raise refused(reply.error)
    for answer in reply.results:
        show(answer, "table")


def check_name(kind: Kind, name: str) -> None:
    if not is_name(name):
        raise OperatorError(
            f"{name!r} is no name of a {kind}",
            f"Look at `tocsin {kind} list`; names are letters, digits and _",
        )


def refused(problem: Problem) -> OperatorError:
    return OperatorError(problem.message, problem.remedy or "Look at what there is with `list`")
