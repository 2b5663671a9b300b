"""The store fails: some of its servers, or all; a stale one is first; a disk is full, or its fsync fails or is slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.integration.running import up
from tests.integration.trouble import FEW, account, brokers, program
from tests.store.test_no_room import small_disk

THREE = ("--set", "nats.servers=3")
# Faults that nobody notices, amid and right behind one that lasts from 3 to 13 s: how soon all hear again from there.
PROBES = ("--pause", "coordinator-1:100ms@8s", "--pause", "coordinator-1:100ms@13500ms")
SERVERS = pytest.mark.parametrize(
    ("options", "store"), [((), "store-1"), (THREE, "store-2")], ids=["one", "three"]
)


def test_the_only_store_is_killed_and_nothing_is_lost() -> None:
    with up(*brokers(FEW), level="error") as network:
        account(network, "--kill", "store-1@1s")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["kill", "pause"])
def test_one_two_and_all_of_three_stores_are_lost(kind: str) -> None:
    """Without two of them nothing is acknowledged; what was is there when they are back."""
    lasting = ":8s" if kind == "pause" else ""
    lost = ("store-1", "store-2+store-3", "role/store")
    faults = [f"{each}{lasting}@{3 + 22 * turn}s" for turn, each in enumerate(lost)]
    with up(*brokers(FEW), *THREE, level="error") as network:
        account(network, *(word for each in faults for word in (f"--{kind}", each)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stale_store_is_first_and_nothing_is_lost() -> None:
    """It was away while the others went on; they are killed as it comes back, each of the three once."""
    rounds = (("store-1", "store-2+store-3"), ("store-2", "store-1+store-3"), ("store-3", "store-1+store-2"))
    options: list[str] = []
    for turn, (stale, others) in enumerate(rounds):
        at = 3 + 25 * turn
        options += ["--pause", f"{stale}:6s@{at}s", "--kill", f"{others}@{at + 5.95:g}s"]
    with up(*brokers(FEW), *THREE, level="error") as network:
        account(network, *options)


@pytest.mark.slow
@pytest.mark.timeout(600)
@SERVERS
def test_a_full_disk_costs_time_and_nothing_else(tmp_path: Path, options: Sequence[str], store: str) -> None:
    """Room is made after a while, and the server restarted."""
    (tmp_path / "state" / "nats").mkdir(parents=True)
    with (
        small_disk(tmp_path / "state" / "nats" / store, "1g") as disk,
        up(*brokers(FEW), *options, level="error", state=tmp_path / "state") as network,
    ):
        own = program(tmp_path / "fill", "disk", disk, network["state"], store)
        found = account(network, "--own", f"{own}:10s@3s", *PROBES)
    if store == "store-1":
        assert found["totals"]["refused"], "it was never full"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["error=EIO", "delay_exit=300000"], ids=["fails", "is-slow"])
@SERVERS
def test_an_fsync_that_fails_or_is_slow_costs_time_and_nothing_else(
    tmp_path: Path,
    debian_program: Callable[[str, str], str],
    options: Sequence[str],
    store: str,
    how: str,
) -> None:
    strace = debian_program("strace", "strace")
    pidfile = tmp_path / "tracer"
    with up(*brokers(FEW), *options, level="error") as network:
        own = program(tmp_path / "fsync", "fsync", strace, how, network["state"], store, pidfile)
        lasting = 40 if options and "error" in how else 10  # with three, long enough to see the others go on
        account(network, "--own", f"{own}:{lasting}s@3s", *PROBES)
    trace = Path(f"{pidfile}.trace").read_text("utf-8", "replace")
    touched = trace.count("(INJECTED)") + trace.count("(DELAYED)")
    print(f"fsyncs that were touched: {touched}")
    assert touched, "none was"
