"""Spark, started and stopped: one Java beside this process, with its output in a file of its own.

The Java runs on a leash (``runtime.network.leash``), and its standard input is a pipe from this process: however this
process ends, the Java ends too. Nothing that Spark says reaches the terminal; it is in ``spark.log``, whose last line
is quoted if Spark does not start. ``spark.master`` may be ``local[…]`` or any cluster: the way is the same.

A local Spark listens on loopback alone. On a cluster Spark's processes prove to each other that they belong together
and encrypt what they send and spill. YARN and Kubernetes give their executors the secret; of a standalone cluster the
operator gives it to the master and the workers (``cluster_secret``).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tocsin import config
from tocsin.errors import DirectoryUnusable, OperatorError, TocsinError
from tocsin.pipeline.spark import class_archive as archive
from tocsin.pipeline.spark.java import Java, find_java, hold_back_compilers
from tocsin.runtime.extra import check_installed
from tocsin.runtime.network import leash
from tocsin.runtime.network.child_output import BoundedFile, LastLine
from tocsin.runtime.network.directory import make_private, write_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.02
LOOPBACK: Final = "127.0.0.1"
SECRET_BYTES: Final = 32
STOP_S: Final = 5.0  # for the Java to end by itself; then it is killed
LOG4J: Final = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.context.name = org.apache.spark.sql.catalyst.trees.SQLQueryContextLogger
logger.context.level = off
logger.plans.name = SQLQueryContextLogger
logger.plans.level = off
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.host.name = org.apache.spark.util.Utils
logger.host.level = error
logger.codegen.name = org.apache.spark.sql.catalyst.util.SparkStringUtils
logger.codegen.level = error
"""


class SparkFailed(TocsinError):
    """Spark did not start, or has ended."""

    fault = "environment"
    retryable = True

    def __init__(self, problem: str, log: Path) -> None:
        self.problem = problem
        super().__init__(f"Spark {problem}; see {log}")


class Options(msgspec.Struct, frozen=True):
    """The Java to start, its working directory, and its output."""

    settings: config.Spark
    work: Path  # for shuffles and spills; emptied at every start
    log: Path
    cache: Path
    java_options: str = "-XX:+UseParallelGC"  # two cores, small heaps: throughput before pauses
    archive: bool = True  # use, if it is there, the archive of classes
    secret: Path | None = None  # the file of a standalone cluster's secret; made when it is needed


