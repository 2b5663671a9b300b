"""What is answered over the bus, whatever is asked, and how large it may be."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

for package in ("pyspark", "deltalake", "sqlglot"):
    pytest.importorskip(package, reason="install the extra tocsin[spark]")

import pyarrow as pa  # noqa: E402

from tests.unit.pipeline.shops import Workshop  # noqa: E402
from tocsin.broker.channels.result_reader import ResultSource  # noqa: E402
from tocsin.model.answer import Answer, Reply  # noqa: E402
from tocsin.model.channel_names import ChannelNames  # noqa: E402
from tocsin.model.results import Notice, encode_notice  # noqa: E402
from tocsin.pipeline import service as module  # noqa: E402
from tocsin.pipeline.definitions.answers import REPLY_MAX_BYTES, encode_reply, plain, table_answer  # noqa: E402
from tocsin.pipeline.service import Service  # noqa: E402
from tocsin.pipeline.status import SparkStatus, Status  # noqa: E402
from tocsin.pipeline.storage.parts import IN, TaskOutput, parts_of, write_part  # noqa: E402
from tocsin.results.reader import ResultsReader  # noqa: E402

PLACES = ChannelNames("net")


class Asking:
    """A service on a bus in memory, and somebody who asks."""

    def __init__(self, work: Workshop) -> None:
        self.work = work

    async def __call__(self, verb: str, payload: Any) -> Any:
        data = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        answer = await self.work.store.bus.request(PLACES.service(verb), data, deadline_s=30)
        assert len(answer) <= REPLY_MAX_BYTES
        return msgspec.json.decode(answer)


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asking]:
    work = Workshop(tmp_path)
    await work.open()

    async def status() -> Status:
        return Status(SparkStatus(state="running"), (), (), (), 3, 0)

    with ThreadPoolExecutor(1) as threads:
        reader = ResultsReader(tmp_path / "results")
        service = Service(work.store.bus, PLACES, work.desk, reader, status, threads)
        async with service.serve():
            yield Asking(work)
    work.close()


def committed(work: Workshop, *rows: tuple[str, str, str]) -> Notice:
    """Results of (k, broker, payload)."""
    table = [("Near", 1, k, [broker], 0, payload, None) for k, broker, payload in rows]
    columns = zip(*table, strict=True)
    batch = pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, IN, strict=True)], schema=IN)
    results = work.definitions.results
    parts = parts_of([write_part(TaskOutput(str(results.root), 1, "run", 1), 0, 0, [batch])])
    return results.commit(1, parts, at_us=1).notices()[0]


async def test_scripts_status_and_runs(ask: Asking) -> None:
    reply = await ask("sql", {"text": "CREATE DATASET D (a STRING); SHOW DATASETS"})
    assert reply["error"] is None and reply["results"][1]["rows"] == [["D", 1, "", 0]]
    assert (await ask("status", b""))["tick"] == 3
    reply = await ask("run", {"channel": "Nobody"})
    assert reply["error"]["message"] == "there is no channel Nobody"
    await ask("sql", {"text": "CREATE CHANNEL C() EVERY 1 HOURS AS SELECT d.a FROM D d"})
    assert (await ask("run", {"channel": "c"}))["error"] is None
    assert ask.work.definitions.schedule.next_us(ask.work.now) == ask.work.now


@pytest.mark.parametrize("verb", ["sql", "run", "results"])
@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"{}", b'{"text": 5}', b"\xff\xfe", b'{"channel": null}']
)
async def test_rubbish_is_answered_in_words(ask: Asking, verb: str, payload: bytes) -> None:
    reply = await ask(verb, payload)
    assert reply["error"]


async def test_the_name_of_a_channel_is_never_read_as_sql(ask: Asking) -> None:
    await ask("sql", {"text": "CREATE DATASET D (a STRING)"})
    for name in ("x; DROP DATASET D", "x`; DROP DATASET D; --", "`", "", "x\n; DROP DATASET D"):
        assert (await ask("run", {"channel": name}))["error"]
    assert "d" in ask.work.catalogue.datasets


async def test_a_script_that_is_too_long_is_refused(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCRIPT_MAX_BYTES", 10)
    reply = await ask("sql", {"text": "SHOW DATASETS"})
    assert reply["error"]["message"] == "the script is too long"


async def test_a_bug_of_ours_costs_one_answer(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise KeyError("oops")

    monkeypatch.setattr(ask.work.definitions, "show", broken)
    reply = await ask("sql", {"text": "SHOW DATASETS"})
    assert "went wrong on our side: KeyError" in reply["error"]["message"]
    assert (await ask("sql", {"text": "CREATE DATASET D (a STRING)"}))["error"] is None


async def test_a_result_larger_than_a_message_of_the_bus_is_fetched(ask: Asking) -> None:
    large = json.dumps({"text": 'ü"' * 500_000})
    notice = committed(ask.work, ("k1", "x", '{"n":1}'), ("k2", "x", large), ("k3", "x", '{"n":3}'))
    source = ResultSource(None, ask.work.store.bus, PLACES.service("results"))
    rows, found = source.rows(notice, "x", (), 0), list[bytes]()
    while some := await source.some(rows, 10):
        found += [each.payload for each in some]
    assert found == [b'{"n":1}', large.encode(), b'{"n":3}']


async def test_a_broker_fetches_its_results_piece_by_piece(ask: Asking) -> None:
    notice = committed(ask.work, *((f"k{n}", "x" if n % 3 else "y", f'{{"n":{n}}}') for n in range(10)))
    asked = {"notice": encode_notice(notice).hex(), "broker": "x", "ks": ["k3"], "limit_bytes": 300}
    found: list[int] = []
    start: int | None = 0
    pieces = 0
    while start is not None:
        reply = await ask("results", {**asked, "from_ordinal": start})
        assert reply["error"] is None
        found += [row[0] for row in reply["rows"]]
        start, pieces = reply["next"], pieces + 1
    assert found == [1, 2, 3, 4, 5, 7, 8] and pieces > 2
    reply = await ask("results", {**asked, "from_ordinal": 7, "limit_bytes": 10**9})
    assert reply["rows"] == [
        [7, "Near", 1, "k7", 0, '{"n":7}'],
        [8, "Near", 1, "k8", 0, '{"n":8}'],
    ]


async def test_results_that_are_not_there_are_said_so(ask: Asking) -> None:
    notice = committed(ask.work, ("k1", "x", "{}"))
    lost = msgspec.structs.replace(
        notice,
        tick=77,
        files=tuple(msgspec.structs.replace(each, path="new/no.parquet") for each in notice.files),
    )
    reply = await ask("results", {"notice": encode_notice(lost).hex(), "broker": "x"})
    assert reply["gone"] and "77" in reply["error"]
    for notice_text in ("zz", "00", ""):
        assert (await ask("results", {"notice": notice_text, "broker": "x"}))["error"]


def test_an_answer_larger_than_a_message_is_cut_with_a_note() -> None:
    wide = Answer("SELECT", rows=tuple(("x" * 1_000,) for _ in range(2_000)))
    data = encode_reply(Reply((Answer("SHOW"), wide)))
    assert len(data) <= REPLY_MAX_BYTES
    shown = msgspec.json.decode(data)["results"][1]
    assert shown["more"] and 100 < len(shown["rows"]) < 1_000
    huge = encode_reply(Reply((Answer("SELECT", message="x" * (REPLY_MAX_BYTES + 1)),)))
    assert "too large" in msgspec.json.decode(huge)["error"]["message"]


def test_rows_are_plain_json_with_the_names_of_their_types() -> None:
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
    found = pa.table(
        {
            "t": pa.array([moment], pa.timestamp("us", "UTC")),
            "d": pa.array([moment.date()]),
            "x": pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2)),
            "s": pa.array([{"a": [1, None]}]),
            "b": pa.array([b"\x01\xff"]),
        }
    )
    answer = table_answer("SELECT", found, 5)
    assert answer.rows == (("2026-02-03T04:05:06.000007Z", "2026-02-03", "1.50", {"a": [1, None]}, "01ff"),)
    assert [each.type for each in answer.columns][:3] == ["TIMESTAMP", "DATE", "DECIMAL(5,2)"]
    assert plain(float("nan")) is None and plain({1: (2,)}) == {"1": [2]} and plain(object) is not None


@pytest.mark.parametrize(
    ("verb", "asked"),
    [
        ("sql", {"v": 2, "text": "CREATE DATASET T (a INT) APPEND ONLY"}),
        ("run", {"v": 2, "channel": "Near"}),
        ("results", {"v": 2, "notice": ""}),
        ("status", {"v": 2}),
    ],
)
async def test_a_question_of_a_newer_release_is_refused_and_changes_nothing(
    ask: Asking, verb: str, asked: Any
) -> None:
    answer = await ask(verb, asked)
    words = answer["error"]
    assert "is of format version 2, and this process reads up to version 1" in (
        words if isinstance(words, str) else words["message"]
    )
    assert not ask.work.definitions.catalogue.datasets


@pytest.mark.parametrize(
    ("verb", "asked"), [("sql", {"text": "SHOW FEEDS"}), ("status", {}), ("status", b"")]
)
async def test_a_question_needs_no_version_and_every_answer_has_one(
    ask: Asking, verb: str, asked: Any
) -> None:
    answer = await ask(verb, asked)
    assert answer["v"] == 1 and not answer.get("error")
