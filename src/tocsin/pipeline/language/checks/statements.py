"""A statement against what there is: names that exist or do not, and queries that can be compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Final

from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import Channel, Dataset, Definition, Feed
from tocsin.pipeline.execution.compiled import Compiled, Selection, compile_channel, compile_select
from tocsin.pipeline.language.names import meant
from tocsin.pipeline.language.text.statements import (
    AlterChannel,
    CreateChannel,
    CreateDataset,
    CreateFeed,
    Describe,
    Drop,
    ExplainChannel,
    Kind,
    PauseChannel,
    ResumeChannel,
    RunChannel,
    Select,
    Show,
    Statement,
)
from tocsin.pipeline.language.tree.query import channels_read

_TYPES: Final[dict[Kind, type[Definition]]] = {"dataset": Dataset, "feed": Feed, "channel": Channel}


def check(
    statement: Statement, definitions: Iterable[Definition], script: str
) -> Compiled | Selection | None:
    """The checked query of the statement, if it has one. Raises ``SqlInvalid``, which points into ``script``."""
    known = list(definitions)
    datasets = [each for each in known if isinstance(each, Dataset)]
    channels = [each for each in known if isinstance(each, Channel)]
    match statement:
        case CreateDataset(dataset=made, if_not_exists=lenient, at=at):
            _expect_free(script, at, known, "dataset", made.name, lenient)
        case CreateFeed(feed=made, if_not_exists=lenient, at=at, dataset_at=dataset_at):
            _expect(script, dataset_at, known, "dataset", made.dataset)
            _expect_free(script, at, known, "feed", made.name, lenient)
        case CreateChannel(
            channel=made, or_replace=replaces, if_not_exists=lenient, at=at, query_at=query_at
        ):
            _expect_free(script, at, known, "channel", made.name, lenient or replaces)
            return compile_channel(made, datasets, script, query_at, channels=channels)
        case Drop(kind=kind, name=name, if_exists=lenient, at=at):
            if not lenient:
                _expect(script, at, known, kind, name)
        case AlterChannel(name=name, at=at, priority_column=column):
            channel = _expect(script, at, known, "channel", name)
            assert isinstance(channel, Channel)
            _expect_priority(script, at, channel, column)
        case PauseChannel() | ResumeChannel() | RunChannel() | ExplainChannel():
            _expect(script, statement.at, known, "channel", statement.name)
        case Show(of=name, at=at):
            if name is not None:
                _expect(script, at, known, "channel", name)
        case Describe(name=name, at=at, kind=kind):
            _expect(script, at, known, kind, name)
        case Select(text=text, at=at):
            return compile_select(text, datasets, channels, script, at)
    return None


def check_circle(
    script: str, statement: CreateChannel, channels: Iterable[Channel], visible: Collection[Definition]
) -> None:
    """Raise ``SqlInvalid`` if a channel would read its own results, perhaps by way of others.

    All ``channels`` count; those that are not ``visible`` to the user are not named.
    """
    made = statement.channel
    known = {each.name.lower(): each for each in channels if each.name.lower() != made.name.lower()}
    for first, position in channels_read(made.query).items():
        paths = {first: [made.name]}  # a channel whose results are read, directly or not → the way to it
        left = [first]
        while left:
            name = left.pop()
            if name == made.name.lower():
                steps = pairwise([*paths[name], made.name])
                raise SqlInvalid(
                    script,
                    statement.query_at + position,
                    "a channel cannot read its own results: "
                    + ", ".join(f"{one} reads {other}" for one, other in steps),
                    "read the datasets that they come from",
                )
            channel = known.get(name)
            if channel is not None:
                shown = channel.name if channel in visible else "another channel"
                for other in channels_read(channel.query).keys() - paths.keys():
                    paths[other] = [*paths[name], shown]
                    left.append(other)


def _expect(script: str, at: int, known: list[Definition], kind: Kind | None, name: str) -> Definition:
    of_kind = [each for each in known if kind is None or isinstance(each, _TYPES[kind])]
    for each in of_kind:
        if each.name.lower() == name.lower():
            return each
    what = kind or "dataset, feed or channel"
    remedy = meant(name, [each.name for each in of_kind], f"{what}s")
    raise SqlInvalid(script, _find(script, at, name), f"there is no {what} {name}", remedy)


def _expect_free(script: str, at: int, known: list[Definition], kind: Kind, name: str, lenient: bool) -> None:
    if lenient or not any(
        isinstance(each, _TYPES[kind]) and each.name.lower() == name.lower() for each in known
    ):
        return
    remedy = f"DROP {kind.upper()} {name} first, or write IF NOT EXISTS"
    if kind == "channel":
        remedy = f"write CREATE OR REPLACE CHANNEL {name}"
    raise SqlInvalid(script, _find(script, at, name), f"there is a {kind} {name} already", remedy)


def _expect_priority(script: str, at: int, channel: Channel, column: str | None) -> None:
    names = [each.name for each in channel.columns]
    if column is not None and column.lower() not in {name.lower() for name in names}:
        problem = f"{channel.name}'s results have no column {column}"
        raise SqlInvalid(script, _find(script, at, column), problem, meant(column, names, "columns"))


def _find(script: str, at: int, name: str) -> int:
    """Where a name stands in the statement that begins at ``at``."""
    found = script.lower().find(name.lower(), at)
    return at if found < 0 else found
