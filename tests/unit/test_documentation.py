"""The pages lead where they say: links between them and into the code, and the glossary's classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"^ *(```+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
A_CLASS = re.compile(r"`([A-Z][a-z]\w*)`")


def links(page: Path) -> Iterator[tuple[str, Path]]:
    """The texts and targets of a page's links to files, outside its examples."""
    for text, target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            yield text, (page.parent / target).resolve()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert [str(target) for _, target in links(page) if not target.exists()] == []


def test_the_glossary_links_each_class_to_the_file_that_has_it() -> None:
    missing = [
        f"{name} in {target.relative_to(ROOT)}"
        for text, target in links(ROOT / "docs/glossary.md")
        for name in A_CLASS.findall(text)
        if not re.search(rf"^class {name}\b", target.read_text("utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_the_glossary_has_each_word_once() -> None:
    text = (ROOT / "docs/glossary.md").read_text("utf-8")
    words = [
        word
        for row in re.findall(r"^\| (\*\*.*?) \|", text, re.MULTILINE)
        for word in re.findall(r"\*\*(.+?)\*\*", row)
    ]
    assert len(words) >= 40
    assert sorted(words) == sorted(set(words))


def test_every_package_is_on_the_map() -> None:
    """Scenarios of the simulator are one row: their own page has each."""
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    packages = {each.parent.relative_to(ROOT) for each in (ROOT / "src/tocsin").rglob("__init__.py")}
    scenarios = Path("src/tocsin/sim/scenarios")
    missing = [each for each in packages if scenarios not in each.parents and f"../{each}/" not in page]
    assert sorted(missing) == []
