"""The same pipeline on a real Spark cluster: a master and two workers on loopback, which are killed in part."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.faults import Traps, kill
from tests.integration.pipeline import DEADLINE_S, PipelineProcess, talking
from tests.integration.ports import free_ports
from tocsin.runtime.faults import kill_points as points
from tocsin.store.servers.testing import LocalServers

pyspark = pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")

from tocsin.pipeline.spark.java import find_java  # noqa: E402
from tocsin.pipeline.spark.session import cluster_secret  # noqa: E402

pytestmark = [pytest.mark.xdist_group("networks with spark"), pytest.mark.slow, pytest.mark.timeout(1_200)]

HOST = "127.0.0.1"
SCRIPT = """
CREATE DATASET Reports (n BIGINT NOT NULL, who STRING);
CREATE FEED Wire INTO Reports FROM HTTP;
CREATE CHANNEL About(who STRING) CONTINUOUS AS SELECT r.n FROM NEW Reports r WHERE r.who = :who ORDER BY r.n;
"""


class Cluster:
    """A standalone cluster from the Python package, which knows the pipeline's secret as the how-to says."""

    def __init__(self, directory: Path, secret: str) -> None:
        self._directory = directory
        self._properties = directory / "spark.properties"
        self._properties.write_text(
            f"spark.authenticate=true\nspark.authenticate.secret={secret}\nspark.network.crypto.enabled=true\n"
        )
        self._properties.chmod(0o600)
        self._home = Path(pyspark.__file__).parent
        (self._port,) = free_ports(1)
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
            "--properties-file",
            str(self._properties),
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
                "--properties-file",
                str(self._properties),
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

    def executor_of(self, python: int) -> psutil.Process:
        """The executor whose Python worker that is."""
        for process in psutil.Process(python).parents():
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                return process
        raise AssertionError(f"{python} has no executor")

    def kill_worker_of(self, executor: psutil.Process) -> None:
        """With its executors, and their Python workers."""
        ancestors = {each.pid for each in executor.parents()}
        worker = next(each for each in self.workers if each.pid in ancestors)
        family = psutil.Process(worker.pid).children(recursive=True)
        os.killpg(worker.pid, signal.SIGKILL)
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        worker.wait(DEADLINE_S)

    def kill_master(self) -> None:
        assert self._master is not None
        os.killpg(self._master.pid, signal.SIGKILL)
        self._master.wait(DEADLINE_S)

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
    (tmp_path / "state").mkdir()
    made = Cluster(directory, cluster_secret(tmp_path / "state" / "spark-secret"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def test_on_a_cluster_that_loses_workers_each_result_is_told_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Lost are, each in the middle of a task: a Python worker, an executor, a worker with all that it started; and a
    master, without which those who have their executors go on."""
    traps = Traps(tmp_path / "traps")
    conf = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "2",
        **{f"spark.executorEnv.{name}": value for name, value in traps.variables(points.IN_TASK).items()},
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

                async def feed() -> None:
                    nonlocal total
                    await talk.feed("Wire", *({"n": total + n, "who": "ann"} for n in range(20)))
                    total += 20

                async def caught(variable: str) -> int:
                    traps.arm(variable, points.IN_TASK)
                    await feed()
                    return await asyncio.to_thread(traps.sprung, variable, points.IN_TASK)

                await feed()
                await talk.until_results(total)
                await caught(points.KILL)
                await talk.until_results(total)
                python = await caught(points.STOP)
                cluster.executor_of(python).kill()
                kill(python)
                await talk.until_results(total)
                cluster.kill_worker_of(cluster.executor_of(await caught(points.STOP)))
                await talk.until_results(total)
                cluster.kill_master()
                await feed()
                found = await talk.until_results(total)
                numbers = [json.loads(each.payload)["n"] for each in found]
                assert Counter(numbers) == Counter(range(total))
                assert numbers == sorted(numbers), "in the order that the query says"
        finally:
            pipeline.stop()
