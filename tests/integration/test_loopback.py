"""A network without settings listens on this machine only: every socket of every process of it, Spark's too."""

from __future__ import annotations

import ipaddress
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.running import up
from tocsin.runtime.network.store_access import add_user

pytestmark = pytest.mark.timeout(300)

DEADLINE_S = 150.0
ONE_BROKER = "brokers=" + json.dumps([{"id": "a", "cluster": "c", "ws_port": 0}, {"id": "b", "cluster": "d"}])


def listening(family: list[psutil.Process]) -> dict[str, set[str]]:
    """The addresses on which each process listens, by its last words."""
    found: dict[str, set[str]] = {}
    for process in family:
        try:
            words = " ".join(process.cmdline()[-2:])[-60:]
            sockets = process.net_connections("inet")
        except psutil.NoSuchProcess:
            continue
        for each in sockets:
            bound = each.status == psutil.CONN_LISTEN or (each.status == psutil.CONN_NONE and not each.raddr)
            if bound:
                found.setdefault(f"{process.pid} {words}", set()).add(each.laddr.ip)
    return found


def beyond_loopback(found: dict[str, set[str]]) -> dict[str, set[str]]:
    def loopback(address: str) -> bool:
        parsed = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(parsed, "ipv4_mapped", None)
        return (mapped or parsed).is_loopback

    return {name: wrong for name, ips in found.items() if (wrong := {ip for ip in ips if not loopback(ip)})}


def family_of(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def parent_of(pids: dict[str, int]) -> int:
    parent = psutil.Process(pids["broker/a"]).parent()
    assert parent is not None
    return parent.pid


def test_every_process_without_spark_listens_on_loopback_alone() -> None:
    with up("--set", ONE_BROKER, "--set", "nats.servers=3") as ready:
        found = listening(family_of(parent_of(ready["pids"])))
    assert len(found) >= 5, found  # three servers, two brokers
    assert beyond_loopback(found) == {}


@pytest.mark.xdist_group("networks with spark")
def test_spark_listens_on_loopback_alone_also_when_its_pages_are_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    for part in ("datasets", "spark", "logs", "nats"):  # of an older version, that left them open
        (state / part).mkdir()
        (state / part).chmod(0o755)
    key = add_user(state, "ann")
    rules = tmp_path / "rules.toml"
    rules.write_text('[[sql]]\nallow = "query"\nnames = ["Reports"]\nusers = ["ann"]\n')
    options = (
        "spark.master=local[2]",
        "spark.heap=1g",
        "spark.ui_port=0",
        "pipeline.metrics_port=0",
        f"access.rules={rules}",
    )
    sets = [word for each in (ONE_BROKER, *options) for word in ("--set", each)]
    with up(*sets, level="error", spark=True, state=state) as ready:
        asked = [
            sys.executable,
            "-P",
            "-m",
            "tocsin",
            "sql",
            "--state",
            str(state),
            "--wait",
            str(DEADLINE_S),
        ]
        script = "CREATE DATASET Reports (n INT NOT NULL); SELECT count(*) AS n FROM Reports"
        done = subprocess.run([*asked, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr
        as_ann = [*asked, "--user", "ann", "--key", str(key)]
        for text, words in (
            ("SELECT count(*) AS n FROM Reports", ""),
            ("DROP DATASET Reports", "ann may not drop"),
        ):
            done = subprocess.run([*as_ann, "-c", text], capture_output=True, text=True, timeout=DEADLINE_S)
            assert done.returncode == bool(words) and words in done.stderr, done.stderr
        lines = (state / "audit" / "audit.log").read_text().splitlines()
        noted = [(each["who"], each["action"], each["outcome"]) for each in map(json.loads, lines)]
        assert noted == [
            ("operator", "define", "done"),
            ("operator", "query", "done"),
            ("ann", "query", "done"),
            ("ann", "drop", "refused"),
        ]
        family = family_of(parent_of(ready["pids"]))
        found = listening(family)
        assert any("java" in Path(each.exe()).name for each in family if each.is_running())
        java = [name for name in found if "pyspark-shell" in name]
        assert java and beyond_loopback(found) == {}, found
        for part in ("datasets", "spark", "logs", "nats"):
            mode = stat.S_IMODE(os.stat(state / part).st_mode)
            assert mode == 0o700, f"{part}: {mode:o}"
