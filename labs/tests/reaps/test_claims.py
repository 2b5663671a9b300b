"""The paper's statements: each of them can fail."""

from __future__ import annotations

import msgspec
import pytest

from tocsin_labs import statements
from tocsin_labs.reaps import claims
from tocsin_labs.reaps.claims import at_the_same_messages
from tocsin_labs.reaps.failures import ONE_BY_ONE, ONE_EACH, Failed
from tocsin_labs.reaps.overheads import Chosen, Overhead
from tocsin_labs.reaps.replication import Mode, Replicated
from tocsin_labs.reaps.retrieval import REAPS, Retrieved


def replicated(mode: Mode, messages: float, repeated: float) -> Replicated:
    return Replicated(mode, 1.0, messages, None, repeated, repeated)


def retrieved(reaps: float, random: float, similar: float) -> list[Retrieved]:
    rates = {REAPS: reaps, "AR, RND": random, "AR, LCS/MMCS": similar}
    return [Retrieved(10, scheme, rate, rate, 1.0) for scheme, rate in rates.items()]


@pytest.mark.parametrize(
    ("rates", "holding"),
    [((1, 3, 2), [True, True]), ((1, 2, 2), [True, False]), ((2, 3, 2), [False, True])],
)
def test_what_is_said_of_retrieval(rates: tuple[float, float, float], holding: list[bool]) -> None:
    assert [each.holds for each in claims.of_retrieval(retrieved(*rates))] == holding


@pytest.mark.parametrize(("paper", "holding"), [((5, 0), [True, True]), ((10, 9), [False, False])])
def test_what_is_said_of_backups(paper: tuple[float, float], holding: list[bool]) -> None:
    chosen = Chosen(*paper, 0)
    row = Overhead("uniform", 10, 100, 10.0, 120, 130, Chosen(10, 9, 0), chosen, chosen, 1, 0)
    assert [each.holds for each in claims.of_overheads([row])] == holding


def test_ways_to_replicate_are_compared_at_the_same_messages() -> None:
    # Twice the time between messages, twice as much: a hyperbola, which a straight line over messages would miss.
    base = [replicated("periodic", 4, 10.0), replicated("periodic", 100, 1.0)]
    other = [replicated("volume", 2, 18.0), replicated("volume", 8, 4.5)]
    assert at_the_same_messages(base, other) == [pytest.approx(0.9)]  # 100 lies beyond the other's


def test_what_is_said_of_replication_can_be_wrong() -> None:
    periodic = [
        replicated("periodic", 2, 20.0),
        replicated("periodic", 4, 10.0),
        replicated("periodic", 8, 5.0),
    ]
    better = [replicated("volume", 2, 18.0), replicated("volume", 8, 4.0)]
    worse = [replicated("clients", 2, 30.0), replicated("clients", 8, 7.0)]
    ideal = [replicated("ideal", each.messages_min, each.retrieved_mb) for each in better]
    found = claims.of_replication([*periodic, *better, *ideal, *worse])
    assert [each.holds for each in found] == [True, True, True, False]
    strange = [*periodic, replicated("periodic", 16, 6.0)]
    assert not claims.of_replication([*strange, *better, *worse])[0].holds


def test_claims_on_failures_are_checked_for_the_papers_algorithm_at_each_capacity() -> None:
    def failed(count: int, room: float | None, value: float, scheme: str = "LCS/MMCS") -> Failed:
        return Failed(room, scheme, count, value, value, value, value, 0, 0, value, value, value)

    rows = [failed(1, None, 1), failed(2, None, 2), failed(1, 4.0, 2), failed(2, 4.0, 1)]
    rows += [failed(1, None, 1, ONE_EACH), failed(2, None, 2, ONE_EACH), failed(2, None, 9, ONE_BY_ONE)]
    rows += [msgspec.structs.replace(failed(2, 4.0, 7, ONE_BY_ONE), created=5)]
    found = claims.of_failures(rows)
    assert [each.holds for each in found] == [True] * 4 + [False] * 4 + [True] * 5
    assert "room for 4" in found[4].words and "backs two" in found[8].words
    assert found[4].evidence == "2 MB with 1 failed, 1 with 2, but 2 with 1 and 1 with 2"
    assert "but" not in found[0].evidence
    assert found[-1].evidence == "5 of them: all served after 7 s one by one, 1 s in bulk"
    assert "room for 4" in found[-1].words


def test_the_table_says_what_holds_and_why() -> None:
    text = statements.markdown(claims.of_retrieval(retrieved(1, 2, 2)))
    assert (
        "| 4a | active replication fetches more than REAPS | holds | 2 to 2 against 1 MB/s a broker |" in text
    )
    assert "does not hold" in text
