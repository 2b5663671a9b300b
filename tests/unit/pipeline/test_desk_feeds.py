"""A feed notes where the message log ends when it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra spark is not installed")

from tests.unit.pipeline.shops import Workshop
from tocsin.pipeline.definitions.statements import StatementRunner


async def test_a_feed_takes_what_comes_after_it_was_made(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    await workshop.open()
    ends = [7, 9]

    async def newest() -> int:
        return ends.pop(0)

    desk = StatementRunner(workshop.definitions, workshop.threads, newest)
    try:
        reply = await desk.run(
            "CREATE DATASET D (n BIGINT); CREATE FEED F INTO D FROM TOPIC 'a'; CREATE FEED G INTO D FROM HTTP",
            limit=1,
        )
        assert reply.error is None
        assert {name: feed.since for name, feed in workshop.catalogue.feeds.items()} == {"f": 7, "g": 9}
    finally:
        workshop.close()
