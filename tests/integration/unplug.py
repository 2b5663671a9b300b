"""Faults that ``tocsin chaos`` does not have of its own, each to begin and to end: what its ``--own`` is given here.

    python unplug.py packets NFT PERCENT begin|end             of what arrives, so much is lost
    python unplug.py flows NFT PID WAY begin|end               connections of a process that nothing passes any more
    python unplug.py disk DIRECTORY STATE STORE begin|end      a disk without room; at the end its server is killed
    python unplug.py fsync STRACE RULE STATE STORE PIDFILE begin|end    the server's fsyncs fail, or are slow
    python unplug.py clock FILE OFFSET begin|end               clocks that jump, and jump back

It runs by itself, with the standard library and psutil only, and inside whatever namespace the run is in.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ATTACH_S = 20.0
PAGE = 4_096
REMOUNT = 32  # MS_REMOUNT
ESTABLISHED = "01"
TABLE = "inet unplugged"


def packets(begin: bool, nft: str, percent: str) -> None:
    rule(nft, begin, f"meta l4proto tcp numgen random mod 100 < {int(percent)} drop")


def flows(begin: bool, nft: str, pid: str, way: str) -> None:
    """``out``: what the process says does not arrive; ``in``: it hears nothing; ``both``: neither."""
    pairs = connections(int(pid)) if begin else []
    assert pairs or not begin, f"{pid} has no connections"
    said = [f"{ours} . {theirs}" for ours, theirs in pairs]
    heard = [f"{theirs} . {ours}" for ours, theirs in pairs]
    chosen = {"out": said, "in": heard, "both": said + heard}[way]
    rule(nft, begin, f"tcp sport . tcp dport {{ {', '.join(chosen)} }} drop")


def rule(nft: str, begin: bool, text: str) -> None:
    """One rule for what arrives. A packet that is dropped where it leaves would be an error that its sender sees."""
    lines = [f"delete table {TABLE}"]
    if begin:
        hook = "type filter hook input priority 0;"
        lines = [f"table {TABLE} {{", "chain arriving {", hook, text, "}", "}"]
    subprocess.run([nft, "-f", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def connections(pid: int) -> list[tuple[int, int]]:
    """The ports, its own and the other side's, of what a process has established."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(link))
        except FileNotFoundError:
            continue  # closed meanwhile
    found = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == ESTABLISHED and f"socket:[{words[9]}]" in sockets:
            ours, theirs = (int(each.rpartition(":")[2], 16) for each in words[1:3])
            found.append((ours, theirs))
    return found


def disk(begin: bool, directory: str, state: str, store: str) -> None:
    """Nothing more fits; then there is room again, and an operator restarts the server, as our documents say."""
    room = os.statvfs(directory)
    used = (room.f_blocks - room.f_bfree) * room.f_frsize
    size = used + PAGE if begin else 1 << 30
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", directory.encode(), b"tmpfs", REMOUNT, f"size={size}".encode()) != 0:
        raise OSError(ctypes.get_errno(), "remount")
    if not begin:
        os.kill(server(state, store), signal.SIGKILL)


def fsync(begin: bool, strace: str, how: str, state: str, store: str, pidfile: str) -> None:
    if not begin:
        tracer = int(Path(pidfile).read_text())
        os.kill(tracer, signal.SIGINT)
        until(lambda: not psutil.pid_exists(tracer) or zombie(tracer), "the tracer is gone")
        if "error" in how:
            os.kill(server(state, store), signal.SIGKILL)  # as for a disk: its streams may stay shut
        return
    pid = server(state, store)
    command = [strace, "-f", "-qq", "-p", str(pid), "-e", "trace=fsync,fdatasync"]
    command += ["-e", f"inject=fsync,fdatasync:{how}", "-o", f"{pidfile}.trace"]
    tracing = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    Path(pidfile).write_text(str(tracing.pid))
    until(lambda: traced(pid) or tracing.poll() is not None, "the server is traced")
    if tracing.poll() is not None:
        raise SystemExit(f"strace ended with {tracing.returncode}")


def clock(begin: bool, file: str, offset: str) -> None:
    """For processes that run with libfaketime, which looks into this file."""
    partial = Path(f"{file}.new")
    partial.write_text(f"{offset}\n" if begin else "+0\n")
    partial.replace(file)


def server(state: str, store: str) -> int:
    """The process of an embedded server: the one that was started with its configuration."""
    config = str(Path(state) / "nats" / store / "nats.conf")
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if len(words) == 3 and Path(words[0]).name == "nats-server" and words[2] == config:
            return int(process.pid)
    raise SystemExit(f"no server runs with {config}")


def traced(pid: int) -> bool:
    """Every thread of it."""
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    return all("TracerPid:\t0\n" not in (each / "status").read_text() for each in threads)


def zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + ATTACH_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {ATTACH_S:g} s")
        time.sleep(0.02)


FAULTS: dict[str, Callable[..., None]] = {
    "packets": packets,
    "flows": flows,
    "disk": disk,
    "fsync": fsync,
    "clock": clock,
}

if __name__ == "__main__":
    name, *words, word = sys.argv[1:]
    FAULTS[name](word == "begin", *words)
