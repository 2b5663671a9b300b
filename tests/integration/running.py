"""What the integration tests share: a network that ``tocsin up`` started, and programs whose output is gathered."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tocsin.config import Nats
from tocsin.runtime.network.store_access import embedded
from tocsin.store.jetstream.store import JetStreamStore

READY_DEADLINE_S = 90.0
DEADLINE_S = 30.0
AGAIN_S = 0.1  # between two tries of a best-effort publish


@contextlib.contextmanager
def up(
    *options: str,
    level: str = "warning",
    spark: bool = False,
    state: Path | None = None,
    within: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """A network that leaves nothing, with ports that were free, and no Spark unless asked; its ready line.

    ``state``: a directory that is kept instead. ``within``: a command that runs it, somewhere else. ``variables``: of
    its environment, beside ours.
    """
    where = ["--ephemeral"] if state is None else ["--state", str(state)]
    command = [*within, sys.executable, "-m", "tocsin", "up", *where, "--auto-ports", *options]
    sets = (f"log.level={level}", f"pipeline.enabled={'always' if spark else 'never'}")
    command += [word for each in sets for word in ("--set", each)]
    environment = {**os.environ, **(variables or {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    with process.stdout:
        try:
            line = read_line(process.stdout)
            assert line, f"did not start: exit code {process.wait(DEADLINE_S)}; why is on standard error"
            yield json.loads(line)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(DEADLINE_S)
        assert code == 0, f"did not stop in order: exit code {code}"


async def operator_store(ready: Mapping[str, Any], deadline_s: float = 10) -> JetStreamStore:
    """The store of a network that ``tocsin up`` started, for somebody who may do everything there."""
    nats = embedded(Nats(urls=tuple(ready["nats"])), ready["state"])
    return await JetStreamStore.open(nats, "operator", name="test", deadline_s=deadline_s)


def read_line(stream: IO[str]) -> str:
    """The first line of a network that starts."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    return lines.get(timeout=READY_DEADLINE_S)


def until(condition: Callable[[], bool], again: Callable[[], object], what: str) -> None:
    """Do something, again and again, until the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S:g} s"
        again()
        time.sleep(AGAIN_S)


class Heard:
    """A program, such as ``mosquitto_sub``, with its output gathered line by line."""

    def __init__(self, command: list[str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
