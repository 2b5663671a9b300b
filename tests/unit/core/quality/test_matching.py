"""What matches is what DDS connects; cyclonedds is asked, where it is installed (``tests/integration``)."""

from __future__ import annotations

import pytest

from tocsin.core.quality.matching import NOTHING, meets, mismatch, offered_by
from tocsin.core.quality.texts import read_offer, read_request
from tocsin.model.quality import Durability, Offer, Reliability


@pytest.mark.parametrize(
    ("offered", "requested", "policy"),
    [
        ("reliability=best-effort", "reliability=reliable", "reliability"),
        ("reliability=reliable", "reliability=best-effort", None),
        ("durability=transient-local", "durability=transient", "durability"),
        ("durability=persistent", "durability=transient", None),
        ("deadline=200ms", "deadline=100ms", "deadline"),
        ("deadline=100ms", "deadline=100ms", None),
        ("budget=20ms", "budget=10ms", "budget"),
        ("budget=10ms", "budget=20ms", None),
        ("liveliness=automatic,lease=1s", "liveliness=manual,lease=1s", "liveliness"),
        ("liveliness=manual,lease=1s", "liveliness=automatic,lease=2s", None),
        ("lease=3s", "lease=2s", "lease"),
        ("ownership=exclusive", "ownership=shared", "ownership"),
        ("ownership=exclusive", "ownership=exclusive", None),
    ],
)
def test_as_much_must_be_offered_as_is_requested(offered: str, requested: str, policy: str | None) -> None:
    found = mismatch(read_offer(offered), read_request(requested), 1)
    assert (None if found is None else found.policy) == policy


@pytest.mark.parametrize(
    ("requested", "qos", "policy", "offered"),
    [
        ("reliability=reliable", 0, "reliability", "best-effort"),
        ("reliability=reliable", 1, None, ""),
        ("durability=transient-local", 0, "durability", "volatile"),
        ("durability=persistent", 2, None, ""),
        ("deadline=1s", 1, "deadline", "infinite"),
        ("lease=1s", 1, "lease", "infinite"),
        ("budget=1ms", 0, None, ""),
        ("ownership=exclusive", 0, "ownership", "shared"),
        ("ownership=shared", 0, None, ""),
    ],
)
def test_who_says_nothing_offers_what_follows_from_its_messages(
    requested: str, qos: int, policy: str | None, offered: str
) -> None:
    found = mismatch(NOTHING, read_request(requested), qos)
    assert (None if found is None else found.policy) == policy
    assert found is None or found.offered == offered


def test_no_message_offers_more_than_its_qos_can_keep() -> None:
    said = Offer(reliability=Reliability.RELIABLE, durability=Durability.PERSISTENT)
    assert offered_by(said, 0) == (Reliability.RELIABLE, Durability.TRANSIENT)
    assert offered_by(Offer(durability=Durability.TRANSIENT_LOCAL), 0)[1] is Durability.TRANSIENT_LOCAL
    assert offered_by(NOTHING, 0) == (Reliability.BEST_EFFORT, Durability.VOLATILE)
    assert offered_by(said, 1) == (Reliability.RELIABLE, Durability.PERSISTENT)


@pytest.mark.parametrize(
    ("offered", "requested", "meet"),
    [
        ("", "partition=a", False),
        ("", "partition=*", True),
        ("", "", True),
        ("partition=a", "", True),
        ("partition=a|b", "partition=b|c", True),
        ("partition=hall-1", "partition=hall-*", True),
        ("partition=hall-*", "partition=hall-1", True),
        ("partition=hall-*", "partition=hall-?", False),
        ("partition=hall-*", "partition=hall-*", False),
        ("partition=a", "partition=b", False),
    ],
)
def test_partitions_meet_if_they_have_one_in_common(offered: str, requested: str, meet: bool) -> None:
    offer = read_offer(offered) if offered else NOTHING
    assert meets(offer, read_request(requested or "strict=no,separation=1s")) is meet
