"""Channels that read the results of channels: how they are made, kept, changed and dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tocsin.errors import SqlInvalid

for package in ("pyspark", "deltalake", "sqlglot"):
    pytest.importorskip(package, reason="install the extra tocsin[spark]")

from tests.unit.pipeline.shops import PLACES  # noqa: E402
from tocsin.model.catalogue import Column  # noqa: E402
from tocsin.pipeline.definitions.rights import SqlRules  # noqa: E402
from tocsin.pipeline.definitions.statements import StatementRunner  # noqa: E402
from tocsin.pipeline.execution.compiled import Compiled  # noqa: E402
from tocsin.pipeline.ingest.progress import ChannelProgress  # noqa: E402
from tocsin.pipeline.language.text.script import read_script  # noqa: E402
from tocsin.pipeline.language.tree.resolution import results_key  # noqa: E402

if TYPE_CHECKING:
    from tests.unit.pipeline.shops import Workshop

SCRIPT = """
CREATE DATASET Reports (who STRING NOT NULL, size DOUBLE);
CREATE CHANNEL About(who STRING) EVERY 10 SECONDS AS SELECT r.size FROM NEW Reports r WHERE r.who = :who;
CREATE CHANNEL Loud(least DOUBLE) CONTINUOUS AS
    SELECT r.size, r._parameters.who AS who FROM NEW RESULTS OF About r WHERE r.size > :least;
