"""Brokers and coordinators fail in ways that detection and fencing are for: together, in a bad moment, asleep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.running import up
from tests.integration.trouble import account, brokers, program

COORDINATORS = ("--set", "coordinators=3")
THREE = ("--set", "nats.servers=3")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pauses_around_a_lease_cost_nothing() -> None:
    """Of the leader, half a lease (2 s) to twice one; of a broker, shorter and longer than it takes to be given up."""
    pauses = [f"role/leader:{length}@{2 + 8 * turn}s" for turn, length in enumerate(("1s", "2s", "4s"))]
    pauses += [
        f"broker/north-1:{length}@{28 + 12 * turn}s" for turn, length in enumerate(("800ms", "2s", "6s"))
    ]
    with up(*brokers(), *COORDINATORS, level="error") as network:
        account(network, *(word for each in pauses for word in ("--pause", each)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_leader_is_killed_while_a_broker_is_recovered() -> None:
    """Before the loss is in the log, about then, and while the others act on it."""
    options: list[str] = []
    for turn, later in enumerate((0.8, 1.5, 1.8, 2.5)):
        at = 3 + 18 * turn
        options += ["--pause", f"broker/north-1:9s@{at}s", "--kill", f"role/leader@{at + later:g}s"]
    with up(*brokers(), *COORDINATORS, level="error") as network:
        account(network, *options)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_brokers_coordinators_and_a_store_that_are_killed_at_once_cost_nothing() -> None:
    """Two brokers that may back each other, with a store, then with the leader, then a whole cluster with both."""
    together = (
        "broker/north-1+broker/north-2+store-1@3s",
        "broker/north-1+broker/south-1+role/leader@25s",
        "cluster/south+role/leader+store-2@47s",
    )
    with up(*brokers(), *COORDINATORS, *THREE, level="error") as network:
        found = account(network, *(word for each in together for word in ("--kill", each)))
    assert [len(fault["pids"]) for fault in found["faults"]] == [3, 3, 4]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stale_coordinator_or_broker_is_first_and_nothing_is_lost() -> None:
    """Asleep while the others went on; they are killed as it wakes up."""
    options = ["--pause", "coordinator-1:8s@3s", "--kill", "coordinator-2+coordinator-3@10.95s"]
    options += [
        "--pause",
        "broker/north-1:8s@30s",
        "--kill",
        "broker/north-2+broker/south-1+broker/south-2@37.95s",
    ]
    with up(*brokers(), *COORDINATORS, level="error") as network:
        account(network, *options)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_clocks_that_jump_cost_nothing(tmp_path: Path, debian_program: Callable[[str, str], str]) -> None:
    """Those of brokers and coordinators, an hour ahead, then an hour back; the store's stay as they are."""
    debian_program("faketime", "faketime")
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not libraries:
        pytest.skip("libfaketime.so.1 is missing: install the Debian package libfaketime")
    file = tmp_path / "offset"
    file.write_text("+0\n")
    variables = {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    ahead, back = (
        program(tmp_path / name, "clock", file, offset)
        for name, offset in (("ahead", "+3600"), ("back", "-3600"))
    )
    state = tmp_path / "state"  # what removes one that is not kept sleeps, and libfaketime 0.9.10 breaks that
    with up(*brokers(), *COORDINATORS, level="error", state=state, variables=variables) as network:
        options = ["--own", f"{ahead}:10s@3s", "--kill", "broker/north-1@6s"]
        options += ["--own", f"{back}:10s@28s", "--kill", "broker/south-1@31s", "--kill", "role/leader@33s"]
        account(network, *options)
