"""Real servers on loopback for tests, benchmarks and experiments: start them, kill them, start them again.

Nothing waits here: a store that connects, or opens a log, waits for its server by itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tocsin.errors import StoreUnavailable
from tocsin.store.servers.embedded import Security, ServerPlan, plan_servers

STOP_S: Final = 10.0  # how long a server may take to stop before it is killed
TOKEN: Final = "a-token-for-tests"


class LocalServers:
    """One server, or a cluster of three, that live as long as the context."""

    def __init__(
        self,
        directory: Path,
        *,
        servers: int = 1,
        security: Security | None = None,
        file_max_bytes: int | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        """With ``security`` as ``tocsin up`` has it; without, a token opens everything."""
        self.token = TOKEN
        self.plans: tuple[ServerPlan, ...] = plan_servers(
            directory=directory,
            host="127.0.0.1",
            port=0,
            servers=servers,
            token=TOKEN,
            security=security,
            file_max_bytes=file_max_bytes,
        )
        self._wrapper = tuple(wrapper)  # a command that runs the server, such as a tracer
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(plan.url for plan in self.plans)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(plan.name for plan in self.plans)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def output(self, name: str) -> str:
        """The server's output."""
        return self._output_path(name).read_text("utf-8", "replace")

    def start(self, name: str) -> None:
        plan = self._plan(name)
        with self._output_path(name).open("ab") as output:
            self._processes[name] = subprocess.Popen(
                (*self._wrapper, *plan.argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End it at once, without a chance to save anything, with the wrapper if there is one."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def pause(self, name: str) -> None:
        os.killpg(self._processes[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.killpg(self._processes[name].pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        for plan in self.plans:
            self.start(plan.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, process in self._processes.items():
            self.resume(name)
            os.killpg(process.pid, signal.SIGTERM)
        for name in tuple(self._processes):
            try:
                self._processes[name].wait(STOP_S)
                del self._processes[name]
            except subprocess.TimeoutExpired:
                self.kill(name)

    def _plan(self, name: str) -> ServerPlan:
        for plan in self.plans:
            if plan.name == name:
                return plan
        raise StoreUnavailable(f"start server {name!r}", f"there are only {', '.join(self.names)}")

    def _output_path(self, name: str) -> Path:
        return self._plan(name).config.with_name("output.log")
