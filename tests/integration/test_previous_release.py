"""A network of today on the state that release 0.1.0 left: everything is found, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.running import up
from tests.integration.stored import Finder, options, unpack

pytestmark = pytest.mark.timeout(240)
RELEASES = ("release-0.1.0",)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_network_goes_on_with_the_state_of_an_earlier_release(release: str, tmp_path: Path) -> None:
    expected = unpack(release, tmp_path / "state")
    with up(*options(), state=tmp_path / "state", level="error") as ready:
        await Finder(ready).all(expected)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("release", RELEASES)
async def test_its_datasets_and_channels_go_on_too(release: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    expected = unpack(release, tmp_path / "state")
    with up(*options(), state=tmp_path / "state", level="error", spark=True) as ready:
        finder = Finder(ready)
        await finder.channel(expected["channel"])
        assert finder.rows() == [{"kind": "flood", "level": expected["channel"]["level"]}]
