"""What the conformance tests share: a broker's entrance on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.broker.harness import Door
from tocsin.config import Limits


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with Door(Limits()) as opened:
        yield opened
