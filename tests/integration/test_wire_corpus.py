"""Thousands of packets, most of them broken in one way, against a broker of a real network: each ends as the standard
has it, and nobody else notices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.corpus.grammar import CONNECTS, FAMILIES
from tests.conformance.corpus.play import play, play_connects
from tests.integration.running import up

SHOWN = 20  # failures in a report
CORPUS_MIN = 1_500
ONE_BROKER = 'brokers=[{"id":"only","cluster":"only"}]'


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    # One address opens and closes thousands of connections here.
    with up("--set", ONE_BROKER, "--set", "limits.connection_rate=0") as ready:
        (broker,) = ready["brokers"]
        yield broker["host"], broker["port"]


@pytest.mark.parametrize("family", FAMILIES)
async def test_packets_end_as_the_standard_has_it(address: tuple[str, int], family: str) -> None:
    played, failures = await play(*address, FAMILIES[family]())
    assert played > 0
    assert not failures, f"{len(failures)} of {played}:\n" + "\n".join(failures[:SHOWN])


@pytest.mark.parametrize("family", CONNECTS)
async def test_connects_end_as_the_standard_has_it(address: tuple[str, int], family: str) -> None:
    played, failures = await play_connects(*address, CONNECTS[family]())
    assert played > 0
    assert not failures, f"{len(failures)} of {played}:\n" + "\n".join(failures[:SHOWN])


async def test_the_broker_still_serves_everybody(address: tuple[str, int]) -> None:
    played, failures = await play(*address, FAMILIES["right"]())
    assert (played > 0, failures) == (True, [])


def test_the_corpus_is_large() -> None:
    families = (*FAMILIES.values(), *CONNECTS.values())
    assert sum(1 for family in families for _ in family()) >= CORPUS_MIN
