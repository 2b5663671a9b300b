"""``tocsin demo``: what it plays, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tocsin.cli.main import main
from tocsin.runtime import extra
from tocsin_demo.command import PERIOD_S, SECONDS, SUBSCRIBERS, make_script, to_try
from tocsin_demo.scene import Scene
from tocsin_demo.scene.application import report
from tocsin_demo.traces import Emergency


def test_it_plays_the_papers_scene_unless_told_otherwise() -> None:
    script = make_script(1, None, None, quick=False)
    assert script.subscribers == SUBSCRIBERS == 400
    assert (script.city.seconds, script.period_s) == (SECONDS, PERIOD_S)
    assert script.clusters() == {"north": ("north-1", "north-2"), "south": ("south-1", "south-2")}


def test_a_seed_repeats_the_city_and_who_is_at_home_where() -> None:
    one, same, other = (make_script(seed, 30, 50, quick=True) for seed in (1, 1, 2))
    assert (one.places(), one.happenings(), one.homes) == (same.places(), same.happenings(), same.homes)
    assert one.places() != other.places()
    assert one.happenings() != other.happenings()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--seconds", "9", "--seconds 9. Give 10 to 3600."),
        ("--seconds", "3601", "--seconds 3601. Give 10 to 3600."),
        ("--subscribers", "0", "--subscribers 0. Give at least one."),
        ("--subscribers", "10001", "subscribers = 10001. Give 1 to 10000."),
    ],
)
def test_what_cannot_be_played_is_refused_in_words(
    option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", option, value]) == 2
    assert words in capsys.readouterr().err


def test_without_spark_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extra, "missing", lambda: "pyspark")
    assert main(["demo"]) == 2
    assert "pip install 'tocsin[spark]'" in capsys.readouterr().err


def test_what_to_try_can_be_copied_and_run() -> None:
    played = SimpleNamespace(
        script=make_script(1, None, 3, quick=True),
        names=["user-0", "user-1", "user-2"],
        publisher=SimpleNamespace(published=17),
        network=SimpleNamespace(directory=Path("/somewhere"), servers={"north-1": ("127.0.0.1", 1883)}),
        brokers={"north-1": SimpleNamespace(pid=4711)},
    )
    commands = [line.strip() for line in to_try(cast(Scene, played)).splitlines() if line.startswith("  ")]
    verbs = [shlex.split(command, comments=True) for command in commands]
    assert [words[1] for words in verbs] == ["sub", "pub", "sql", "chaos", "-9"]
    assert verbs[0][2:] == ["--at", "127.0.0.1:1883", "$channel/EmergenciesNearMe/user-2"]
    told = json.loads(verbs[1][-1])
    fields = report(1, Emergency(0.0, "storm-1", "storm", 0.0, 0.0, 1.0))
    assert told.keys() == fields.keys() and told["number"] == 1_017
    assert "--state /somewhere" in commands[2] and "--state /somewhere" in commands[3]
    assert re.match(r"kill -9 4711 ", commands[4])
