"""Rules of the house that a reader would miss: numbers of decisions, re-exports, paragraphs, how pages open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DECISIONS: Final = ROOT / "docs/decisions"
INDEX: Final = (DECISIONS / "README.md").read_text("utf-8")
EXPLANATIONS: Final = sorted(
    page for page in ROOT.glob("docs/explanation/*.md") if not page.stem.endswith("-summary")
)  # a summary is one table, and how it was measured
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE: Final = re.compile(r"^ *(```+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
WORDS_MAX: Final = 120
AGAIN: Final = re.compile(r"\bimport (\w+) as \1\b|, (\w+) as \2\b")


def numbers_without_a_page() -> set[int]:
    """The numbers that the index explains."""
    rows = re.findall(r"^\| (\d{3}(?:, \d{3})*) \|", INDEX, re.MULTILINE)
    return {int(number) for row in rows for number in row.split(", ")}


def test_each_number_has_a_decision_or_the_index_says_why_not() -> None:
    pages = {int(page.name[:3]) for page in DECISIONS.glob("[0-9]*.md")}
    assert pages | numbers_without_a_page() == set(range(1, max(pages) + 1))
    assert not pages & numbers_without_a_page(), "the index says that there is no such page"


def test_the_index_lists_every_decision_once_and_in_order() -> None:
    listed = re.findall(r"^\| \[\d{3}\]\((\S+)\) \|", INDEX, re.MULTILINE)
    assert listed == sorted(page.name for page in DECISIONS.glob("[0-9]*.md"))


@pytest.mark.parametrize("page", EXPLANATIONS, ids=lambda page: page.name)
def test_an_explanation_opens_with_a_picture_or_a_table(page: Path) -> None:
    """One of them comes before the second heading, and after no more than two paragraphs."""
    blocks = [block for block in page.read_text("utf-8").split("\n\n") if block.strip()]
    opening = [block.lstrip() for block in blocks[1:4]]
    assert any(block.startswith(("|", "![", "```mermaid", "```text", "<svg")) for block in opening)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_paragraph_has_at_most_120_words(page: Path) -> None:
    text = FENCE.sub("", page.read_text("utf-8"))
    blocks = (block for part in text.split("\n\n") for block in re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", part))
    prose = (block for block in blocks if not block.lstrip().startswith("|"))
    assert [f"{len(block.split())}: {block[:80]}" for block in prose if len(block.split()) > WORDS_MAX] == []


@pytest.mark.parametrize("tree", ["src", "demo/src", "labs/src", "bench", "tests"])
def test_nothing_is_imported_under_its_own_name_again(tree: str) -> None:
    found = [
        f"{module.relative_to(ROOT)}: {match[0]}"
        for module in sorted((ROOT / tree).rglob("*.py"))
        for match in AGAIN.finditer(module.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_paragraph_inside_a_list_does_not_end_it(page: Path) -> None:
    """It is indented by four, and an empty line follows it: else the site shows all that comes as one paragraph."""
    text = FENCE.sub("", page.read_text("utf-8"))
    shallow = re.findall(r"^(?:[-*]|\d+\.) .*\n(?:.+\n)*\n {1,3}(?![ -]|\d+\. ).*", text, re.MULTILINE)
    unended = re.findall(r"\n\n +(?![-*|]|\d+\. ).+(?:\n.+)*\n(?:[-*]|\d+\.) .*", text)
    assert shallow + unended == []
