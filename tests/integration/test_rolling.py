"""A rolling restart of a network that runs under load, one process after the other: nothing is lost, nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running import up
from tests.integration.stored import Finder, options, unpack

pytestmark = pytest.mark.timeout(400)
LOAD = ("--subscribers", "12", "--publishers", "3", "--rate", "4")
BROKERS = json.dumps([{"id": f"north-{n}", "cluster": "north"} for n in (1, 2, 3)])


def roll(ready: dict[str, Any], every: str) -> dict[str, Any]:
    """Restart every process in turn, the store's servers last; the account."""
    parts = sorted(
        ready["pids"], key=lambda name: (name.startswith("store"), name.startswith("coordinator"), name)
    )
    assert len(parts) == len(ready["pids"]) > 3
    words = [word for part in parts for word in ("--restart", part)]
    command = [sys.executable, "-m", "tocsin", "chaos", "--state", ready["state"], "--json", *LOAD, *words]
    done = subprocess.run([*command, "--every", every], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    found: dict[str, Any] = json.loads(done.stdout)
    assert [each["target"] for each in found["faults"]] == parts
    assert all(each["pids"] for each in found["faults"]), "each was there to be restarted"
    return found


def check(account: dict[str, Any]) -> None:
    totals = account["totals"]
    assert account["kept"] and totals["acknowledged"] and totals["delivered"] >= totals["expected"]
    for figure in ("lost", "repeated_once", "out_of_order", "unrecovered", "strange"):
        assert totals[figure] == 0, figure


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"


def test_each_process_in_turn_costs_nothing(state: Path) -> None:
    with up("--set", f"brokers={BROKERS}", state=state, level="error") as ready:
        check(roll({**ready, "state": str(state)}, "5s"))


@pytest.mark.slow
def test_three_store_servers_and_three_coordinators_in_turn_cost_nothing(state: Path) -> None:
    more = ("--set", "nats.servers=3", "--set", "coordinators=3")
    with up("--set", f"brokers={BROKERS}", *more, state=state, level="error") as ready:
        check(roll({**ready, "state": str(state)}, "15s"))


@pytest.mark.slow
async def test_a_network_on_the_state_of_an_earlier_release_too(state: Path) -> None:
    expected = unpack("release-0.1.0", state)
    with up(*options(), state=state, level="error") as ready:
        check(roll({**ready, "state": str(state)}, "5s"))
        await Finder(ready).all(expected)
