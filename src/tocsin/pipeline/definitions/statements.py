"""Carries out SQL statements: creates, changes and drops definitions, and answers queries.

A script is read whole before anything of it is done; its statements are then checked and done one after the other, up
to the first that cannot be. Statements that change something wait for each other. Work on the engine is done in its
thread, between ticks.

A script is somebody's: the rules about SQL say what that user may do and see, and the audit log is told of each
statement, with how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Executor
from functools import partial

import msgspec
import pyarrow as pa

from tocsin.core.access.sql_rules import OPERATOR, Action, SqlAccess
from tocsin.errors import OperatorError, SqlInvalid, TocsinError
from tocsin.model.answer import Answer, Reply
from tocsin.model.catalogue import Channel, Dataset, Definition, Feed, FolderSource
from tocsin.pipeline.definitions.answers import headings, problem_of, table_answer
from tocsin.pipeline.definitions.catalogue import InUse, StillRead
from tocsin.pipeline.definitions.definitions import Definitions
from tocsin.pipeline.definitions.rights import NotAllowed, SqlRules, action_of, check_rights, seen
from tocsin.pipeline.execution.compiled import Compiled, Selection, compile_channel
from tocsin.pipeline.execution.failures import ExecutionFailed, first_words
from tocsin.pipeline.language.checks.spark import pointing
from tocsin.pipeline.language.checks.statements import check, check_circle
from tocsin.pipeline.language.text import statements as said
from tocsin.pipeline.language.text.script import read_script
from tocsin.pipeline.language.tree.resolution import results_key
from tocsin.runtime.security.audit import Audit
from tocsin.runtime.security.folders import REMEDY, Folders


class StatementRunner:
    """Carries out scripts."""

    def __init__(
        self,
        definitions: Definitions,
        queries: Executor,
        newest: Callable[[], Awaitable[int]] | None = None,
        *,
        rules: SqlRules | None = None,
        audit: Audit | None = None,
        folders: Folders | None = None,
    ) -> None:
        self._definitions = definitions
        self._rules = rules or SqlRules()
        self._audit = audit
        self._folders = folders  # where feeds may read files; None: anywhere
        self._queries = queries  # threads for questions, beside the engine's
        self._newest = newest  # asks for the end of the message log; None: nobody knows
        self._one = asyncio.Lock()

    async def run(self, text: str, *, limit: int, user: str = OPERATOR) -> Reply:
        """Do what a user's script says; never raises for what is in it."""
        try:
            found = read_script(text)
        except TocsinError as error:
            await self._note(user, "query", "", text, error)
            return Reply(error=problem_of(error))
        answers: list[Answer] = []
        for number, statement in enumerate(found):
            end = found[number + 1].at if number + 1 < len(found) else len(text)
            action, name = action_of(statement)
            try:
                answer = await self._run(text, statement, limit, user)
            except TocsinError as error:
                await self._note(user, action, name, text[statement.at : end], error)
                return Reply(tuple(answers), problem_of(error))
            except Exception as error:
                await self._note(user, action, name, text[statement.at : end], error)
                raise
            await self._note(user, action, name, text[statement.at : end], None)
            answers.append(answer)
        return Reply(tuple(answers))

    async def _note(self, user: str, action: str, name: str, what: str, error: Exception | None) -> None:
        if self._audit is not None:
            outcome = "done" if error is None else "refused" if isinstance(error, NotAllowed) else "failed"
            if isinstance(error, NotAllowed) and isinstance(error.__cause__, NotAllowed):
                error = error.__cause__  # what the user is not told
            problem = "" if error is None else str(getattr(error, "problem", "") or first_words(error))
            await asyncio.to_thread(self._audit.write, user, action, name, what.strip(), outcome, problem)

    def _visible(self, access: SqlAccess, user: str) -> list[Definition]:
        """The definitions that a user knows of: what it may not touch is not there, in error messages either."""
        actions: tuple[Action, ...] = ("query", "define", "drop")
        return [
            each
            for each in self._definitions.catalogue.all()
            if any(access.allows(user, action, each.name) for action in actions)
        ]

    def _check(
        self, access: SqlAccess, user: str, text: str, statement: said.Statement
    ) -> Compiled | Selection | None:
        """A statement, checked against what its user knows of.

        ``NotAllowed`` in the words of any other error if it fails for want of a right: the user is not told that there
        is something, the audit log is.
        """
        visible, everything = self._visible(access, user), self._definitions.catalogue.all()
        try:
            checked = check(statement, visible, text)
            if isinstance(statement, said.CreateChannel):
                check_circle(text, statement, self._definitions.catalogue.channels.values(), visible)
            return checked
        except SqlInvalid as error:
            if len(visible) == len(everything):
                raise
            try:
                check_rights(access, user, text, statement, check(statement, everything, text))
            except NotAllowed as denied:
                raise NotAllowed(text, error.at, error.problem, error.remedy) from denied
            except SqlInvalid:
                pass
            raise

    async def _run(self, text: str, statement: said.Statement, limit: int, user: str) -> Answer:
        access = self._rules.access
        if isinstance(statement, said.Select):  # these may take long, and change nothing
            selection = self._check(access, user, text, statement)
            assert isinstance(selection, Selection)
            check_rights(access, user, text, statement, selection)
            return await self._select(text, statement, selection, limit)
        async with self._one:
            compiled = self._check(access, user, text, statement)
            assert not isinstance(compiled, Selection)
            check_rights(access, user, text, statement, compiled)
            if isinstance(statement, said.CreateFeed) and self._folders is not None:
                source = statement.feed.source
                if isinstance(source, FolderSource) and (problem := self._folders.problem(source.path)):
                    raise SqlInvalid(text, statement.at, problem, REMEDY)
            try:
                done = await self._do(text, statement, compiled, self._visible(access, user))
                return (
                    seen(access, user, done)
                    if isinstance(statement, said.Show) and not statement.of
                    else done
                )
            except InUse as error:
                problem, remedy = error.words(self._visible(access, user))
                raise SqlInvalid(text, statement.at, problem, remedy) from error
            except OperatorError as error:
                problem = str(getattr(error, "problem", error))
                raise SqlInvalid(text, statement.at, problem, str(getattr(error, "remedy", ""))) from error

    async def _do(
        self, text: str, statement: said.Statement, compiled: Compiled | None, visible: Collection[Definition]
    ) -> Answer:
        definitions = self._definitions
        match statement:
            case said.CreateDataset(dataset=dataset):
                return await self._create(
                    statement, "dataset", dataset, lambda: definitions.create_dataset(dataset)
                )
            case said.CreateFeed(feed=feed):
                return await self._create(statement, "feed", feed, lambda: self._create_feed(feed))
            case said.CreateChannel(channel=channel, query_at=at):
                assert compiled is not None
                return await self._create(
                    statement, "channel", channel, lambda: self._create_channel(compiled, text, at)
                )
            case said.Drop():
                return await self._drop(statement)
            case said.Show(of=name):
                if name is not None:
                    return await definitions.subscriptions_of(self._channel(name))
                return definitions.show(statement.what)
            case said.Describe():
                return self._describe(text, statement, visible)
            case said.ExplainChannel(name=name):
                lines = (await definitions.explain(self._channel(name))).splitlines()
                return Answer("EXPLAIN CHANNEL", headings(["plan"]), tuple((line,) for line in lines))
            case _:
                return await self._change(statement, visible)

    # ── definitions ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _create(
        self,
        statement: said.CreateDataset | said.CreateFeed | said.CreateChannel,
        kind: said.Kind,
        definition: Definition,
        make: Callable[[], Awaitable[None]],
    ) -> Answer:
        name = f"CREATE {kind.upper()}"
        there = definition.name.lower() in self._definitions.catalogue.of_kind(kind)
        if there and statement.if_not_exists:
            return Answer(name, message=f"{kind} {definition.name} is there already")
        await make()
        shown = definition.signature if isinstance(definition, Channel) else definition.name
        return Answer(name, message=f"{kind} {shown} is {'replaced' if there else 'made'}")

    async def _create_feed(self, feed: Feed) -> None:
        """A feed of messages takes those that come from now on."""
        since = None if self._newest is None else await self._newest()
        await self._definitions.create_feed(msgspec.structs.replace(feed, since=since))

    async def _create_channel(self, compiled: Compiled, text: str, at: int) -> None:
        """Have Spark look at it first; its results have the columns that Spark says."""
        loop = asyncio.get_running_loop()
        columns = await loop.run_in_executor(
            self._queries, lambda: self._definitions.check(compiled, text, at)
        )
        channel = msgspec.structs.replace(compiled.channel, columns=columns)
        for reader in self._definitions.catalogue.readers_of(results_key(channel.name)):
            await loop.run_in_executor(self._queries, partial(self._check_reader, channel, reader))
        await self._definitions.create_channel(channel)

    def _check_reader(self, channel: Channel, reader: Channel) -> None:
        """``StillRead`` if a channel could not read the results of this one, or would have other results itself."""
        others = [
            each
            for each in self._definitions.catalogue.channels.values()
            if each.name.lower() != channel.name.lower()
        ]
        try:
            compiled = compile_channel(
                reader, self._definitions.catalogue.named(), channels=[*others, channel]
            )
            columns = self._definitions.check(compiled, reader.query, 0)
        except SqlInvalid as error:
            raise StillRead(channel.name, reader, error.problem) from error
        if [(each.name, each.type) for each in columns] != [
            (each.name, each.type) for each in reader.columns
        ]:
            raise StillRead(channel.name, reader, "its own results would have columns of other types")

    async def _drop(self, statement: said.Drop) -> Answer:
        kind = statement.kind
        found = self._definitions.catalogue.of_kind(kind).get(statement.name.lower())
        if found is not None:
            await self._definitions.drop(found)
        was = "is dropped" if found is not None else "was not there"
        return Answer(f"DROP {kind.upper()}", message=f"{kind} {statement.name} {was}")

    def _channel(self, name: str) -> Channel:
        return self._definitions.catalogue.channels[name.lower()]

    def _readers(self, channel: Definition, visible: Collection[Definition]) -> str:
        """The channels that read a channel's results, as far as the user knows of them."""
        readers = self._definitions.catalogue.readers_of(results_key(channel.name))
        names = [each.name for each in readers if each in visible]
        return ", ".join([*names, *(["others"] if len(names) < len(readers) else [])])

    async def _change(self, statement: said.Statement, visible: Collection[Definition]) -> Answer:
        change = msgspec.structs.replace
        match statement:
            case said.RunChannel(name=name):
                self._definitions.ask(name)
                return Answer("RUN CHANNEL", message=f"channel {name} runs in the next tick")
            case said.PauseChannel(name=name):
                word, words, channel = "PAUSE", "is paused", change(self._channel(name), paused=True)
            case said.ResumeChannel(name=name):
                word, words, channel = "RESUME", "goes on", change(self._channel(name), paused=False)
            case said.AlterChannel(name=name):
                word, words, channel = "ALTER", "is changed", _altered(self._channel(name), statement)
            case _:
                raise AssertionError(f"there is no way to do {statement}")
        readers = self._readers(channel, visible)
        await self._definitions.change_channel(channel)
        if readers:
            words += f"; its results are read by {readers}"
            words += ", for which there is nothing new meanwhile" if channel.paused else ""
        return Answer(f"{word} CHANNEL", message=f"channel {channel.name} {words}")

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────────────

    def _describe(self, text: str, statement: said.Describe, visible: Collection[Definition]) -> Answer:
        kinds: tuple[said.Kind, ...] = ("dataset", "feed", "channel")
        for kind in (statement.kind,) if statement.kind else kinds:
            if (
                definition := self._definitions.catalogue.of_kind(kind).get(statement.name.lower())
            ) is not None:
                readers = self._readers(definition, visible) if isinstance(definition, Channel) else ""
                return describe(definition, readers)
        raise SqlInvalid(text, statement.at, f"there is no {statement.name}", "look at SHOW CHANNELS")

    async def _select(self, text: str, statement: said.Select, selection: Selection, limit: int) -> Answer:
        def ask() -> pa.Table:
            with pointing(statement.text, text, statement.at):
                return self._definitions.select(selection, limit + 1)

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._queries, ask)
        except TocsinError:
            raise
        except Exception as error:  # Spark's: what happened to the query
            raise ExecutionFailed(first_words(error)) from error
        return table_answer("SELECT", found, limit)


