"""``tocsin chaos`` against a real network: what it breaks recovers, and the account is right."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.integration.running import up
from tests.integration.test_elsewhere import address
from tocsin.chaos.workload import make
from tocsin.client import AsyncClient
from tocsin.client.address import Server

BROKERS = json.dumps([{"id": f"north-{n}", "cluster": "north"} for n in (1, 2, 3)])
OPTIONS = ("--set", f"brokers={BROKERS}")
LOAD = ("--subscribers", "16", "--publishers", "3", "--rate", "4")
DEADLINE_S = 150.0


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, Any]]:
    with up(*OPTIONS, level="error") as line:
        yield line


def command(network: dict[str, Any], *options: str) -> list[str]:
    return [sys.executable, "-m", "tocsin", "chaos", "--state", network["state"], "--json", *options]


def chaos(network: dict[str, Any], *options: str) -> tuple[dict[str, Any], str]:
    """Run it to its end: the account, and what it told meanwhile."""
    done = subprocess.run(
        command(network, *LOAD, *options), capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found, done.stderr


def test_a_killed_a_paused_and_a_cut_off_broker_cost_nothing(network: dict[str, Any]) -> None:
    account, told = chaos(
        network,
        *("--kill", "broker/north-1@1s", "--pause", "broker/north-2:2s@4s"),
        *("--partition", "broker/north-3~store:1s@8s"),
    )
    totals, faults = account["totals"], account["faults"]
    assert [(each["kind"], each["target"]) for each in faults] == [
        ("kill", "broker/north-1"),
        ("pause", "broker/north-2"),
        ("partition", "broker/north-3"),
    ]
    assert faults[0]["pids"] == {"broker/north-1": network["pids"]["broker/north-1"]}
    assert all(each["recovery_s"] is not None and each["clients"] for each in faults)
    assert told.count("all hear again after") == 3
    assert account["kept"] and totals["acknowledged"] and totals["delivered"] >= totals["expected"]
    for figure in ("lost", "repeated_once", "out_of_order", "unrecovered", "strange"):
        assert totals[figure] == 0, figure
    assert faults[1]["recovery_s"] > 0


def test_ctrl_c_heals_everything_and_gives_the_account(network: dict[str, Any]) -> None:
    options = (*LOAD, "--pause", "broker/north-3:300s@1s")
    running = subprocess.Popen(
        command(network, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None and running.stderr is not None
    with running:
        for line in running.stderr:
            if "pause broker/north-3" in line:
                break
        broker = psutil.Process(network["pids"]["broker/north-3"])
        deadline = time.monotonic() + DEADLINE_S
        while broker.status() != psutil.STATUS_STOPPED:  # it is said before it is done
            assert time.monotonic() < deadline
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, told = running.communicate(timeout=DEADLINE_S)
    account = json.loads(out)
    assert broker.status() != psutil.STATUS_STOPPED
    assert running.returncode == 0 and account["cut_short"], told
    assert account["totals"]["lost"] == 0 and account["faults"][0]["recovery_s"] is not None


async def test_a_message_that_comes_twice_at_qos_2_is_found(network: dict[str, Any]) -> None:
    """Somebody else publishes the number of a message again, where it must come once."""
    running = await asyncio.create_subprocess_exec(
        *command(network, *LOAD, "--minutes", "0.1"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        run = (await running.stderr.readline()).split()[1].rstrip(b":").decode()
        stream = next(each for each in make(run, publishers=3, subscribers=16).streams if each.qos == 2)
        async with AsyncClient([Server(*address(network, "north-1"))]) as intruder:
            heard = await intruder.subscribe(stream.topic)
            await intruder.publish(stream.topic, (await heard.get()).payload, qos=2)
        out, told = await running.communicate()
    account = json.loads(out)
    assert running.returncode == 1 and not account["kept"], told
    assert account["totals"]["repeated_once"] > 0 and account["totals"]["lost"] == 0
    assert any("more than once, at QoS 2" in words for words in account["totals"]["examples"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_five_minutes_of_everything_keep_every_promise(seed: int) -> None:
    """Two clusters, three coordinators, and whatever the seed chooses of all parts and kinds."""
    sets = ("--set", "coordinators=3")
    with up(*sets, level="error") as line:
        done = subprocess.run(
            command(line, "--random", "--seed", str(seed), "--minutes", "5", "--every", "5s"),
            capture_output=True,
            text=True,
            timeout=800,
        )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
