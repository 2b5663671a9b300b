"""The page of settings is the one that the code makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tocsin.config import SETTINGS, File, load
from tocsin.config.catalogue import BROKER_FIELDS
from tocsin.config.reference import markdown

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run: tocsin config reference > docs/reference/settings.md"


def test_every_setting_is_on_the_page() -> None:
    for key in (*SETTINGS, *BROKER_FIELDS):
        assert f"| `{key}` |" in markdown()


def test_no_cell_breaks_its_table() -> None:
    rows = [line for line in markdown().splitlines() if line.startswith("| `")]
    assert {line.count("|") for line in rows if not line.startswith("| `tocsin.toml`")} == {5}


@pytest.mark.parametrize("page", sorted(PAGE.parents[1].rglob("*.md")), ids=lambda page: page.name)
def test_settings_in_the_documentation_can_be_used(page: Path) -> None:
    for text in re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.DOTALL):
        assert load(file=File(page.name, text)).settings
