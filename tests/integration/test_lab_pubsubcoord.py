"""``tocsin lab pubsubcoord`` in its quick form: networks, delays and failures are real; figures are not looked at."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tocsin_labs.pubsubcoord import places, quota
from tocsin_labs.pubsubcoord.crowd import Job, Topic
from tocsin_labs.pubsubcoord.overlay import Leg, Paths, overlay
from tocsin_labs.pubsubcoord.plan import Load
from tocsin_labs.pubsubcoord.wan import working

DEADLINE_S = 170.0
COMMAND = (sys.executable, "-m", "tocsin", "lab", "pubsubcoord")


def lab(out: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    command = [*COMMAND, "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    written = out / "results.json"
    return done, json.loads(written.read_text()) if written.exists() else {}


def test_messages_take_the_emulated_delays_and_local_ones_stay_in_their_lan(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--quick", "--only", "locality")
    assert done.returncode == 0, done.stderr
    assert "not to be compared" in " ".join(done.stdout.split())
    assert [each["system"] for each in found["points"]] == ["tocsin", "nats"]
    for each in found["points"]:
        heard = each["heard"]
        assert heard["sent"] > 0
        assert (heard["lost"], heard["doubled"], heard["disordered"]) == (0, 0, 0)
        assert heard["local_ms"]["p50"] >= 20
        assert heard["across_ms"]["p50"] >= 100
    (kept,) = found["kept"]
    for_each = (kept["local_bytes_s"] - kept["rest_bytes_s"]) / kept["messages_s"]
    assert for_each < 5, "a message has 64 bytes, so none was on a link"


def test_a_drained_hub_loses_nothing_and_a_killed_one_is_replaced(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--quick", "--only", "failure")
    assert done.returncode == 0, done.stderr
    assert [each["way"] for each in found["failures"]] == ["moved", "drained", "killed"]
    for each in found["failures"]:
        assert each["part"] > 0
        assert each["heard"]["doubled"] == 0
        assert each["heard"]["bins"][-1] > 0, "messages still come at the end"
    for planned in found["failures"][:2]:
        assert (planned["heard"]["lost"], planned["heard"]["disordered"]) == (0, 0)
    assert (
        "| Failure, a hub is killed | longest silence of a topic (ms) |"
        in (tmp_path / "summary.md").read_text()
    )


def test_every_join_comes_into_force(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--quick", "--only", "joining")
    assert done.returncode == 0, done.stderr
    assert [each["told"]["joins"] for each in found["joined"]] == [100, 200]
    for each in found["joined"]:
        assert each["told"]["missing"] == 0
        assert each["log_bytes"] > 0


def test_topics_cost_what_is_told_and_cross_with_the_delays(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--quick", "--only", "topics")
    assert done.returncode == 0, done.stderr
    for each in found["weighed"]:
        heard = each["heard"]
        assert (heard["lost"], heard["doubled"], heard["disordered"]) == (0, 0, 0)
        assert heard["all_ms"]["p50"] >= 100
        assert each["hub"]["share"] > 0
    assert [each["size"]["hubs"] for each in found["crowded"]] == [3, 3]
    assert "| Figure 7d, a message |" in (tmp_path / "summary.md").read_text()


@pytest.mark.skipif(
    bool(places.problem()), reason="network namespaces with TUN devices need root and /dev/net/tun"
)
async def test_brokers_in_places_of_their_own_have_the_delay_of_their_links() -> None:
    before = os.readlink(places.OWN)
    async with overlay(1, seed=1) as network:
        near, far = Leg(0.005), Leg(0.040)
        await network.change([Paths(near, near, far)])
        job = Job(
            entrances=network.entrances, topics=(Topic("t", 0, 1),), load=Load(warm_s=0.2, settle_s=0.5), lag_s=0.0,
            spaces=network.lan_spaces,
        )  # fmt: skip
        async with working(job) as running:
            await running.begin()
            await asyncio.sleep(1.0)
            heard = await running.end()
        (sent,) = await network.sent()
    assert heard.sent and not heard.lost
    assert heard.all_ms.p50 >= 45
    assert sent.relayed > heard.sent * 64
    assert os.readlink(places.OWN) == before


@pytest.mark.slow
@pytest.mark.skipif(
    bool(places.problem()), reason="network namespaces with TUN devices need root and /dev/net/tun"
)
def test_a_budget_takes_the_direct_link_and_one_path_the_hub(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--quick", "--only", "deadline", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert [each["kind"] for each in found["flows"]] == [*["single"] * 4, *["twin"] * 2, *["two"] * 2]
    for each in found["flows"]:
        up, down = each["paths"]["up"], each["paths"]["down"]
        assert each["own"]["lost"] == each["own"]["doubled"] == 0
        if each["kind"] == "single":
            assert each["own"]["all_ms"]["p50"] >= 1e3 * (up["delay_s"] + down["delay_s"])
        assert each["sent"]["packets"] > 0
    worst = [each for each in found["flows"] if each["case"] == 2]
    assert worst[1]["own"]["all_ms"]["p50"] < worst[0]["own"]["all_ms"]["p50"]


@pytest.mark.slow
@pytest.mark.skipif(
    quota.place() is None,
    reason="holding a process to a share of a core needs root and control groups that can be written",
)
def test_hubs_are_held_to_their_share_and_added_under_load(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--quick", "--only", "hubs")
    assert done.returncode == 0, done.stderr
    one, two = found["stands"]
    assert (one["hubs"], two["hubs"]) == (1, 2)
    assert two["added"]["windows"] and (two["added"]["doubled"], two["added"]["disordered"]) == (0, 0)
    for each in (one, two):
        assert all(step["hub"]["share"] < 0.2 for step in each["steps"])
    assert len(found["clouds"]) == 2


def test_a_bad_option_is_refused_in_words(tmp_path: Path) -> None:
    done, found = lab(tmp_path, "--only", "nothing")
    assert done.returncode == 2
    assert "locality" in done.stderr and "Traceback" not in done.stderr
    assert found == {}
