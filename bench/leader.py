"""The leader's processor time while many brokers fail at once, in virtual time and one process.

The network of `tocsin lab landmark --only scale`, with 1 000 brokers: a tenth of all is killed at one moment, and for
comparison one broker. From the kill until everybody has somebody in its place and backups again, the leader's processor
time is measured, with what it decodes and encodes. The store's client is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Final

from tocsin_labs.landmark.plan import Scale, Size
from tocsin_labs.landmark.scale import TENTH, Experiment, Kill, uncollected

BROKERS: Final = 1_000
QUICK: Final = 200
SEED: Final = 1
HEADS: Final = (
    "brokers",
    "killed at once",
    "leader (s of a processor)",
    "for each (ms)",
    "longest step (s)",
    "within (virtual s)",
    "all have somebody (virtual s)",
)


async def measure(brokers: int, what: str) -> Kill:
    """One kill, in a network of its own."""
    with uncollected():
        experiment = Experiment(Scale(), Size(brokers, 1), "default", SEED)
        await experiment.form()
        return await experiment.kill(what, 1)


def row(kill: Kill) -> str:
    effort, lost = kill.effort, len(kill.fates)
    served = "–" if kill.taken_over_s is None else f"{kill.taken_over_s:.2f}"
    return (
        f"| {kill.brokers} | {lost} | {effort.leader_s:.3f} | {1_000 * effort.leader_s / lost:.1f} "
        f"| {effort.longest_s:.3f} | {effort.span_s:.2f} | {served} |"
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench leader")
    parser.add_argument("--quick", action="store_true")
    brokers = QUICK if parser.parse_args(argv).quick else BROKERS
    print(f"| {' | '.join(HEADS)} |", flush=True)
    for what in ("1", TENTH):
        print(row(asyncio.run(measure(brokers, what))), flush=True)
    return 0


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
