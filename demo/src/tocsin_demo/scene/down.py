"""Brokers that are down: killed as a user would kill them, and kept from coming back; or frozen.

The supervisor starts a process again half a second after it ended, often before anybody has missed it.
A broker that is to stay down is therefore stopped (SIGSTOP) in the moment in which it is started again, before it has
done anything: nothing listens on its ports. To bring it back is to let that process go on.

A broker that is **frozen** is stopped as it is: its connections stay open, and say nothing. It goes on where it was.

A stopped process does not notice that its parent has ended. So each has a **guard**, a process that ends it if ours
is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Final

import psutil

from tocsin.model.network import broker_address
from tocsin_demo.network import Running

_GUARD: Final = "import os, signal, sys; sys.stdin.buffer.read(); os.kill(int(sys.argv[1]), signal.SIGKILL)"


class Down:
    """The brokers of one network that are kept down. ``watch`` is told of every change; ``release`` all at the end."""

    def __init__(self) -> None:
        self._held: dict[
            str, tuple[int, subprocess.Popen[bytes]] | None
        ] = {}  # the process that is stopped, if any

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(name.removeprefix(broker_address("")) for name in self._held)

    def take(self, network: Running, brokers: Iterable[str], number: signal.Signals) -> dict[str, int]:
        """Send a signal to the processes of these brokers, all at once, and keep them down; their process ids."""
        wanted = {broker_address(broker) for broker in brokers}
        met = {row.name: row.pid for row in network.rows() if row.name in wanted and row.pid is not None}
        self._held.update(dict.fromkeys(wanted - self._held.keys()))
        for pid in met.values():
            _signal(pid, number)
        return {name.removeprefix(broker_address("")): pid for name, pid in met.items()}

    def freeze(self, network: Running, brokers: Iterable[str]) -> dict[str, int]:
        """Stop the processes of these brokers where they are; their process ids."""
        met = self.take(network, brokers, signal.SIGSTOP)
        for broker, pid in met.items():
            self._held[broker_address(broker)] = self._stop(pid)
        return met

    def watch(self, network: Running) -> None:
        for row in network.rows():
            if row.name not in self._held or row.pid is None or row.health != "starting":
                continue
            held = self._held[row.name]
            if held is None or held[0] != row.pid:
                self._dismiss(held)
                self._held[row.name] = self._stop(row.pid)

    def _stop(self, pid: int) -> tuple[int, subprocess.Popen[bytes]]:
        _signal(pid, signal.SIGSTOP)
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C on the terminal is not meant for it
        )
        return pid, guard

    def _dismiss(self, held: tuple[int, subprocess.Popen[bytes]] | None) -> None:
        if held is not None:
            held[1].kill()
            assert held[1].stdin is not None
            held[1].stdin.close()
            held[1].wait()

    def release(self, brokers: Iterable[str] | None = None) -> None:
        """Let these come back, or all of them."""
        names = [*self._held] if brokers is None else [broker_address(each) for each in brokers]
        for name in names:
            held = self._held.pop(name, None)
            self._dismiss(held)
            if held is not None:
                _signal(held[0], signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    """To a child of ours; nobody else is hit if its number is used again."""
    with contextlib.suppress(OSError, psutil.Error):
        descriptor = os.pidfd_open(pid)
        try:
            if psutil.Process(pid).ppid() == os.getpid():
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
