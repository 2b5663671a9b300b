"""The state directory of a network on one machine: who uses it, its secret, and where its parts are.

    lock            held while any process of the network lives; contains the parent's process id
    network.json    addresses, for clients on this machine and so that a resumed network keeps its ports
    nats/           the embedded servers' configuration and data; nats/keys: who gets in
    (``runtime.network.store_access``) certs/          the network's own authority, and what it issued
    (``runtime.security.credentials``) logs/           one bounded log per child process datasets/       what the
    pipeline keeps, unless ``pipeline.storage`` is elsewhere; spark/ is its working space spark-secret    the secret of
    a standalone Spark cluster, made when there is one (mode 0600)

The lock is a ``flock`` whose descriptor the children inherit. If the parent was killed, the lock is free only when
the last of them is gone, so that a network never starts beside the remains of another.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Final

import msgspec
import psutil

from tocsin.config import Broker, Door, Role, Settings
from tocsin.errors import DirectoryUnusable, Malformed, OperatorError, StateInUse
from tocsin.model.versions import Document

REMAINS_WAIT_S = 20.0  # children of a killed parent end within their grace of 10 s
POLL_S = 0.05
NETWORK_FILE_MAX_BYTES = 1 << 20


class BrokerAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a broker is found: by clients at those ports that are not -1, by other brokers at ``link_port``."""

    id: str
    cluster: str
    role: Role
    host: str  # of every port that has none of its own
    port: int
    tls_port: int = -1
    ws_port: int = -1
    wss_port: int = -1
    link_port: int = -1
    tls_host: str = ""
    ws_host: str = ""
    wss_host: str = ""
    link_host: str = ""
    metrics_port: int = -1

    @classmethod
    def of(cls, broker: Broker) -> BrokerAddress:
        """The addresses of a broker whose ports are chosen."""
        host = broker.reachable_at()
        ports = {"port": -1} | broker.ports()
        hosts = {
            name.replace("_port", "_host"): found
            for name in ("tls_port", "ws_port", "wss_port", "link_port")
            if name in ports
            and (found := broker.links_at() if name == "link_port" else broker.reachable_at(name)) != host
        }
        return cls(
            id=broker.id,
            cluster=broker.cluster,
            role=broker.role,
            host=host,
            **ports,  # type: ignore[arg-type]  # each is named as the field of its type
            **hosts,  # type: ignore[arg-type]  # same
        )

    def entrances(self) -> dict[str, tuple[str, int]]:
        """Host and port by scheme, the plain ones first."""
        found = {
            "mqtt": (self.host, self.port),
            "mqtts": (self.tls_host or self.host, self.tls_port),
            "ws": (self.ws_host or self.host, self.ws_port),
            "wss": (self.wss_host or self.host, self.wss_port),
        }
        return {scheme: entrance for scheme, entrance in found.items() if entrance[1] >= 0}

    @property
    def links_at(self) -> tuple[str, int]:
        return (self.link_host or self.host, self.link_port)

    def urls(self) -> tuple[str, ...]:
        """Every way in, as clients write it."""
        return tuple(_url(scheme, *entrance) for scheme, entrance in self.entrances().items())


def _url(scheme: str, host: str, port: int) -> str:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return (
        address if scheme == "mqtt" else f"{scheme}://{address}{'/mqtt' if scheme in ('ws', 'wss') else ''}"
    )


class FeederAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the feeder listens for records: over HTTP, and over TLS, unless the port is -1."""

    host: str
    http_port: int = -1
    https_port: int = -1


class DoorAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the coordinators' door listens, at those ports that are not -1, and where clients find it."""

    host: str
    port: int = -1
    tls_port: int = -1
    entrances: tuple[tuple[str, str], ...] = ()  # scheme and host:port

    @classmethod
    def of(cls, door: Door) -> DoorAddress | None:
        """The addresses of a door whose ports are chosen; None if it is closed."""
        ports = door.ports()
        return cls(door.host, **ports, entrances=door.entrances()) if ports or door.public else None

    def urls(self) -> tuple[str, ...]:
        """Every way in, as clients write it."""
        return tuple(
            address if scheme == "mqtt" else f"{scheme}://{address}" for scheme, address in self.entrances
        )


