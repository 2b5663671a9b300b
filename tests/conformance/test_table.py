"""The page of statements says what is tested, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.conformance import statements, statements_311
from tests.conformance.table import PAGE, page, proofs

VERSIONS = pytest.mark.parametrize(
    ("marker", "demands", "untested"),
    [
        ("mqtt", statements.STATEMENTS, statements.UNTESTED),
        ("mqtt311", statements_311.STATEMENTS, statements_311.UNTESTED),
    ],
)


@VERSIONS
def test_every_statement_has_a_test_or_a_reason_and_not_both(
    marker: str, demands: Mapping[str, str], untested: Mapping[str, str]
) -> None:
    proven = set(proofs(marker))
    assert set(demands) - proven - set(untested) == set(), "neither"
    assert proven & set(untested) == set(), "both"


@VERSIONS
def test_tests_and_reasons_name_statements_that_exist(
    marker: str, demands: Mapping[str, str], untested: Mapping[str, str]
) -> None:
    assert (set(proofs(marker)) | set(untested)) - set(demands) == set()


def test_the_list_is_the_standards() -> None:
    """Appendix B of MQTT 5.0 has so many."""
    assert len(statements.STATEMENTS) == 251


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), (
        "run: python -m tests.conformance.table > docs/reference/mqtt-conformance.md"
    )
