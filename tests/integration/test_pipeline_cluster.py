"""The same pipeline on a real Spark cluster: a master and two workers on loopback, one of which is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.pipeline import DEADLINE_S, PipelineProcess, talking
from tocsin.store.testing import LocalServers

pyspark = pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")

from tocsin.pipeline.java import find_java  # noqa: E402

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow, pytest.mark.timeout(1_200)]

HOST = "127.0.0.1"
SCRIPT = """
CREATE DATASET Reports (n BIGINT NOT NULL, who STRING);
CREATE FEED Wire INTO Reports FROM HTTP;
CREATE CHANNEL About(who STRING) CONTINUOUS AS SELECT r.n FROM NEW Reports r WHERE r.who = :who ORDER BY r.n;
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class Cluster:
    """A standalone cluster from the Python package."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._home = Path(pyspark.__file__).parent
        self._port = free_port()
        self.url = f"spark://{HOST}:{self._port}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java(os.environ, self._directory).home),
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with (self._directory / f"{name}.log").open("wb") as output:
            return subprocess.Popen(
                [str(self._home / "bin" / "spark-class"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    def start(self) -> None:
        deploy = "org.apache.spark.deploy"
        self._master = self._start(
            "master",
            f"{deploy}.master.Master",
            "--host",
            HOST,
            "--port",
            str(self._port),
            "--webui-port",
            "0",
        )
        self._await("master.log", "New state: ALIVE")
        for number in range(2):
            work = str(self._directory / f"work-{number}")
            options = (
                "--host",
                HOST,
                "--cores",
                "1",
                "--memory",
                "700m",
                "--webui-port",
                "0",
                "--work-dir",
                work,
            )
            self.workers.append(
                self._start(f"worker-{number}", f"{deploy}.worker.Worker", *options, self.url)
            )
            self._await(f"worker-{number}.log", "Successfully registered with master")

    def _await(self, file: str, words: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while words not in (text := (self._directory / file).read_text("utf-8", "replace")):
            assert time.monotonic() < deadline, text[-3_000:]
            time.sleep(0.1)

    def kill_worker(self, number: int) -> None:
        """With its executor, and that one's Python workers."""
        family = psutil.Process(self.workers[number].pid).children(recursive=True)
        assert family, "the worker has no executor"
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.workers[number].wait(DEADLINE_S)

    def stop(self) -> None:
        for process in (*self.workers, self._master):
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    made = Cluster(directory)
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def test_on_a_cluster_that_loses_a_worker_each_result_is_told_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    conf = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "2",
    }
    state = tmp_path / "state"
    with LocalServers(tmp_path / "nats") as servers:
        pipeline = PipelineProcess(
            servers, state, [f"spark.master={cluster.url}", f"spark.conf={json.dumps(conf)}"]
        )
        pipeline.start()
        try:
            async with talking(servers, state) as talk:
                await talk.sql(SCRIPT)
                await talk.subscribe("About", "ann")
                assert (await talk.ask("status"))["spark"]["master"] == cluster.url
                total = 0
                for step in range(6):
                    await talk.feed("Wire", *({"n": total + n, "who": "ann"} for n in range(20)))
                    total += 20
                    if step == 2:
                        cluster.kill_worker(0)
                    else:
                        await talk.until_results(total)
                    await asyncio.sleep(0.2)
                found = await talk.until_results(total)
                assert Counter(json.loads(each.payload)["n"] for each in found) == Counter(range(total))
                numbers = [json.loads(each.payload)["n"] for each in found]
                assert numbers == sorted(numbers), "in the order that the query says"
        finally:
            pipeline.stop()