"""
ABOUT = results_key("About")


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Workshop]:
    from tests.unit.pipeline.shops import Workshop

    made = Workshop(tmp_path)

    def check(compiled: Compiled, text: str, at: int) -> tuple[Column, ...]:
        """In place of Spark's: the type of ``size`` is that of the query's CAST, else a number."""
        kind = "STRING" if "CAST" in compiled.channel.query else "DOUBLE"
        return tuple(Column(name, kind if name == "size" else "STRING") for name in compiled.template.columns)

    made._check = check  # type: ignore[method-assign]
    await made.open()
    yield made
    made.close()


async def refused(work: Workshop, text: str) -> Any:
    reply = await work.run(text)
    assert reply.error is not None, reply
    return reply.error


def due(work: Workshop) -> list[str]:
    return [turn.channel for turn in work.definitions.schedule.take(work.now)]


async def due_after_about(work: Workshop) -> list[str]:
    assert due(work) == ["about"], "the other lets it go first"
    work.definitions.schedule.done("about", work.now)
    return due(work)


async def test_a_channel_over_a_channel_is_there_after_a_restart(work: Workshop) -> None:
    assert (await work.run(SCRIPT)).error is None
    for each in (work, await work.again()):
        assert set(each.engine.defined) == {"about", "loud"} and each.definitions.broken == {}
        assert each.catalogue.readers == {"about": {"reports"}, "loud": {ABOUT}}


async def test_results_from_before_a_channel_was_made_are_not_new_to_it(work: Workshop) -> None:
    work.progress.note_tick(7)
    await work.run(SCRIPT)
    known = (await work.again()).progress.channel("Loud")
    assert known is not None and known.read == {ABOUT: 7}
    assert due(work) == ["about"], "nothing is new to the other"


async def test_a_continuous_channel_runs_when_what_it_reads_has_results(work: Workshop) -> None:
    await work.run(SCRIPT)
    assert due(work) == ["about"]
    work.definitions.schedule.done("about", work.now)
    work.definitions.schedule.advance(ABOUT, 1, work.now)
    assert due(work) == ["loud"]


async def test_after_a_restart_a_reader_looks_at_what_it_may_have_missed(work: Workshop) -> None:
    await work.run(SCRIPT)
    work.progress.note_tick(5)
    work.progress.note_channel("Loud", ChannelProgress(3, {ABOUT: 4}, work.now))
    assert await due_after_about(await work.again()) == ["loud"]
    work.progress.note_channel("Loud", ChannelProgress(4, {ABOUT: 5}, work.now))
    assert await due_after_about(await work.again()) == []


async def test_a_channel_that_others_read_is_not_dropped_and_they_are_named(work: Workshop) -> None:
    await work.run(SCRIPT)
    for each in (work, await work.again()):
        error = await refused(each, "DROP CHANNEL About")
        assert (error.message, error.remedy) == ("channel About is used by channel Loud", "drop those first")
        assert "about" in each.definitions.schedule
    assert (await work.run("DROP CHANNEL Loud; DROP CHANNEL About; DROP DATASET Reports")).error is None


async def test_a_circle_is_refused_and_changes_nothing(work: Workshop) -> None:
    await work.run(SCRIPT)
    error = await refused(
        work,
        "CREATE OR REPLACE CHANNEL About(who STRING) CONTINUOUS AS\n"
        "SELECT r.size FROM RESULTS OF Loud r WHERE r.who = :who",
    )
    assert error.message == "a channel cannot read its own results: About reads Loud, Loud reads About"
    assert (error.line, error.column) == (2, 31)
    assert work.catalogue.channels["about"].version == 1


REPLACED = """CREATE OR REPLACE CHANNEL About(who STRING) EVERY 5 SECONDS AS
    SELECT {} FROM NEW Reports r WHERE r.who = :who"""


async def test_a_replacement_that_its_readers_can_read_reaches_them(work: Workshop) -> None:
    await work.run(SCRIPT)
    before = work.engine.defined["loud"].template.id
    reply = await work.run(REPLACED.format("r.who, r.size"))
    assert reply.error is None and "replaced" in reply.results[0].message
    assert work.engine.defined["loud"].template.id != before
    assert "`who` STRING, `size` DOUBLE" in work.engine.defined["loud"].template.results[0].sql
    assert work.catalogue.channels["loud"].version == 1


@pytest.mark.parametrize(
    ("columns", "reason"),
    [("r.who", "r has no column size"), ("CAST(r.size AS STRING) AS size", "text is compared with a number")],
)
async def test_a_replacement_that_its_readers_cannot_read_is_refused(
    work: Workshop, columns: str, reason: str
) -> None:
    await work.run(SCRIPT)
    error = await refused(work, REPLACED.format(columns))
    assert error.message.startswith(
        "channel Loud reads the results of About, and could not read the new ones: "
    )
    assert reason in error.message and error.remedy == "drop Loud first, or keep the columns that it reads"
    assert work.catalogue.channels["about"].version == 1


async def test_a_replacement_that_would_change_its_readers_own_results_is_refused(work: Workshop) -> None:
    await work.run(SCRIPT.replace("WHERE r.size > :least", "WHERE r._execution > :least"))
    real = work.definitions.check

    def check(compiled: Compiled, text: str, at: int) -> tuple[Column, ...]:
        found = real(compiled, text, at)
        text_of_size = "`size` STRING" in "".join(each.sql for each in compiled.template.results)
        return (
            tuple(msgspec.structs.replace(each, type="STRING") for each in found) if text_of_size else found
        )

    work.definitions.check = check
    error = await refused(work, REPLACED.format("CAST(r.size AS STRING) AS size"))
    assert "its own results would have columns of other types" in error.message


async def test_who_pauses_or_alters_a_channel_is_told_who_reads_it(work: Workshop) -> None:
    await work.run(SCRIPT)
    reply = await work.run(
        "PAUSE CHANNEL About; RESUME CHANNEL About; ALTER CHANNEL About PRIORITY 3; PAUSE CHANNEL Loud"
    )
    assert [each.message for each in reply.results] == [
        "channel About is paused; its results are read by Loud, for which there is nothing new meanwhile",
        "channel About goes on; its results are read by Loud",
        "channel About is changed; its results are read by Loud",
        "channel Loud is paused",
    ]
    (described,) = (await work.run("DESCRIBE CHANNEL About")).results
    assert described.rows[-1] == ("read by", "Loud")


async def test_a_reader_of_a_missing_channel_runs_once_it_is_there(work: Workshop) -> None:
    await work.run(SCRIPT)
    about = work.catalogue.channels["about"]
    await (await work.store.table(PLACES.catalogue)).delete("channel.about")
    again = await work.again()
    again.definitions.check = work.definitions.check
    assert "there is no channel about" in again.definitions.broken["loud"]
    assert (await again.run("DROP DATASET IF EXISTS Nothing; " + about.text)).error is None
    assert again.definitions.broken == {} and "loud" in again.engine.defined


async def test_a_channel_without_parameters_is_held_for_those_who_read_it(work: Workshop) -> None:
    every = "CREATE CHANNEL Every() CONTINUOUS AS SELECT r.size FROM NEW Reports r;"
    over = "CREATE CHANNEL Over() CONTINUOUS AS SELECT r.size FROM NEW RESULTS OF Every r;"
    assert (await work.run(SCRIPT + every + over)).error is None

    def held(work: Workshop) -> list[str]:
        return sorted(work.definitions.subscriptions.channels())

    assert held(work) == ["every"], "of About nobody knows with which values"
    assert held(await work.again()) == ["every"]
    await work.run("DROP CHANNEL Over")
    assert held(work) == held(await work.again()) == []


# ── rights ──────────────────────────────────────────────────────────────────────────────────────────────────────

RULES = """
[[sql]]
allow = "all"
names = ["Mine*"]
users = ["ann"]

