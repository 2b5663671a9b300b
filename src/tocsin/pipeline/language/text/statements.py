"""The statements of the channel language, read. Their names are not looked up yet (``checks.statements`` does that).

``text`` of a statement is what was written, without comments around it; ``at`` is where it begins in its script, so
that an error can point into the script.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tocsin.model.catalogue import Channel, Dataset, Feed

Kind = Literal["dataset", "feed", "channel"]


class CreateDataset(msgspec.Struct, frozen=True, tag=True):
    dataset: Dataset
    if_not_exists: bool
    at: int


class CreateFeed(msgspec.Struct, frozen=True, tag=True):
    feed: Feed
    if_not_exists: bool
    at: int
    dataset_at: int  # where the dataset is named


class CreateChannel(msgspec.Struct, frozen=True, tag=True):
    """``channel.columns`` is empty: what a result has is known when Spark has seen the query."""

    channel: Channel
    or_replace: bool
    if_not_exists: bool
    at: int
    query_at: int  # where the query begins


class Drop(msgspec.Struct, frozen=True, tag=True):
    kind: Kind
    name: str
    if_exists: bool
    at: int


class AlterChannel(msgspec.Struct, frozen=True, tag=True):
    """``every_s`` and ``continuous``, or ``priority``, or ``priority_column``: the one that was given."""

    name: str
    at: int
    every_s: float | None = None
    continuous: bool = False
    priority: int | None = None
    priority_column: str | None = None


class PauseChannel(msgspec.Struct, frozen=True, tag=True):
    name: str
    at: int


class ResumeChannel(msgspec.Struct, frozen=True, tag=True):
    name: str
    at: int


class RunChannel(msgspec.Struct, frozen=True, tag=True):
    name: str
    at: int


class Show(msgspec.Struct, frozen=True, tag=True):
    what: Literal["datasets", "feeds", "channels", "subscriptions"]
    at: int
    of: str | None = None  # the channel whose subscriptions are asked for


class Describe(msgspec.Struct, frozen=True, tag=True):
    name: str
    at: int
    kind: Kind | None = None  # if it was given


class ExplainChannel(msgspec.Struct, frozen=True, tag=True):
    name: str
    at: int


class Select(msgspec.Struct, frozen=True, tag=True):
    """A query over datasets and results, run once. ``plan.compile_select`` makes it Spark's."""

    text: str
    at: int


Statement = (
    CreateDataset
    | CreateFeed
    | CreateChannel
    | Drop
    | AlterChannel
    | PauseChannel
    | ResumeChannel
    | RunChannel
    | Show
    | Describe
    | ExplainChannel
    | Select
)
