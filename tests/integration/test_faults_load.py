"""Too much at once: everybody comes back in one moment, or more is published than can be taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from tests.integration.running import up
from tests.integration.trouble import FEW, account, brokers

SAMPLE_S = 0.5
BROKER_MAX_BYTES = 256 << 20  # resident, of a broker or coordinator; they begin with some 50 MB
CLIENTS = 600
CROWDS = (40, 80, 160, 320)  # subscribers, round by round


@contextmanager
def resident(network: dict[str, Any]) -> Iterator[list[int]]:
    """The most that any broker, and coordinator, of the network has resident, sample by sample."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        parent = psutil.Process(network_parent(network))
        while not over.wait(SAMPLE_S):
            most = 0
            for child in parent.children():
                try:
                    if "tocsin" in child.cmdline():
                        most = max(most, child.memory_info().rss)
                except psutil.Error:
                    continue  # ended, or not ours to look at
            seen.append(most)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


def network_parent(network: dict[str, Any]) -> int:
    return int(psutil.Process(network["pids"]["broker/north-1"]).ppid())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_storm_of_clients_that_come_back_costs_nothing() -> None:
    """Every broker is killed at once, and so all clients drop at once; then one broker, and a third of them does."""
    load = ("--subscribers", str(CLIENTS), "--publishers", "3", "--rate", "0.5")
    with up(*brokers(FEW), level="error") as network, resident(network) as seen:
        found = account(
            network, "--kill", "role/edge@3s", "--kill", "broker/north-2@40s", load=load, settle_s=90
        )
    assert found["faults"][0]["clients"] >= CLIENTS, "not everybody was there"
    assert max(seen) < BROKER_MAX_BYTES, f"{max(seen) >> 20} MiB"


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_half_a_minute_of_double_load_loses_nothing_and_keeps_memory_bounded() -> None:
    """Brokers and a store run a fifth of the time. How much they can take then is up to the machine.

    Publishers already publish at the highest rate that the load allows, so each round doubles the work of a message
    instead, until publishers must skip half of their turns.
    """
    for subscribers in CROWDS:
        load = ("--subscribers", str(subscribers), "--publishers", "20", "--rate", "100")
        with up(*brokers(FEW), level="error") as network, resident(network) as seen:
            found = account(network, "--slow", "role/broker+store-1:30s@2s", load=load, settle_s=120)
        assert max(seen) < BROKER_MAX_BYTES, f"{max(seen) >> 20} MiB"
        print(f"{subscribers} subscribers, resident at most: {max(seen) >> 20} MiB")
        if found["skipped"] >= found["totals"]["published"]:
            return
    pytest.fail(f"this machine takes half of the load even with {CROWDS[-1]} subscribers: add a larger crowd")
