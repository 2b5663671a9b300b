"""Offers and requests in the Python client: as values or as text, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.client import (
    EVERYTHING,
    Durability,
    Liveliness,
    Offer,
    Ownership,
    QualityInvalid,
    Reliability,
    Request,
)
from tocsin.client.message import offered, requested
from tocsin.core.quality.texts import read_offer, read_request

SAID: list[tuple[str, Any, str]] = [
    ("reliability", Reliability.RELIABLE, "reliable"),
    ("durability", Durability.TRANSIENT_LOCAL, "transient-local"),
    ("deadline_us", 100_000, "100ms"),
    ("budget_us", 5_000, "5ms"),
    ("lease_us", 5_000_000, "5s"),
    ("liveliness", Liveliness.AUTOMATIC, "automatic"),
    ("ownership", Ownership.EXCLUSIVE, "exclusive"),
    ("partition", ("hall-1", "yard"), "hall-1|yard"),
]


@pytest.mark.parametrize(("field", "value", "text"), SAID, ids=[each[0] for each in SAID])
def test_each_policy_is_said_and_read_back(field: str, value: Any, text: str) -> None:
    policy = field.removesuffix("_us")
    assert offered(Offer(**{field: value})) == ((f"offer.{policy}", text),)
    assert offered(f"{policy}={text}") == ((f"offer.{policy}", text),)
    assert requested("a/+", Request(**{field: value})) == requested("a/+", f"{policy}={text}")
    assert read_offer(f"{policy}={text}") == Offer(**{field: value})
    assert read_request(f"{policy}={text}") == Request(**{field: value})


def test_what_only_one_end_says() -> None:
    keeps = Offer(durability=Durability.TRANSIENT, history=EVERYTHING, lifespan_us=60_000_000)
    assert offered(keeps) == (
        ("offer.durability", "transient"),
        ("offer.history", "all"),
        ("offer.lifespan", "1m"),
    )
    request = Request(separation_us=1_000_000, where="a > 3", strict=True)
    assert requested("t", request).startswith("$qos/separation=1s,strict=yes,where=")
    assert requested("t", None) == "t" and offered(None) == ()


@pytest.mark.parametrize("text", ["deadline=soon", "durable=yes", "history=3", "deadline=1s,deadline=2s", ""])
def test_what_cannot_be_read_is_refused_before_it_is_sent(text: str) -> None:
    for refuse in (lambda: offered(text), lambda: requested("t", text)):
        with pytest.raises(QualityInvalid):
            refuse()
