"""The page about the simulator has every scenario, and the true numbers of planted bugs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tocsin.sim.runs.scenario import scenarios

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs/explanation/simulator.md").read_text("utf-8")
FOUND: Final = re.compile(
    r"^(tests/sim/test_\w+\.py)::test_\w*?(?:(?:is|are)_found|_finds_\w+)(?:\[|$)", re.MULTILINE
)
SAID: Final = re.compile(
    r"^(?:.*\s)?([A-Z][a-z]+(?:-[a-z]+)?) bugs(?:, [a-z ]+,)? are planted[^(\n]*\(([^)]*)\)", re.MULTILINE
)
TEENS: Final = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
]
NUMBERS: Final = {word: number for number, word in enumerate(TEENS)} | {
    f"{tens}{f'-{ones}' if ones else ''}": value + number
    for tens, value in (("twenty", 20), ("thirty", 30), ("forty", 40), ("fifty", 50))
    for number, ones in enumerate(["", *TEENS[1:10]])
}
TOGETHER: Final = {
    "channels": ("channels", "standing_by"),
    "links-narrow": ("narrow_links",),
    "durable": ("durable", "reading", "retained_stubs"),
    "survival": ("survival", "survival_wills", "survival_balance", "recruits", "doors"),
}  # a row → modules of tests


@pytest.fixture(scope="module")
def planted() -> Counter[str]:
    """How many planted bugs each module looks for."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:xdist",
        "-m",
        "slow or not slow",
    ]
    collected = subprocess.run([*command, "tests/sim"], cwd=ROOT, check=True, capture_output=True, text=True)
    return Counter(FOUND.findall(collected.stdout))


def test_every_scenario_is_on_the_page() -> None:
    shipped = [name for name, each in scenarios().items() if each.build.__module__.startswith("tocsin.")]
    assert [name for name in shipped if f"`{name}`" not in PAGE] == []


def test_the_page_says_how_many_bugs_each_module_plants(planted: Counter[str]) -> None:
    said = {modules: NUMBERS[number.lower()] for number, modules in SAID.findall(PAGE)}
    counted = {
        modules: sum(planted[module] for module in re.findall(r"tests/\S+?\.py", modules)) for modules in said
    }
    assert said == counted
    named = {module for modules in said for module in re.findall(r"tests/\S+?\.py", modules)}
    assert named == set(planted), "each module that plants bugs is named, and only those"


def test_as_many_bugs_are_named_as_counted() -> None:
    """A list or a table of as many lines follows the sentence."""
    for match in SAID.finditer(PAGE):
        lines = PAGE[match.end() :].split("\n\n")[1].splitlines()
        named = [line for line in lines if line.startswith("- ")] or [
            line for line in lines if line[0] == "|"
        ][2:]
        assert len(named) == NUMBERS[match[1].lower()], match[0]


def test_the_table_of_scenarios_has_the_same_numbers() -> None:
    said = {modules: NUMBERS[number.lower()] for number, modules in SAID.findall(PAGE)}
    rows = re.findall(r"^\| \[`?([\w-]+)`?\]\(#[\w-]+\)[^|]*\|[^|]*\| (\d+) \|$", PAGE, re.MULTILINE)
    assert sum(int(number) for _, number in rows) == sum(said.values()) - 5, "all but those of the counter"
    for name, number in rows:
        of = [f"tests/sim/test_{each}.py" for each in TOGETHER.get(name, (name.replace("-", "_"),))]
        counted = [count for modules, count in said.items() if any(module in modules for module in of)]
        assert not counted or sum(counted) == int(number), name
