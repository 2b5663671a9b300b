"""A network of processes that do nothing, with a parent that holds a state directory as ``tocsin up`` does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

PARENT = """
import os, subprocess, sys
from pathlib import Path
from tocsin.runtime.network.directory import BrokerAddress, NetworkFile, StateDirectory
directory = StateDirectory.hold(Path(sys.argv[1]))
brokers = tuple(BrokerAddress(f"b{n}", "north", "edge", "127.0.0.1", 1883 + n) for n in (1, 2))
directory.write_network(NetworkFile("tocsin", os.getpid(), ("nats://127.0.0.1:4222",), brokers))
own, sleeper = [sys.executable, "-P", "-m", "tocsin"], [sys.executable, "-c", "import time; time.sleep(300)"]
environment = {**os.environ, "PYTHONPATH": sys.argv[2]}
children = [
    subprocess.Popen([*own, *words], env=environment, stdout=subprocess.PIPE)
    for words in (["broker", "b1"], ["broker", "b2"], ["coordinator", "--id", "coordinator-1"])
]
for child in children:
    child.stdout.readline()
decoy = subprocess.Popen([*sleeper, "-P", "-m", "tocsin", "broker", "b1"])
print(*(child.pid for child in (*children, decoy)), flush=True)
sys.stdin.read()
for child in (*children, decoy):
    child.kill()
    child.wait()
"""
CHILD = "import time\nprint('runs', flush=True)\ntime.sleep(300)\n"
DEADLINE_S = 30.0


class Fake(msgspec.Struct):
    """Where it is, and the process ids of its parts; ``decoy`` is a child that is no part."""

    state: Path
    pids: dict[str, int]
    decoy: int


def wait_for(pid: int, status: str) -> None:
    """Until a process is so."""
    deadline = time.monotonic() + DEADLINE_S
    while psutil.Process(pid).status() != status:
        assert time.monotonic() < deadline, f"{pid} is not {status}"
        time.sleep(0.01)


@contextlib.contextmanager
def network(directory: Path) -> Iterator[Fake]:
    stand_in = directory / "stand-in"
    stand_in.mkdir()
    (stand_in / "tocsin.py").write_text(CHILD)
    state = directory / "state"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(state), str(stand_in)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert parent.stdin is not None and parent.stdout is not None
    try:
        pids = [int(word) for word in parent.stdout.readline().split()]
        names = ("broker/b1", "broker/b2", "coordinator-1")
        yield Fake(state, dict(zip(names, pids, strict=False)), pids[-1])
    finally:
        parent.stdin.close()
        parent.wait(DEADLINE_S)
        parent.stdout.close()
