"""A real Kafka of one server for tests: fetched once, by Spark's own resolver of Maven packages, into a cache."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tocsin.pipeline.spark.java import find_java

PACKAGE = "org.apache.kafka:kafka_2.13:3.9.1"
FETCH_S = 400.0
START_S = 90.0
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{quorum}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Kafka:
    """The server: started and killed at will, on what is left of the last time."""

    def __init__(self, directory: Path, port: int, quorum: int) -> None:
        found = importlib.util.find_spec("pyspark")
        assert found is not None and found.origin is not None
        self._spark = Path(found.origin).parent
        self._directory = directory
        self._java = find_java(os.environ, directory / "cache")
        self._settings = directory / "server.properties"
        self._settings.write_text(SETTINGS.format(port=port, quorum=quorum, data=directory / "data"))
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{port}"

    def fetch(self, cache: Path) -> None:
        """The jars, from the cache or from Maven's repository; Spark knows how."""
        self._jars = cache / "jars"
        if not any(self._jars.glob("*kafka_2.13-*.jar")):
            nothing = self._directory / "nothing.py"
            nothing.write_text("")
            command = [str(self._spark / "bin" / "spark-submit"), "--conf", f"spark.jars.ivy={cache}"]
            subprocess.run(
                [*command, "--packages", PACKAGE, str(nothing)],
                env={**os.environ, "JAVA_HOME": str(self._java.home), "SPARK_HOME": str(self._spark)},
                capture_output=True,
                timeout=FETCH_S,
                check=True,
            )
        tool = "kafka.tools.StorageTool"
        identity = self._run(tool, "random-uuid").split()[-1]
        self._run(tool, "format", "-t", identity, "-c", str(self._settings))

    def _command(self, *words: str) -> list[str]:
        paths = f"{self._jars}/*:{self._spark}/jars/*"
        return [str(self._java.home / "bin" / "java"), "-Xmx512m", "-cp", paths, *words]

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words), capture_output=True, text=True, timeout=START_S, check=True
        )
        return done.stdout

    def start(self) -> None:
        with (self._directory / "kafka.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)), stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1.0):
                return
            assert self._process.poll() is None and time.monotonic() < deadline, "Kafka did not start"
            time.sleep(0.1)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def running_kafka(directory: Path, port: int, quorum: int) -> Iterator[Kafka]:
    kafka = Kafka(directory, port, quorum)
    kafka.fetch(Path.home() / ".cache" / "tocsin-tests" / "kafka")
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.kill()
