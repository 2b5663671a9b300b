"""Offers and requests are compared as DDS does: Cyclone DDS says what matches, and which policy does not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import pytest

dds = pytest.importorskip("tests.integration.dds", reason="install the extra tocsin[dds]")

from cyclonedds.core import Listener  # noqa: E402

from tocsin.core.quality.matching import meets, mismatch  # noqa: E402
from tocsin.core.quality.texts import read_offer, read_request  # noqa: E402

Policy, Qos = dds.Policy, dds.Qos
DOMAIN: Final = 150 + os.getpid() % 50
DEADLINE_S: Final = 20.0
MS: Final = 1_000_000  # nanoseconds
STATED: Final = 1  # the QoS of messages that may offer everything
# The policies as DDS numbers them.
NUMBERS: Final = {
    2: "durability",
    4: "deadline",
    5: "budget",
    6: "ownership",
    8: "liveliness",
    11: "reliability",
}
WORDS: Final[dict[str, dict[str, Any]]] = {
    "reliability": {
        "best-effort": Policy.Reliability.BestEffort,
        "reliable": Policy.Reliability.Reliable(100 * MS),
    },
    "durability": {
        "volatile": Policy.Durability.Volatile,
        "transient-local": Policy.Durability.TransientLocal,
        "transient": Policy.Durability.Transient,
        "persistent": Policy.Durability.Persistent,
    },
    "deadline": {each: Policy.Deadline(int(each[:-2]) * MS) for each in ("50ms", "100ms", "700ms")},
    "budget": {each: Policy.LatencyBudget(int(each[:-2]) * MS) for each in ("1ms", "30ms", "31ms")},
    "ownership": {"shared": Policy.Ownership.Shared, "exclusive": Policy.Ownership.Exclusive},
    "liveliness": {
        **{f"automatic,lease={each}ms": Policy.Liveliness.Automatic(each * MS) for each in (900, 2_000)},
        **{f"manual,lease={each}ms": Policy.Liveliness.ManualByTopic(each * MS) for each in (900, 2_000)},
    },
    "partition": {
        text: Policy.Partition(text.split("|")) for text in ("hall-1", "yard", "hall-*", "hall-?|yard", "*")
    },
}
PAIRS: Final = [
    (policy, offered, requested)
    for policy, words in WORDS.items()
    for offered, requested in product(words, words)
]


class Reported(Listener):
    """What Cyclone says of one reader."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.policy: str | None = None
        self.matched = False

    def on_requested_incompatible_qos(self, reader: Any, status: Any) -> None:
        self.policy = NUMBERS.get(int(status.last_policy_id), f"policy {status.last_policy_id}")

    def on_subscription_matched(self, reader: Any, status: Any) -> None:
        self.matched = True

    @property
    def said(self) -> str:
        if self.matched:
            return "matches"
        return self.policy or "do not meet"


def ours(policy: str, offered: str, requested: str) -> str:
    """What we say of a pair."""
    offer, request = read_offer(f"{policy}={offered}"), read_request(f"{policy}={requested}")
    if not meets(offer, request):
        return "do not meet"
    found = mismatch(offer, request, STATED)
    return "matches" if found is None else {"lease": "liveliness"}.get(found.policy, found.policy)


def base(policy: str) -> list[Any]:
    """Everything else is offered by both, so that one policy decides."""
    shared = {"reliability": Policy.Reliability.Reliable(100 * MS), "durability": Policy.Durability.Volatile}
    return [each for name, each in shared.items() if name != policy]


@pytest.fixture(scope="module")
def reported() -> Iterator[dict[tuple[str, str, str], str]]:
    participant = dds.DomainParticipant(DOMAIN)
    listeners: dict[tuple[str, str, str], Reported] = {}
    held: list[Any] = []
    for number, (policy, offered, requested) in enumerate(PAIRS):
        topic = dds.Topic(participant, f"pair-{number}", dds.Line)
        sides = [[*base(policy), WORDS[policy][each]] for each in (offered, requested)]
        grouped = policy == "partition"
        groups = [Qos(each[-1]) if grouped else None for each in sides]
        writer_qos, reader_qos = (Qos(*(each[:-1] if grouped else each)) for each in sides)
        listener = listeners[policy, offered, requested] = Reported()
        subscriber = dds.Subscriber(participant, groups[1])
        publisher = dds.Publisher(participant, groups[0])
        held.append(dds.DataReader(subscriber, topic, qos=reader_qos, listener=listener))
        held.append(dds.DataWriter(publisher, topic, qos=writer_qos))
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until and any(
        listener.said == "do not meet" != ours(*pair) for pair, listener in listeners.items()
    ):
        time.sleep(0.05)
    yield {pair: listener.said for pair, listener in listeners.items()}
    held.clear()


@pytest.mark.parametrize("policy", list(WORDS))
def test_each_pair_matches_if_and_only_if_cyclone_says_so(
    reported: dict[tuple[str, str, str], str], policy: str
) -> None:
    pairs = [pair for pair in PAIRS if pair[0] == policy]
    assert {pair: ours(*pair) for pair in pairs} == {pair: reported[pair] for pair in pairs}
    assert len({ours(*pair) for pair in pairs}) == 2, "there are pairs of both kinds"
