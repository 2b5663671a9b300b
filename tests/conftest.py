"""What tests of every kind share: programs of the system that they drive."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

INSTALL_DEADLINE_S = 240

# How long an example takes says nothing on a shared machine, and the first on a new one makes tables of Hypothesis.
settings.register_profile("tocsin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tocsin")


@pytest.fixture(scope="session")
def debian_program() -> Callable[[str, str], str]:
    """The path of a program from a Debian package, which is installed if it is missing and we may."""

    def find(program: str, package: str) -> str:
        path = shutil.which(program)
        if path is None:
            _install(program, package)
            path = shutil.which(program)
        assert path is not None, f"{package} is installed, but {program} is not there"
        return path

    return find


def _install(program: str, package: str) -> None:
    """Install a package, one process at a time; skip the test, in words, where that is not possible."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"{program} is missing: install the Debian package {package}, or run the tests as root")
    with (Path(tempfile.gettempdir()) / "tocsin-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.which(program) is not None:  # the other process was first
            return
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", package]):
            subprocess.run(
                ["apt-get", "-qq", *arguments],
                check=True,
                env=environment,
                timeout=INSTALL_DEADLINE_S,
                stdout=subprocess.DEVNULL,
            )
