"""``tocsin dataset``: what is shown of datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.talking import Fake, fake_in
from tocsin.cli.asking import Found
from tocsin.cli.main import main
from tocsin.cli.verbs import dataset as module
from tocsin.client.sql import Answer, Heading, Reply
from tocsin.errors import DatasetMissing, StoreUnavailable
from tocsin.model.catalogue import Column, Dataset

PLACES: dict[str, Any] = {
    "name": "Places",
    "rows": 120_000,
    "files": 3,
    "bytes": 4_567_890,
    "version": 9,
    "key": ["id"],
    "quarantined": 2,
    "lag_records": 11,
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("COLUMNS", "200")
    found = fake_in(monkeypatch, "tocsin.cli.listing")
    found.status["datasets"] = [{**PLACES, "name": "Zoo"}, PLACES]
    return found


def test_a_list_shows_how_large_datasets_are_by_name(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dataset", "list"]) == 0
    first, second = [line for line in capsys.readouterr().out.splitlines() if "120,000" in line]
    assert "Places" in first and "Zoo" in second
    for words in ("id", "4,567,890", " 2 ", " 11 "):
        assert words in first


def test_a_description_has_the_columns(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    told = Answer("DESCRIBE", (Heading("column"), Heading("type")), (("id", "BIGINT"),))
    fake.reply = lambda text: Reply((told,))
    assert main(["dataset", "describe", "places", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["definition"] == [{"column": "id", "type": "BIGINT"}] and said["status"] == PLACES
    assert main(["dataset", "describe", "places"]) == 0
    shown = capsys.readouterr().out
    assert "BIGINT" in shown and "120,000" in shown and '["id"]' in shown


SHELTERS = Dataset("Shelters", (Column("id", "BIGINT", nullable=False), Column("town", "STRING")))


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a storage, and a file for it."""
    pytest.importorskip("deltalake", reason="the extra spark is not installed")

    async def defined(found: Found, name: str) -> Dataset:
        if name.lower() != "shelters":
            raise DatasetMissing(name)
        return SHELTERS

    monkeypatch.setattr(module, "definition", defined)
    (tmp_path / "datasets").mkdir()
    (tmp_path / "shelters.csv").write_text("id,town,colour\n1,Ulm,red\n2,Bonn,red\nx,Kiel,red\n")
    return tmp_path


def load(town: Path, *words: str) -> int:
    return main(["dataset", "load", *words, "--state", str(town)])


def test_a_file_is_loaded_once_and_again_only_when_asked(
    town: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(town / "shelters.csv")
    assert load(town, file) == 0
    said = capsys.readouterr().out
    assert "2 rows of" in said and "1 did not fit" in said and "colour" in said
    assert load(town, file, "--into", "Shelters") == 0
    assert "already" in capsys.readouterr().out
    assert load(town, file, "--again", "--json") == 0
    assert json.loads(capsys.readouterr().out) | {"ignored": []} == {
        "rows": 2,
        "quarantined": 1,
        "repeated": False,
        "ignored": [],
    }


def test_quarantined_records_show_their_reason_and_move_when_they_fit(
    town: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(*words: str) -> str:
        assert main(["dataset", *words, "--state", str(town)]) == 0
        return capsys.readouterr().out

    assert "every record fitted" in say("quarantine", "Shelters")
    say("load", str(town / "shelters.csv"))
    (told,) = json.loads(say("quarantine", "shelters", "--json"))
    assert json.loads(told["record"])["town"] == "Kiel"
    shown = say("quarantine", "Shelters")
    assert told["reason"].startswith("id: ") and told["reason"] in shown and "file shelters.csv" in shown
    assert "0 records are in Shelters now; 1 still do not fit" in say("replay", "Shelters")

    from tocsin.pipeline.storage.landing import Landing

    landing = Landing(town / "datasets")
    landing.create(SHELTERS)
    landing.drop("Shelters")
    text = (Column("id", "STRING", nullable=False), Column("town", "STRING"))
    monkeypatch.setattr(module, "definition", defined_as(Dataset("Shelters", text)))
    assert "1 records are in Shelters now; 0 still do not fit" in say("replay", "Shelters")
    assert "every record fitted" in say("quarantine", "Shelters")


def defined_as(dataset: Dataset) -> Any:
    async def defined(found: Found, name: str) -> Dataset:
        return dataset

    return defined


def test_a_long_quarantine_is_not_shown_as_a_whole(town: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (town / "many.csv").write_text("id,town\n" + "x,Kiel\n" * 30)
    assert load(town, str(town / "many.csv"), "--into", "Shelters") == 0
    assert main(["dataset", "quarantine", "Shelters", "--state", str(town)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Kiel") == 20 and "20 of 30; --limit shows more" in shown


def test_what_cannot_be_loaded_is_refused(town: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(town / "shelters.csv")
    for words, said in (
        ((file, "--into", "Places"), "there is no dataset Places"),
        ((str(town / "my shelters.csv"),), "--into NAME"),
        ((file, "--into", "a b"), "is no name of a dataset"),
        ((str(town / "none.csv"), "--into", "Shelters"), "none.csv"),
        ((file, "--set", f"pipeline.storage={town / 'elsewhere'}"), "there are no datasets in"),
    ):
        assert load(town, *words) == 2
        errors = capsys.readouterr().err
        assert said in errors and "Traceback" not in errors


def test_a_network_that_does_not_run_cannot_say_what_a_dataset_is(
    town: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def away(found: Found, name: str) -> Dataset:
        raise StoreUnavailable("connect", "no server")

    monkeypatch.setattr(module, "definition", away)
    assert load(town, str(town / "shelters.csv")) == 2
    assert "tocsin up" in capsys.readouterr().err
