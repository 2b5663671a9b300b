"""Pictures from summaries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tocsin.errors import OperatorError
from tocsin_labs import summaries
from tocsin_labs.figures import Comparison, markdown

DOCS = Path(__file__).parents[2] / "docs"


def test_rows_of_a_summary_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [
        Comparison("V-C", "mean", "ms", 129.6, 0.472),
        Comparison("Table 4, default", "messages lost", "of 49370", None, 0.0),
        Comparison("3b", "local, 23 subscribers: all served again; 0.193 to 0.458", "s", None, 0.325),
    ]
    page = tmp_path / "summary.md"
    page.write_text(f"# Figures\n\nSome words.\n\n{markdown(rows)}")
    assert summaries.read(page) == rows


@pytest.mark.parametrize(
    ("lab", "pictures"),
    [
        ("cqbs", ["cqbs.png"]),
        ("landmark", ["control.png", "latency.png", "objects.png"]),
        ("reaps-prototype", ["failovers.png"]),
    ],
)
def test_the_summaries_of_the_docs_can_be_drawn(lab: str, pictures: list[str], tmp_path: Path) -> None:
    drawn = summaries.draw(DOCS / "explanation" / f"{lab}-summary.md", tmp_path)
    assert sorted(each.name for each in drawn) == pictures
    for each in drawn:
        assert 5_000 < each.stat().st_size < 100_000
        assert (DOCS / "assets" / lab / each.name).is_file()


def test_a_page_without_figures_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n")
    with pytest.raises(OperatorError, match="no rows of figures"):
        summaries.draw(page, tmp_path)
    with pytest.raises(OperatorError, match="cannot be read"):
        summaries.draw(tmp_path / "missing.md", tmp_path)


SECTION = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?")


def written(text: str) -> list[str]:
    """The numbers in the cells of a section's tables, without the first cell of each row and without headings."""
    rows = [line.strip().strip("|").split("|")[1:] for line in text.splitlines() if line.startswith("|")]
    heads = {at for at, row in enumerate(rows) if set("".join(row)) <= set(" -:")}
    kept = [row for at, row in enumerate(rows) if at not in heads and at + 1 not in heads]
    return [each for row in kept for cell in row for each in NUMBER.findall(cell)]


def test_tables_of_figures_7_and_8_are_the_recorded_figures() -> None:
    """Each number stands in the summary: as a figure, rounded, or as a floor or a goal."""
    recorded = (DOCS / "explanation" / "pubsubcoord-summary.md").read_text("utf-8")
    known = {float(each.replace(",", "")) for each in NUMBER.findall(recorded)}
    page = (DOCS / "explanation" / "pubsubcoord-experiments.md").read_text("utf-8")
    sections = {name: text for name, text in SECTION.findall(page) if re.match(r"Figures? (7[ab]|8)", name)}
    assert len(sections) == 3
    for name, text in sections.items():
        numbers = written(text)
        assert len(numbers) >= 10, name
        for each in numbers:
            decimals = len(each.partition(".")[2])
            value = float(each.replace(",", ""))
            assert any(abs(value - other) <= 0.5000001 * 10**-decimals for other in known), (name, each)