def cache_directory(environment: Mapping[str, str], state: Path) -> Path:
    """Where what is made once for an installation is kept: the user's cache, or the state directory without one."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for chosen in (Path(base) / "tocsin", state / "cache"):
        with contextlib.suppress(OSError):
            chosen.mkdir(parents=True, exist_ok=True)
            if os.access(chosen, os.W_OK):
                return chosen
    raise DirectoryUnusable(str(state), "it cannot be written")


class Spark:
    """A running Spark. ``start`` from a thread that lives as long as it should: the leash is that thread's."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.java: Java | None = None
        self.archive: Path | None = None  # where the archive of classes is, or is to be
        self.session: SparkSession = None  # type: ignore[assignment]  # set by connect
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None  # pyspark's connection to the Java
        self._info = Path()
        self._last = LastLine()
        self._reader: threading.Thread | None = None

    # ── start ───────────────────────────────────────────────────────────────────────────────────────────────────

    def launch(self) -> None:
        """Start the Java. Returns at once; ``connect`` waits for it."""
        check_installed()
        options = self.options
        self.java = find_java(os.environ, options.cache)
        version = importlib.metadata.version("pyspark")
        self.archive = archive.archive_path(self.java, version, options.java_options, options.cache)
        archive.note_use(self.archive)
        self._prepare()
        found = importlib.util.find_spec("pyspark")  # not imported yet: that would only delay its Java
        assert found is not None and found.origin is not None
        home = Path(found.origin).parent
        self._info = Path(tempfile.mkdtemp(prefix="tocsin-spark-")) / "connection"
        command = [str(home / "bin" / "spark-submit"), "--properties-file", str(self._write_conf())]
        if options.settings.packages:
            command += ["--packages", ",".join(options.settings.packages)]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)},
            "JAVA_HOME": str(self.java.home),
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": self.python,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info),
            **self._local_address(),
        }
        self._process = subprocess.Popen(
            leash.command(os.getpid(), (*command, "pyspark-shell")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a Ctrl-C on the terminal is ours to pass on
        )
        self._reader = threading.Thread(target=self._read, name="spark-output", daemon=True)
        self._reader.start()

    def _prepare(self) -> None:
        options = self.options
        try:
            shutil.rmtree(options.work, ignore_errors=True)
            make_private(options.work)
            make_private(options.log.parent)
            (options.work / "log4j2.properties").write_text(LOG4J)
        except OSError as error:
            raise DirectoryUnusable(str(options.work), error.strerror or str(error)) from None

    def _write_conf(self) -> Path:
        """Spark's settings, in a file that nobody else can read: there may be secrets in it."""
        path = self.options.work / "spark.properties"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            for key, value in self.conf().items():
                file.write(f"{_escaped(key)}={_escaped(value)}\n")
        return path

    def conf(self) -> dict[str, str]:
        """Spark's settings: our defaults, then the operator's. ``connect`` adds what queries rely on."""
        options, settings = self.options, self.options.settings
        local = settings.master.startswith("local")
        java = [options.java_options, f"-Dlog4j2.configurationFile=file:{options.work}/log4j2.properties"]
        if self.java is not None and self.archive is not None and self.is_rehearsed:
            java.append(archive.use(self.java, self.archive))
        said = dict(settings.conf)
        java.append(said.pop("spark.driver.extraJavaOptions", ""))
        ours = {
            "spark.master": settings.master,
            "spark.app.name": "tocsin",
            "spark.driver.memory": settings.heap,
            "spark.driver.extraJavaOptions": " ".join(filter(None, java)),
            "spark.local.dir": str(options.work),
            "spark.sql.warehouse.dir": str(options.work / "warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(_cores(settings.master)),
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            # Without one, a task's rows come in batches of at most this: 10 000 by default, each a call.
            "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
            # Rows from memory whose number Spark knows: what is new is then broadcast, and nothing else is moved.
            "spark.sql.execution.arrow.localRelationThreshold": "32m",
            # Else Spark computes each key of a join twice: once to see that it is not NULL. Keys are cells of a grid.
            "spark.sql.constraintPropagation.enabled": "false",
            "spark.sql.files.openCostInBytes": "65536",
            "spark.ui.enabled": "false" if settings.ui_port < 0 else "true",
            "spark.ui.port": str(max(settings.ui_port, 0)),
            "spark.ui.killEnabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.ui.retainedJobs": "200",
            "spark.ui.retainedStages": "200",
            "spark.sql.ui.retainedExecutions": "50",
            "spark.cleaner.periodicGC.interval": "10min",
            "spark.python.worker.reuse": "true",
            "spark.scheduler.mode": "FAIR",
        }
        if local:
            ours |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        else:
            ours |= self._guarded(said)
        return {**ours, **said}

    def _guarded(self, said: Mapping[str, str]) -> dict[str, str]:
        """How the processes of a cluster know each other, and that nobody else reads what they send or spill."""
        guarded = {
            "spark.authenticate": "true",
            "spark.network.crypto.enabled": "true",
            "spark.io.encryption.enabled": "true",
        }
        if said.get("spark.authenticate", "true") != "true":
            return {}  # the others need it
        known = "spark.authenticate.secret" in said or "spark.authenticate.secret.file" in said
        if self.options.settings.master.startswith("spark://") and not known:
            assert self.options.secret is not None, "a standalone cluster needs a place for its secret"
            guarded["spark.authenticate.secret"] = cluster_secret(self.options.secret)
        return guarded

    def _local_address(self) -> dict[str, str]:
        """Where Spark's pages listen. Nothing but this variable binds them: the default is every address.

        It also names the driver where ``spark.driver.host`` does not, so on a cluster the operator has to say that.
        """
        settings = self.options.settings
        if settings.master.startswith("local") or "spark.driver.host" in settings.conf:
            return {"SPARK_LOCAL_IP": LOOPBACK}
        if settings.ui_port >= 0 and "SPARK_LOCAL_IP" not in os.environ:
            raise OperatorError(
                "Spark's pages would listen on every address of this machine, without a password",
                "Set spark.driver.host in [spark.conf] to this machine's address for the cluster; the pages then "
                "listen on 127.0.0.1. Or set spark.ui_port = -1",
            )
        return {}

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        file = BoundedFile(self.options.log)
        with contextlib.suppress(OSError, ValueError):
            while data := self._process.stdout.read1(65_536):  # type: ignore[attr-defined]
                file.write(data)
                self._last.feed(data)
        file.close()

    def connect(self) -> SparkSession:
        """Wait for the Java, then make the session; ``SparkFailed`` if it ends or takes too long."""
        process = self._process
        assert process is not None, "not launched"
        deadline = time.monotonic() + self.options.settings.start_deadline_s
        held_back = False
        while not self._info.is_file():
            held_back = held_back or hold_back_compilers(process.pid)
            if process.poll() is not None:
                raise self._failure("did not start")
            if time.monotonic() > deadline:
                self.stop()
                raise self._failure(f"did not start within {self.options.settings.start_deadline_s:g} s")
            time.sleep(POLL_S)
        try:
            return self._connect()
        except Exception as error:
            self.stop()
            raise self._failure(f"did not start: {_first_line(error)}") from error

    def _connect(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext, java_gateway
        from pyspark.sql import SparkSession

        with self._info.open("rb") as info:
            port, length = struct.unpack(">ii", info.read(8))
            secret = info.read(length).decode()
        shutil.rmtree(self._info.parent, ignore_errors=True)
        with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            gateway = java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc, self._gateway = self._process, gateway
        from tocsin.pipeline.execution.compiled import SPARK_SETTINGS

        conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm)
        for key, value in {**self.conf(), **SPARK_SETTINGS}.items():
            conf.set(key, value)
        with _environment(PYSPARK_PYTHON=self.python):  # pyspark looks for it nowhere else
            context = SparkContext(conf=conf, gateway=gateway)
        self.session = SparkSession(context)
        return self.session

    def _failure(self, problem: str) -> SparkFailed:
        if self._reader is not None:
            self._reader.join(STOP_S)
        words = self._last.text
        return SparkFailed(f"{problem} ({words})" if words else problem, self.options.log)

    @property
    def python(self) -> str:
        """The Python of tasks, on whichever machine they are."""
        said = self.options.settings.conf.get("spark.pyspark.python")
        return said or os.environ.get("PYSPARK_PYTHON") or sys.executable

    @property
    def is_rehearsed(self) -> bool:
        """Whether there is an archive of classes to start with."""
        return self.options.archive and self.archive is not None and self.archive.exists()

    # ── while it runs ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def ui(self) -> str | None:
        """Where Spark's own pages are."""
        return self.session.sparkContext.uiWebUrl

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ended(self) -> SparkFailed | None:
        """The error if the Java has ended."""
        if self._process is None or self._process.poll() is None:
            return None
        return self._failure(f"has ended (exit code {self._process.returncode})")

    def rehearse(self) -> subprocess.Popen[bytes] | None:
        """Have the archive of classes made, if there is none: the next start is then quicker."""
        if not self.options.archive or self.archive is None or self.is_rehearsed:
            return None
        return archive.rehearse(self.archive, self.options.java_options)

    def kill(self) -> None:
        """End the Java at once, whatever it is doing."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    # ── stop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self, grace_s: float = STOP_S) -> None:
        """End Spark and its Java; nothing of it is left when this returns."""
        process = self._process
        if process is None:
            return
        if self.session is not None and process.poll() is None:
            # A task that was cancelled may run on for minutes, in a loop that looks for no interrupt.
            patience = threading.Timer(grace_s, self.kill)
            patience.daemon = True
            patience.start()
            with contextlib.suppress(Exception):  # it may end while we talk to it
                self.session.stop()
            patience.cancel()
        if self._gateway is not None:
            _forget_gateway(self._gateway)
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            process.wait()
        self._process = None
        if self._reader is not None:
            self._reader.join(STOP_S)
        assert process.stdout is not None
        process.stdout.close()
        for directory in (self._info.parent, self.options.work):
            shutil.rmtree(directory, ignore_errors=True)


def cluster_secret(path: Path) -> str:
    """The secret of a standalone cluster, made once; the operator copies it to the master and the workers."""
    try:
        if path.exists():
            return path.read_text("ascii").strip()
        made = secrets.token_urlsafe(SECRET_BYTES)
        write_private(path, made.encode())
        return made
    except (OSError, ValueError) as error:
        raise DirectoryUnusable(str(path.parent), getattr(error, "strerror", None) or str(error)) from None


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Variables for as long as somebody looks for them there."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _forget_gateway(gateway: Any) -> None:
    """pyspark keeps its connection in class attributes; a later start in this process needs a new one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with contextlib.suppress(Exception):
        gateway.shutdown()
    context: Any = SparkContext
    if context._gateway is gateway:
        context._gateway = context._jvm = context._active_spark_context = None
        session: Any = SparkSession
        session._instantiatedSession = session._activeSession = None


def _escaped(text: str) -> str:
    """As Java's properties have it."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return "".join(special.get(c, f"\\{c}" if c in "=:#! " else c) for c in text)


def _cores(master: str) -> int:
    """Tasks of one shuffle: the cores of a local Spark; of a cluster, what ``spark.conf`` says or 8."""
    if not master.startswith("local"):
        return 8
    inside = master.removeprefix("local").strip("[]").partition(",")[0]
    if inside == "*":
        return max(os.cpu_count() or 1, 1)
    return int(inside) if inside.isdigit() and int(inside) else 1


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.partition("\n")[0][:500]


def master_problem(master: str) -> OperatorError | None:
    """The problem of ``spark.master``, before a Java is started for it."""
    known = ("local", "spark://", "yarn", "k8s://")
    if master.startswith(known):
        return None
    return OperatorError(
        f"spark.master = {master!r} is no master that Spark has",
        "Use local[*], spark://host:7077, yarn or k8s://https://host:port",
    )
