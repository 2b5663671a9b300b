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
            _install(program, package, lambda: shutil.which(program) is not None)
            path = shutil.which(program)
        assert path is not None, f"{package} is installed, but {program} is not there"
        return path

    return find


@pytest.fixture(scope="session")
def debian_file() -> Callable[[str, str], Path]:
    """A file of a Debian package, which is installed if it is missing and we may."""

    def find(name: str, package: str) -> Path:
        path = Path(name)
        if not path.exists():
            _install(name, package, path.exists)
        assert path.exists(), f"{package} is installed, but {name} is not there"
        return path

    return find


@pytest.fixture(scope="session")
def debian_python() -> Callable[[str, str], str]:
    """Debian's own Python with a module of a package, which is installed if it is missing and we may."""
    python = "/usr/bin/python3"

    def there(module: str) -> bool:
        command = [python, "-c", f"import {module}"]
        return (
            Path(python).exists() and not subprocess.run(command, capture_output=True, timeout=60).returncode
        )

    def find(module: str, package: str) -> str:
        if not there(module):
            _install(f"the module {module}", package, lambda: there(module))
        if not there(module):
            pytest.skip(f"the module {module} is not there, although {package} is installed")
        return python

    return find


def _install(what: str, package: str, there: Callable[[], bool]) -> None:
    """Install a package, one process at a time; skip the test, in words, where that is not possible."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"{what} is missing: install the Debian package {package}, or run the tests as root")
    with (Path(tempfile.gettempdir()) / "tocsin-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if there():  # the other process was first
            return
        # In runlevel 1 a server that comes with a package is not started.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", package]):
            subprocess.run(
                ["apt-get", "-qq", *arguments],
                check=True,
                env=environment,
                timeout=INSTALL_DEADLINE_S,
                stdout=subprocess.DEVNULL,
            )
