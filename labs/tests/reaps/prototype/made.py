"""Failures that never were."""

from __future__ import annotations

from tocsin_demo.scene import Account
from tocsin_labs.reaps.prototype.outcome import Outcome
from tocsin_labs.reaps.prototype.plan import Way

ACCOUNT = Account(400, 1_000, 1_000, 0, 0, 0, 0, 3, 400)


def failure(
    way: Way, subscribers: int, all_served_s: float, run: int = 1, detected_s: float | None = 1.5
) -> Outcome:
    """One in which subscribers come back at the same distances."""
    times = [all_served_s * rank / subscribers for rank in range(1, subscribers + 1)]
    return Outcome(
        way=way,
        run=run,
        subscribers=subscribers,
        detected_s=None if way == "migration" else detected_s,
        stands_in="south-2",
        taken_s=1.6,
        broken_s=[0.01] * subscribers,
        served_s=times,
        told_s=[each + 1 for each in times],
        others_told_s=[0.9, 1.0],
        at={"south-2": subscribers},
        returned_s=[3.0] * subscribers,
    )


FAILURES = [
    failure("local", 23, 0.23),
    failure("remote", 23, 0.46),
    failure("local", 97, 0.97),
    failure("local", 97, 0.99, run=2),
    failure("local", 97, 0.95, run=3),
    failure("remote", 97, 1.94),
    failure("migration", 97, 0.4),
    failure("frozen", 23, 1.7),
    failure("frozen", 97, 2.5),
]
