"""Scenarios are found by name, and loaded from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.sim.runs.invariants import Invariant
from tocsin.sim.runs.scenario import ScenarioFileUnusable, UnknownScenario, find, load, scenario, scenarios
from tocsin.sim.world import World

FILE = """
from tocsin.sim.runs.scenario import scenario

@scenario("{name}", summary="of a file", trouble_us=1, settle_us=2)
def build(world):
    return []
"""


def test_tocsins_own_scenarios_are_known() -> None:
    assert "counter" in scenarios()
    assert find("counter").summary.startswith("a counter behind a lease")


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownScenario, match=r"no scenario 'conter'.*Choose one of: .*counter"):
        find("conter")


def test_a_file_registers_its_scenarios(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(name="of-a-file"))
    (found,) = load(path)
    assert (found.name, found.trouble_us, found.settle_us) == ("of-a-file", 1, 2)
    assert find("of-a-file") is found
    (again,) = load(path)
    assert again.name == "of-a-file"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "there is no such file"),
        ("x = 1", "it registers none"),
        ("raise KeyError('oh')", "KeyError: 'oh'"),
        ("def", "SyntaxError"),
        (FILE.format(name="counter"), "two scenarios are named 'counter'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_words(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    path = tmp_path / "bad.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ScenarioFileUnusable, match=reason):
        load(path)


def test_a_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(ScenarioFileUnusable, match="it is not a Python file"):
        load(path)


def test_registering_leaves_the_function_as_it_is() -> None:
    def build(world: World) -> list[Invariant]:
        return []

    assert scenario("left-as-it-is", summary="of a test")(build) is build
