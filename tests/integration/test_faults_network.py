"""The network between live processes fails: cut in part, cut again and again, lossy, one-way, half open.

Partitions are made by the processes themselves (``runtime.faults.partition``), everything else by the kernel, packet by
packet, in a network namespace that holds a whole network and its clients.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.running import up
from tests.integration.spaces import loses_packets, space
from tests.integration.trouble import FEW, account, brokers, program

CLUSTERS = brokers()


def test_a_broker_whose_way_to_the_store_flaps_costs_nothing() -> None:
    """Cut for 0.4 s and there for 0.6 s, four times."""
    flapping = [word for at in range(1, 5) for word in ("--partition", f"broker/north-1~store:400ms@{at}s")]
    with up(*brokers(FEW), level="error") as network:
        found = account(network, *flapping)
    assert len(found["faults"]) == 4


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_partitions_of_every_shape_cost_nothing() -> None:
    """One from all; halves across clusters; a cluster; brokers from the store only; the store from all brokers."""
    halves = "broker/north-1+broker/south-1~broker/north-2+broker/south-2"
    shapes = (
        "broker/north-1:6s@2s",
        f"{halves}:6s@16s",
        "broker/north-1+broker/south-1:6s@30s",
        "cluster/north~cluster/south:6s@44s",
        "broker/north-1+broker/south-2~store:6s@58s",
        "role/broker~store:4s@72s",
        "coordinator-1~store:4s@84s",
    )
    with up(*CLUSTERS, level="error") as network:
        found = account(network, *(word for shape in shapes for word in ("--partition", shape)))
    assert len(found["faults"]) == len(shapes)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_partitions_that_flap_cost_nothing() -> None:
    """In rhythms below and above what it takes to be suspected, of a broker and of a cluster."""
    quick = [f"broker/north-1:700ms@{2 + 1.5 * turn}s" for turn in range(8)]
    slow = [f"cluster/north:2500ms@{20 + 5 * turn}s" for turn in range(4)]
    with up(*CLUSTERS, level="error") as network:
        account(network, *(word for each in quick + slow for word in ("--partition", each)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_packets_that_are_lost_cost_time_and_nothing_else(
    tmp_path: Path, debian_program: Callable[[str, str], str]
) -> None:
    """1, 10 and 30 % of all packets: between brokers, to the store, and to clients."""
    nft = debian_program("nft", "nftables")
    own = [
        word
        for percent, at in ((1, "2s"), (10, "14s"), (30, "30s"))
        for word in ("--own", f"{program(tmp_path / f'lose-{percent}', 'packets', nft, percent)}:10s@{at}")
    ]
    with space() as within:
        loses_packets(within, nft)
        with up(*brokers(FEW), level="error", within=within) as network:
            account(network, *own, within=within)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("way", "seconds"), [("out", 8), ("in", 8), ("both", 40)])
def test_connections_that_pass_one_way_or_are_half_open_cost_nothing(
    tmp_path: Path, debian_program: Callable[[str, str], str], way: str, seconds: int
) -> None:
    """Everything that a broker has open, to the store, other brokers and clients; what is dialled anew is not touched.

    Nobody is told: no end, no reset. ``both`` lasts longer than it may take anybody to notice.
    """
    nft = debian_program("nft", "nftables")
    with space() as within:
        loses_packets(within, nft)
        with up(*brokers(FEW), level="error", within=within) as network:
            own = program(tmp_path / "cut-flows", "flows", nft, network["pids"]["broker/north-1"], way)
            account(network, "--own", f"{own}:{seconds}s@3s", within=within)