def _altered(channel: Channel, statement: said.AlterChannel) -> Channel:
    change = msgspec.structs.replace
    if statement.continuous:
        return change(channel, every_s=None)
    if statement.every_s is not None:
        return change(channel, every_s=statement.every_s)
    if statement.priority is not None:
        return change(channel, priority=statement.priority, priority_column=None)
    return change(channel, priority_column=statement.priority_column)


def describe(definition: Definition, readers: str = "") -> Answer:
    """A definition as rows; ``readers``: of a channel's results."""
    match definition:
        case Dataset():
            rows = tuple(
                (each.name, each.type, "NULL" if each.nullable else "NOT NULL", _role(definition, each.name))
                for each in definition.columns
            )
            return Answer(
                "DESCRIBE", headings(["column", "type", "null", "role"]), rows, message=definition.text
            )
        case Feed():
            source = msgspec.to_builtins(definition.source)
            facts = [("name", definition.name), ("dataset", definition.dataset), *source.items()]
        case Channel():
            every = "continuous" if definition.every_s is None else f"every {definition.every_s:g} s"
            priority = (
                definition.priority_column and f"by {definition.priority_column}"
            ) or definition.priority
            facts = [
                ("signature", definition.signature),
                ("runs", "paused" if definition.paused else every),
                ("priority", priority),
                ("version", definition.version),
                *((f"column {each.name}", each.type) for each in definition.columns),
                ("query", definition.query),
                *([("read by", readers)] if readers else []),
            ]
    told = tuple((str(key), str(value)) for key, value in facts)
    return Answer("DESCRIBE", headings(["what", "value"]), told, message=definition.text)


def _role(dataset: Dataset, name: str) -> str:
    if name in dataset.key:
        return "key"
    return "event time" if name == dataset.event_time else ""
