"""The pipeline and the feeder under ``tocsin up``: from a message on a topic to a result on a channel, and a kill."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.running import Heard, up

pytest.importorskip("pyspark", reason="the extra spark is not installed")
pytestmark = [pytest.mark.xdist_group("networks with spark"), pytest.mark.timeout(300)]

DEADLINE_S = 150.0
OPTIONS = (
    "brokers=" + json.dumps([{"id": "a", "cluster": "c"}]),
    "spark.master=local[2]",
    "spark.heap=1g",
    "spark.ui_port=-1",
    "pipeline.metrics_port=0",
    "feeds.metrics_port=0",
)
SCRIPT = """
CREATE DATASET Reports (kind STRING NOT NULL, level INT NOT NULL);
CREATE FEED Wire INTO Reports FROM TOPIC 'reports';
CREATE FEED Web INTO Reports FROM HTTP;
CREATE CHANNEL Alarms(kind STRING) CONTINUOUS AS
    SELECT r.level FROM NEW Reports r WHERE r.kind = :kind;
"""


class Operator:
    """Somebody at the command line, on the machine of the network."""

    def __init__(self, state: str) -> None:
        self._state = state

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "tocsin", *words, "--state", self._state]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=DEADLINE_S)

    def sql(self, text: str) -> list[dict[str, Any]]:
        done = self.run("sql", "-o", "json", "--wait", str(DEADLINE_S), text=text)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def channel(self, name: str) -> dict[str, Any]:
        done = self.run("channel", "list", "--json", "--wait", str(DEADLINE_S))
        assert done.returncode == 0, done.stderr
        return next(each for each in json.loads(done.stdout) if each["name"] == name)


def told(heard: Heard, level: int) -> bool:
    return any(json.loads(line) == {"level": level} for line in heard.lines)


def child(ready: dict[str, Any], word: str) -> psutil.Process | None:
    """The process of the network that runs this verb."""
    parent = psutil.Process(ready["pids"]["broker/a"]).parent()
    assert parent is not None
    return next((each for each in parent.children() if each.cmdline()[-1:] == [word]), None)


@pytest.mark.parametrize("kill", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_published_messages_come_out_of_a_channel_after_a_pipeline_kill(
    tmp_path: Path, kill: bool, debian_program: Callable[[str, str], str]
) -> None:
    mosquitto_pub, mosquitto_sub = (
        debian_program(name, "mosquitto-clients") for name in ("mosquitto_pub", "mosquitto_sub")
    )
    with up(*(word for each in OPTIONS for word in ("--set", each)), level="error", spark=True) as ready:
        broker, operator = ready["brokers"][0], Operator(ready["state"])
        at = ["-h", broker["host"], "-p", str(broker["port"])]

        def publish(level: int) -> None:
            words = ["-q", "1", "-t", "reports", "-m", json.dumps({"kind": "flood", "level": level})]
            subprocess.run([mosquitto_pub, *at, *words], check=True, timeout=30)

        publish(0)  # nobody who publishes waits for Spark; there is no feed for it yet
        operator.sql(SCRIPT)
        heard = Heard(
            [
                mosquitto_sub,
                *at,
                "-q",
                "1",
                "-t",
                "$channel/Alarms/flood",
            ]
        )
        try:
            wait_for(lambda: operator.channel("Alarms")["subscriptions"] == 1, "the subscription")
            publish(1)
            wait_for(lambda: told(heard, 1), "the first result")
            with urllib.request.urlopen(request(ready), timeout=30) as answer:
                assert answer.status in (200, 202)
            wait_for(lambda: told(heard, 2), "the result over HTTP")

            assert 'tocsin_channel_executions_total{channel="Alarms"}' in figures(ready, "pipeline")
            assert 'tocsin_feeder_records_total{feed="Web"} 1' in figures(ready, "feeder")
            if kill:
                killed = child(ready, "pipeline")
                assert killed is not None
                os.kill(killed.pid, signal.SIGKILL)
            publish(3)
            wait_for(lambda: told(heard, 3), "a result after that")

            (tmp_path / "more.csv").write_text("kind,level\nflood,4\n")
            done = operator.run("dataset", "load", str(tmp_path / "more.csv"), "--into", "Reports")
            assert done.returncode == 0, done.stderr
            wait_for(lambda: told(heard, 4), "a result of a file")
        finally:
            heard.stop()
        rows = operator.sql("SELECT level, count(*) AS n FROM Reports GROUP BY level ORDER BY level")
        assert rows == [{"level": level, "n": 1} for level in (1, 2, 3, 4)]
        wrong = operator.run("sql", "-c", "SELECT level FROM Report")
        assert wrong.returncode == 1 and "Reports" in wrong.stderr and "^" in wrong.stderr
        family = psutil.Process(os.getpid()).children(recursive=True)
    _, alive = psutil.wait_procs(family, timeout=DEADLINE_S)
    assert not alive
    assert not Path(ready["state"]).exists()


def figures(ready: dict[str, Any], word: str) -> str:
    """What a process tells a collector, at whichever of its ports that is."""
    process = child(ready, word)
    assert process is not None
    ports = [each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    found = []
    for port in ports:
        url = f"http://127.0.0.1:{port}/metrics"
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            urllib.request.urlopen(url, timeout=30) as answer,
        ):
            found.append(answer.read().decode())
    return "".join(found)


def request(ready: dict[str, Any]) -> urllib.request.Request:
    feeder = ready["feeder"]
    return urllib.request.Request(
        f"http://{feeder['host']}:{feeder['http_port']}/feeds/Web",
        data=json.dumps({"kind": "flood", "level": 2}).encode(),
        headers={"content-type": "application/json"},
    )


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S:g} s"
        time.sleep(0.1)
