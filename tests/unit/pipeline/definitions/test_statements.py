"""Statements carried out: what there is afterwards, here and after a restart, and what is said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from tocsin.errors import StoreUnavailable
from tocsin.model.catalogue import encode_definition, key_of
from tocsin.model.channel_names import ChannelNames

for package in ("pyspark", "deltalake", "sqlglot"):
    pytest.importorskip(package, reason="install the extra tocsin[spark]")

from tocsin.pipeline.ingest.progress import ChannelProgress  # noqa: E402
from tocsin.pipeline.status import dataset_statuses  # noqa: E402

if TYPE_CHECKING:
    from tests.unit.pipeline.shops import Workshop

PLACES = ChannelNames("net")
DATASET = "CREATE DATASET Reports (who STRING NOT NULL, size DOUBLE);"
CHANNEL = "CREATE CHANNEL About(who STRING) EVERY 10 SECONDS AS SELECT r.size FROM NEW Reports r WHERE r.who = :who;"


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Workshop]:
    from tests.unit.pipeline.shops import Workshop

    made = Workshop(tmp_path)
    await made.open()
    yield made
    made.close()


async def test_what_is_made_is_there_and_still_there_after_a_restart(work: Workshop) -> None:
    reply = await work.run(DATASET + "CREATE FEED Wire INTO Reports FROM TOPIC 'a/#';" + CHANNEL)
    assert reply.error is None
    assert [(each.statement, each.message) for each in reply.results] == [
        ("CREATE DATASET", "dataset Reports is made"),
        ("CREATE FEED", "feed Wire is made"),
        ("CREATE CHANNEL", "channel About(who STRING) is made"),
    ]
    for each in (work, await work.again()):
        assert set(each.catalogue.channels) == set(each.engine.defined) == {"about"}
        channel = each.catalogue.channels["about"]
        assert (channel.version, channel.every_s, [column.name for column in channel.columns]) == (
            1,
            10.0,
            ["size"],
        )
        assert each.catalogue.feeds["wire"].dataset == "Reports" and "about" in each.definitions.schedule
        assert each.definitions.landing.data.version("Reports") == 0


async def test_a_script_stops_at_the_first_failing_statement_and_names_it(
    work: Workshop,
) -> None:
    reply = await work.run(DATASET + "\nDROP CHANNEL Abuot;\nDROP DATASET Reports")
    assert [each.statement for each in reply.results] == ["CREATE DATASET"]
    assert (reply.error.line, reply.error.message) == (2, "there is no channel Abuot")
    assert "reports" in work.catalogue.datasets


async def test_a_script_that_cannot_be_read_does_nothing(work: Workshop) -> None:
    reply = await work.run(DATASET + "\nMAKE IT SO")
    assert reply.results == () and reply.error.line == 2
    assert work.catalogue.datasets == {}


async def test_a_dataset_in_use_is_not_dropped_and_its_users_are_named(work: Workshop) -> None:
    await work.run(DATASET + "CREATE FEED Wire INTO Reports FROM HTTP;" + CHANNEL)
    for each in (work, await work.again()):
        reply = await each.run("DROP DATASET Reports")
        assert reply.error.message == "dataset Reports is used by channel About, feed Wire"
    reply = await work.run(
        "DROP FEED Wire; DROP CHANNEL About; DROP DATASET Reports; DROP DATASET IF EXISTS Reports"
    )
    assert reply.error is None
    assert [each.message for each in reply.results][-2:] == [
        "dataset Reports is dropped",
        "dataset Reports was not there",
    ]
    assert work.engine.defined == {} and not (work.root / "data" / "reports").exists()


async def test_versions_go_on_counting_also_over_a_drop(work: Workshop) -> None:
    await work.run(DATASET + CHANNEL + "PAUSE CHANNEL About; RESUME CHANNEL About; DROP CHANNEL About;")
    again = await work.again()
    await again.run(CHANNEL)
    assert again.catalogue.channels["about"].version == 4


async def test_pausing_altering_and_asking_reach_the_schedule(work: Workshop) -> None:
    await work.run(DATASET + CHANNEL)
    work.definitions.schedule.take(work.now)
    work.definitions.schedule.done("about", work.now)
    await work.run("PAUSE CHANNEL About")
    assert work.definitions.schedule.next_us(work.now) is None
    await work.run("RUN CHANNEL About")
    assert [turn.channel for turn in work.definitions.schedule.take(work.now)] == ["about"]
    work.definitions.schedule.done("about", work.now)
    await work.run(
        "RESUME CHANNEL About; ALTER CHANNEL About EVERY 1 MINUTES; ALTER CHANNEL About PRIORITY 7"
    )
    assert work.definitions.schedule.next_us(work.now) == 1_020_000_000
    channel = work.catalogue.channels["about"]
    assert (channel.every_s, channel.priority, channel.paused, channel.version) == (60.0, 7, False, 5)


async def test_a_continuous_channel_waits_for_what_it_reads_as_new(work: Workshop) -> None:
    await work.run(DATASET + CHANNEL.replace("EVERY 10 SECONDS", "CONTINUOUS"))
    assert work.definitions.schedule.next_us(work.now) is None
    work.definitions.saw("Reports", 1)
    assert work.definitions.schedule.next_us(work.now) == work.now


async def test_what_was_there_before_a_channel_is_not_new_to_it(work: Workshop) -> None:
    await work.run(DATASET)
    work.definitions.saw("Reports", 7)
    await work.run(CHANNEL)
    known = (await work.again()).progress.channel("About")
    assert known is not None and known.read == {"reports": 7}


async def test_replacing_a_channel_keeps_how_far_it_was(work: Workshop) -> None:
    await work.run(DATASET + CHANNEL)
    work.definitions.saw("Reports", 7)
    reply = await work.run(CHANNEL.replace("CREATE", "CREATE OR REPLACE").replace("r.size", "r.who"))
    assert reply.results[0].message == "channel About(who STRING) is replaced"
    known = work.progress.channel("About")
    assert known is not None and known.read == {"reports": 0}
    assert work.engine.defined["about"].channel.version == 2
    reply = await work.run(CHANNEL.replace("CHANNEL", "CHANNEL IF NOT EXISTS"))
    assert reply.results[0].message == "channel About is there already"
    assert work.catalogue.channels["about"].version == 2


async def test_a_channel_reads_a_recreated_dataset_from_its_start(
    work: Workshop,
) -> None:
    """Its versions begin anew: what was known of the old ones would hide all that comes."""
    continuous = CHANNEL.replace("EVERY 10 SECONDS", "CONTINUOUS")
    await work.run(DATASET + continuous)
    work.definitions.saw("Reports", 50)
    work.progress.note_channel("About", ChannelProgress(3, {"reports": 50}, work.now))
    reply = await work.run("DROP CHANNEL About; DROP DATASET Reports;" + DATASET + continuous)
    assert reply.error is None
    for each in (work, await work.again()):
        known = each.progress.channel("About")
        assert known is not None and (known.execution, known.read) == (3, {"reports": 0})
        assert (
            each.definitions.versions == {"reports": 0}
            and each.definitions.schedule.next_us(work.now) is None
        )
        each.definitions.saw("Reports", 1)
        assert each.definitions.schedule.next_us(work.now) == work.now, "version 1 is new"


async def test_a_recreated_channel_begins_with_new_data(work: Workshop) -> None:
    await work.run(DATASET + CHANNEL)
    work.definitions.saw("Reports", 7)
    await work.run("DROP CHANNEL About;" + CHANNEL)
    known = work.progress.channel("About")
    assert known is not None and known.read == {"reports": 7}


async def test_an_uncompilable_channel_releases_its_dataset_and_takes_the_next(
    work: Workshop,
) -> None:
    await work.run(DATASET + CHANNEL)
    work.progress.note_channel("About", ChannelProgress(3, {"reports": 50}, work.now))
    sound = work.catalogue.channels["about"]
    await work.catalogue.put(msgspec.structs.replace(sound, query="SELECT x.y FROM NEW Reports x"))
    broken = await work.again()
    assert "about" in broken.definitions.broken and "about" not in broken.definitions.schedule
    assert (await broken.run("DROP DATASET Reports")).error is None
    await broken.catalogue.put(sound)  # as a newer version of ours may see it
    assert (await broken.run(DATASET)).error is None
    assert broken.definitions.broken == {} and "about" in broken.definitions.schedule
    known = broken.progress.channel("About")
    assert known is not None and (known.execution, known.read) == (3, {"reports": 0})


async def test_who_looks_while_a_dataset_is_dropped_sees_the_others(work: Workshop) -> None:
    await work.run(DATASET + DATASET.replace("Reports", "Others"))
    work.definitions.landing.drop("Reports")  # and the definition is not gone yet
    assert [each.name for each in dataset_statuses(work.definitions, 0)] == ["Others"]
    await work.definitions.see("Reports")


async def test_a_drop_that_cannot_be_stored_drops_nothing(
    work: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await work.run(DATASET)
    work.progress.note_channel("Other", ChannelProgress(1, {"reports": 5}))

    async def away(*arguments: object) -> int:
        raise StoreUnavailable("put", "away")

    with monkeypatch.context() as patch:
        patch.setattr(work.progress._table, "put", away)
        reply = await work.run("DROP DATASET Reports")
    assert "how far channels are cannot be stored" in reply.error.message
    with monkeypatch.context() as patch:
        patch.setattr(work.catalogue._table, "delete", away)
        reply = await work.run("DROP DATASET Reports")
    assert "not available" in reply.error.message
    assert work.definitions.landing.data.version("Reports") == 0, "it is there still"
    assert (await work.run("DROP DATASET Reports")).error is None


async def test_questions(work: Workshop) -> None:
    await work.run(DATASET + "CREATE FEED Wire INTO Reports FROM TOPIC 'a/#';" + CHANNEL)
    reply = await work.run("SHOW DATASETS; SHOW FEEDS; SHOW CHANNELS; SHOW SUBSCRIPTIONS OF About")
    datasets, feeds, channels, subscriptions = reply.results
    assert datasets.rows == (("Reports", 2, "", 0),) and feeds.rows == (("Wire", "Reports", "topic a/#"),)
    assert channels.rows[0][:2] == ("About(who STRING)", "every 10 s")
    assert [each.name for each in subscriptions.columns] == [
        "who",
        "k",
        "brokers",
    ] and subscriptions.rows == ()
    reply = await work.run("DESCRIBE Reports; DESCRIBE About; DESCRIBE FEED Wire; EXPLAIN CHANNEL About")
    dataset, channel, feed, plan = reply.results
    assert dataset.rows == (("who", "STRING", "NOT NULL", ""), ("size", "DOUBLE", "NULL", ""))
    assert ("signature", "About(who STRING)") in channel.rows and ("dataset", "Reports") in feed.rows
    assert plan.rows[0] == ("About(who STRING), every 10 s",) and plan.rows[-1] == ("plan of About",)


async def test_what_spark_refuses_of_a_question_is_said_where_it_stands(
    work: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(Exception):
        def getCondition(self) -> str:
            return "X"

    def refuse(*arguments: object) -> object:
        raise Refused('[X.Y] Cannot resolve "size" due to its type. SQLSTATE: 42K09; line 1')

    monkeypatch.setattr(work.engine, "select", refuse)
    await work.desk.run(DATASET, limit=10)
    reply = await work.desk.run("SHOW FEEDS;\nSELECT size AS n FROM Reports", limit=10)
    assert reply.error is not None and (reply.error.line, reply.error.column) == (2, 8)
    assert reply.error.message == 'Spark does not accept this: Cannot resolve "size" due to its type'
    assert reply.error.remedy


async def test_rows_beyond_the_limit_are_said_to_be_more(work: Workshop) -> None:
    await work.run(DATASET)
    (answer,) = (await work.run("SELECT who FROM Reports", limit=3)).results
    assert len(answer.rows) == 3 and answer.more


async def test_a_channel_that_no_longer_compiles_is_shown_and_others_run(work: Workshop) -> None:
    await work.run(DATASET + CHANNEL)
    old = msgspec.structs.replace(
        work.catalogue.channels["about"], name="Old", query="SELECT nothing FROM Nowhere"
    )
    table = await work.store.table(PLACES.catalogue)
    await table.put(key_of(old), encode_definition(old))
    await table.put("channel.rubbish", b"{")
    again = await work.again()
    assert set(again.engine.defined) == {"about"} and "old" in again.definitions.broken
    (answer,) = (await again.run("SHOW CHANNELS")).results
    assert any("Nowhere" in str(row[-1]) for row in answer.rows)
