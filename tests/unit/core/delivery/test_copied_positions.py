"""Of the stored position and that of a backup's copy the further one counts, within one session and below QoS 2."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.core.delivery.copied_positions import CopiedPositions, furthest
from tocsin.core.delivery.stored_session import StoredSession
from tocsin.core.delivery.window import Progress
from tocsin.core.forwarding.table import Subscription
from tocsin.wire.replication import Positions

AT_ONE = {"a": Subscription(qos=1)}
STORED = StoredSession("c", "uid", 60, subscriptions=AT_ONE, progress=Progress(10, (4, 7)))


def copied(positions: Positions, uid: str = "uid") -> CopiedPositions:
    return CopiedPositions(uid, positions)


def settled(progress: Progress, up_to: int) -> set[int]:
    """The positions that are not sent again."""
    return {each for each in range(1, up_to) if each < progress.next and each not in progress.unsettled}


@given(st.integers(1, 20), st.sets(st.integers(1, 19)), st.integers(0, 25))
def test_what_either_has_settled_is_settled(following: int, unsettled: set[int], eta: int) -> None:
    progress = Progress(following, tuple(sorted(each for each in unsettled if each < following)))
    session = msgspec.structs.replace(STORED, progress=progress)
    after = furthest(session, copied(Positions(messages=eta))).progress
    assert settled(after, 30) == settled(progress, 30) | set(range(1, eta + 1))


@pytest.mark.parametrize(
    ("session", "known"),
    [
        (STORED, None),
        (STORED, copied(Positions(messages=20), uid="another")),
        (STORED, copied(Positions(messages=3))),
        (msgspec.structs.replace(STORED, subscriptions={"a": Subscription(qos=2)}), copied(Positions(20))),
        (msgspec.structs.replace(STORED, progress=Progress(10, (), (5,))), copied(Positions(20))),
        (STORED, copied(Positions(messages=20, critical_messages=30))),
    ],
    ids=["no copy", "another session", "older", "QoS 2", "QoS 2 before", "other tracks"],
)
def test_the_store_alone_counts(session: StoredSession, known: CopiedPositions | None) -> None:
    assert furthest(session, known) == session


def test_each_track_has_its_own_position() -> None:
    session = msgspec.structs.replace(
        STORED,
        critical_messages=Progress(3),
        results=Progress(5),
        critical=Progress(50),
    )
    after = furthest(session, copied(Positions(messages=8, results=9, critical=2, critical_messages=12)))
    assert after.progress == Progress(10) and after.critical_messages == Progress(13)
    assert after.results == Progress(10) and after.critical == Progress(50)
