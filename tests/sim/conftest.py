"""The option that rewrites what the tests of the simulator compare with."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write the golden transcripts and digests of tests/sim anew; read the difference before you commit it",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written rather than compared with."""
    return bool(request.config.getoption("--rewrite-transcripts", default=False))