class NetworkFile(msgspec.Struct, frozen=True):
    """The content of ``network.json``. ``pid`` is the parent's; the file outlives it."""

    network: str
    pid: int
    nats: tuple[str, ...]
    brokers: tuple[BrokerAddress, ...]
    feeder: FeederAddress | None = None  # None: this machine has no pipeline, and so no feeder
    storage: str = ""  # where that pipeline keeps datasets
    door: DoorAddress | None = None  # None: there is no door


NETWORK: Final = Document("the file network.json", msgspec.json.Decoder(NetworkFile))


class StateDirectory:
    """An existing directory that this process holds."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock  # descriptor for children to inherit

    @classmethod
    def hold(cls, path: Path) -> StateDirectory:
        """Make the directory if needed and lock it: ``DirectoryUnusable``, or ``StateInUse`` while another lives."""
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for part in ("logs", "nats"):
                make_private(path / part)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DirectoryUnusable(str(path), error.strerror or str(error)) from None
        try:
            _take(lock, path)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(lock)
            raise DirectoryUnusable(str(path), error.strerror or str(error)) from None
        except StateInUse:
            os.close(lock)
            raise
        return cls(path.resolve(), lock)

    @staticmethod
    def holder(path: Path) -> int:
        """The parent of the network that runs on a directory now; 0 if none does."""
        try:
            lock = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return 0
        except BlockingIOError:
            return _holder(lock)
        finally:
            os.close(lock)

    def release(self) -> None:
        """Let another network have it."""
        os.close(self.lock)

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def nats(self) -> Path:
        return self.path / "nats"

    def forget_token(self) -> None:
        """Delete the one secret that older versions opened the embedded servers with."""
        try:
            (self.path / "token").unlink(missing_ok=True)
        except OSError as error:
            raise DirectoryUnusable(str(self.path), error.strerror or str(error)) from None

    def write_network(self, file: NetworkFile) -> None:
        self._write("network.json", msgspec.json.format(NETWORK.write(file), indent=2) + b"\n")

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file whole: a reader, or the next start after a crash, never sees half of it."""
        try:
            write_private(self.path / name, data)
        except OSError as error:
            raise DirectoryUnusable(str(self.path), error.strerror or str(error)) from None


def make_private(path: Path, *, keep_group: bool = False) -> None:
    """Make a directory that its owner alone may enter; an existing directory of ours is closed to others too.

    ``keep_group``: what an operator lets a group do stays.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.stat()
    closed = stat.S_IMODE(found.st_mode) & (0o770 if keep_group else 0o700)
    if found.st_uid == os.geteuid() and closed != stat.S_IMODE(found.st_mode):
        path.chmod(closed)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file that its owner alone may read: whole, and durably."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # from a crash, perhaps with other permissions
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _take(lock: int, path: Path) -> None:
    """Lock, and wait for the remaining processes of a network whose parent is gone, but not for a running network."""
    deadline = time.monotonic() + REMAINS_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = _holder(lock)
            if _alive(holder) or time.monotonic() > deadline:
                raise StateInUse(str(path), holder) from None
        time.sleep(POLL_S)


def _holder(lock: int) -> int:
    text = os.pread(lock, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def _alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return pid > 0 and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def datasets_directory(settings: Settings) -> Path:
    """Where a pipeline with these settings keeps datasets."""
    return Path(settings.pipeline.storage or Path(settings.state) / "datasets").absolute()


def read_network(path: Path) -> NetworkFile | None:
    """The addresses kept in a state directory; None if no network was ever started there."""
    try:
        with (path / "network.json").open("rb") as file:
            return NETWORK.read(file.read(NETWORK_FILE_MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DirectoryUnusable(str(path), error.strerror or str(error)) from None
    except Malformed as error:
        raise OperatorError(
            f"{path / 'network.json'} is not the file that `tocsin up` wrote there: {error}", "Delete it"
        ) from None
