"""The same seed is the same run: in another process, with another hash seed, and on another day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tocsin.sim.runs.runner import replay, run
from tocsin.sim.runs.scenario import find

DIGESTS = Path(__file__).parent / "digests.json"
SCENARIOS = ("counter",)  # the ones whose machines are the simulator's own: others change with the product
SEEDS = range(12)

PROGRAM = """
import hashlib
from tocsin.sim.runs.runner import replay
from tocsin.sim.runs.scenario import scenarios
for name, scenario in scenarios().items():
    for seed in range(1, 2 + LONG):
        if name.endswith("-long") > LONG:
            continue  # the same machines, for longer
        story = replay(scenario, seed)
        print(name, seed, story.outcome.digest, hashlib.sha256(story.transcript.text().encode()).hexdigest())
"""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_runs_are_what_they_were(scenario: str, rewrite: bool) -> None:
    golden: dict[str, list[str]] = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    digests = [run(find(scenario), seed).digest for seed in SEEDS]
    if rewrite:
        DIGESTS.write_text(json.dumps({**golden, scenario: digests}, indent=2) + "\n")
    else:
        assert digests == golden[scenario], "if that was meant: pytest tests/sim --rewrite-transcripts"


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_processes_with_different_hash_seeds_tell_the_same_story_to_the_byte(long: bool) -> None:
    told = []
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", f"LONG = {long}\n{PROGRAM}"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=800,
        )
        told.append(done.stdout)
    assert "counter 1 " in told[0]
    assert told[0] == told[1]


def test_a_story_changes_nothing_that_it_tells() -> None:
    scenario = find("counter")
    for seed in range(20):
        assert replay(scenario, seed).outcome == run(scenario, seed)