[[sql]]
allow = "query"
names = ["About"]
users = ["ann"]
"""
MINE = "CREATE CHANNEL Mine(least DOUBLE) CONTINUOUS AS SELECT r.size FROM NEW RESULTS OF {} r WHERE r.size > :least"


async def test_who_defines_a_channel_needs_the_right_to_query_what_it_reads(
    work: Workshop, tmp_path: Path
) -> None:
    await work.run(SCRIPT)
    (tmp_path / "rules.toml").write_text(RULES)
    work.desk = StatementRunner(work.definitions, work.threads, rules=SqlRules(str(tmp_path / "rules.toml")))
    assert (await work.desk.run(MINE.format("About"), limit=1, user="ann")).error is None
    hidden = await work.desk.run(MINE.format("Loud").replace("Mine(", "Mine2("), limit=1, user="ann")
    assert hidden.error is not None and hidden.error.message == "there is no channel loud"
    (tmp_path / "rules.toml").write_text(RULES.replace('"query"', '"drop"'))
    work.desk = StatementRunner(work.definitions, work.threads, rules=SqlRules(str(tmp_path / "rules.toml")))
    seen = await work.desk.run(MINE.format("About").replace("Mine(", "Mine3("), limit=1, user="ann")
    assert seen.error is not None and seen.error.message == "ann may not query About"
    dropped = await work.desk.run("DROP CHANNEL About", limit=1, user="ann")
    assert dropped.error is not None
    assert dropped.error.message == "channel About is used by channel Mine, what you may not see"


# ── what is kept ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_results_wait_for_readers_that_run(work: Workshop) -> None:
    await work.run(SCRIPT)
    assert work.definitions.unread_tick() == 1
    work.progress.note_channel("Loud", ChannelProgress(3, {ABOUT: 41}, work.now))
    assert work.definitions.unread_tick() == 42
    await work.run("PAUSE CHANNEL Loud")
    assert work.definitions.unread_tick() is None
    await work.run("RESUME CHANNEL Loud; RUN CHANNEL Loud")
    assert "loud" in due(work) and work.definitions.unread_tick() == 42
    work.definitions.schedule.failed("loud", work.now, "it broke")
    assert work.definitions.unread_tick() is None, "a failing reader may fail for ever"
    work.definitions.schedule.done("loud", work.now)
    assert work.definitions.unread_tick() == 42
    await work.run("DROP CHANNEL Loud")
    assert work.definitions.unread_tick() is None


def test_no_dataset_has_the_key_of_results() -> None:
    with pytest.raises(SqlInvalid):
        read_script(f"DROP DATASET `{ABOUT}`")
