from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipeline.storage.stored_tables import NOW_US, REPORTS, rows_of, stored
from tocsin.errors import DatasetMissing
from tocsin.model.catalogue import Column, Dataset
from tocsin.pipeline.storage import landing as module
from tocsin.pipeline.storage.landing import REPLAY, Landing
from tocsin.pipeline.storage.rows.fitting import Rejected
from tocsin.pipeline.storage.tables import planning

RECORDS = [b'{"id": 1}', b'{"id": "two"}', b"\xff{", b'{"id": 4}']


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    found = Landing(tmp_path)
    found.create(REPORTS)
    return found


def land(landing: Landing, records: list[bytes], position: int) -> None:
    landing.land(
        "Reports",
        landing.fitter("Reports").fit(records),
        feed="web",
        now_us=NOW_US,
        positions=range(position, position + len(records)),
        transactions={"feed.web": position + len(records) - 1},
    )


def ids(landing: Landing) -> list[int]:
    return sorted(row["id"] for row in stored(landing.data.snapshot("Reports")))


def test_each_record_is_in_the_dataset_or_in_quarantine_with_its_reason(landing: Landing) -> None:
    land(landing, RECORDS, 10)
    assert ids(landing) == [1, 4]
    quarantined = stored(landing.quarantine.snapshot("Reports"))
    assert [(row["feed"], row["position"], row["record"]) for row in quarantined] == [
        ("web", 11, '{"id": "two"}'),
        ("web", 12, "\\xff{"),
    ]
    assert quarantined[0]["reason"] == "id: expected a whole number (BIGINT), got the text 'two'"
    assert landing.quarantined("Reports") == 2


def test_the_newest_of_a_quarantine_are_shown_first(landing: Landing) -> None:
    assert landing.rejected("Reports", 5).num_rows == 0
    land(landing, RECORDS, 10)
    land(landing, [b"x", b"y"], 14)
    records = [row["record"] for row in landing.rejected("Reports", 10).to_pylist()]
    assert records == ["y", "x", "\\xff{", '{"id": "two"}']
    assert [row["record"] for row in landing.rejected("Reports", 1).to_pylist()] == ["y"]


def test_a_batch_that_is_repeated_lands_once(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(landing.data, "append", fail)
        with pytest.raises(OSError):
            land(landing, RECORDS, 10)
    for _ in range(2):
        land(landing, RECORDS, 10)
    assert ids(landing) == [1, 4]
    assert landing.quarantined("Reports") == 2


def test_a_batch_of_nothing_but_bad_records_moves_the_position_on(landing: Landing) -> None:
    land(landing, [b"x"], 5)
    assert landing.data.transaction("Reports", "feed.web") == 5


def test_what_is_in_quarantine_moves_once_it_fits(landing: Landing) -> None:
    land(landing, RECORDS, 10)
    land(landing, [b'{"id": "three", "text": "t"}'], 14)
    assert landing.replay("Reports", NOW_US).rows == 0
    landing.drop("Reports")
    landing.create(Dataset("Reports", (Column("id", "STRING"), Column("text", "STRING"))))
    landed = landing.replay("Reports", NOW_US)
    assert (landed.rows, landed.quarantined) == (2, 1)
    assert landing.quarantined("Reports") == 1
    assert [row["id"] for row in stored(landing.data.snapshot("Reports"))] == ["two", "three"]
    assert landing.replay("Reports", NOW_US).rows == 0
    assert landing.data.version("Reports") == 1


def test_a_replay_that_was_cut_short_is_finished_and_moves_nothing_twice(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(landing, RECORDS, 10)
    landing.drop("Reports")
    landing.create(Dataset("Reports", (Column("id", "STRING"),)))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Landing, "_take_out", killed)
        with pytest.raises(KeyboardInterrupt):
            landing.replay("Reports", NOW_US)
    late = landing.quarantine
    late.append("Reports", _quarantined(b'{"id": "late"}'), now_us=NOW_US)
    landing.data.append("Reports", rows_of(Dataset("D", (Column("id", "STRING"),)), [("x",)]), now_us=NOW_US)
    landing.replay("Reports", NOW_US)
    found = sorted(row["id"] for row in stored(landing.data.snapshot("Reports")))
    assert found == ["late", "two", "x"]
    assert landing.quarantined("Reports") == 1
    assert (
        landing.data.transaction("Reports", REPLAY) == landing.quarantine.transaction("Reports", REPLAY) == 2
    )


def test_a_large_quarantine_is_replayed_in_chunks(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLAY_ROWS", 2)
    for number in range(5):
        land(landing, [b'{"id": "%d"}' % number, b"never"], 10 + 2 * number)
    landing.drop("Reports")
    landing.create(Dataset("Reports", (Column("id", "STRING"),)))
    landed = landing.replay("Reports", NOW_US)
    assert (landed.rows, landed.quarantined, landing.quarantined("Reports")) == (5, 5, 5)


def test_a_dataset_under_pressure_is_folded_as_records_land(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "FOLD_ROWS", 2)
    landing = Landing(tmp_path)
    landing.create(Dataset("Users", (Column("id", "BIGINT"),), key=("id",)))
    fitter = landing.fitter("Users")
    for number in range(6):
        landing.land("Users", fitter.fit([b'{"id": %d}' % number]), feed="f", now_us=NOW_US)
    assert landing.data.snapshot("Users").base


def test_a_dataset_that_is_not_there_has_no_fitter(landing: Landing) -> None:
    with pytest.raises(DatasetMissing):
        landing.fitter("Nothing")


def _quarantined(record: bytes):  # type: ignore[no-untyped-def]
    return module._rejected([Rejected(0, "late", record)], "web", None, NOW_US)
