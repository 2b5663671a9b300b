"""A real AMQP 1.0 broker for tests, RabbitMQ with its plugin, and a peer that sends to it and reads from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.ports import free_ports
from tocsin.bridge.peer import (
    ACCEPTED,
    Attached,
    Credited,
    Decided,
    Delivered,
    Detached,
    Ended,
    Login,
    Opened,
    Peer,
    PeerEvent,
)
from tocsin.wire.amqp.message import AmqpMessage, read_message, write_message
from tocsin.wire.amqp.performatives import Accepted, Outcome

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_S = 90.0
USER = PASSWORD = "guest"
MESSAGE_MAX_BYTES = 1 << 20


class Rabbit:
    """The broker: started and killed at will, on what is left of the last time."""

    def __init__(self, directory: Path, openssl: str) -> None:
        self.port, self.tls_port, distribution, epmd = free_ports(4)
        self.authority = Authority(openssl, directory)
        own = self.authority.sign("127.0.0.1", "server")
        self._directory = directory
        (directory / "enabled_plugins").write_text("[rabbitmq_amqp1_0,rabbitmq_auth_mechanism_ssl].\n")
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}\n"
            f"ssl_options.cacertfile = {self.authority.certificate}\n"
            f"ssl_options.certfile = {own.certificate}\n"
            f"ssl_options.keyfile = {own.key}\n"
            "ssl_options.verify = verify_peer\n"
            "ssl_options.fail_if_no_peer_cert = false\n"
            "ssl_cert_login_from = common_name\n"
            "auth_mechanisms.1 = PLAIN\n"
            "auth_mechanisms.2 = EXTERNAL\n"
            "disk_free_limit.absolute = 50MB\n"
        )
        self._environment = {
            **os.environ,
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"tocsin{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd),
        }
        self._process: subprocess.Popen[bytes] | None = None
        # In the foreground, so that it ends with the test: a node would start one that stays.
        self._names = subprocess.Popen(
            ["epmd", "-address", "127.0.0.1", "-port", str(epmd)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        """Return when it takes connections."""
        with (self._directory / "out.log").open("ab") as out:
            self._process = subprocess.Popen(
                [str(SERVER)], env=self._environment, stdout=out, stderr=out, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), Station(self.port):
                return
            code = self._process.poll()
            assert code is None and time.monotonic() < deadline, self._said()
            time.sleep(0.2)

    def kill(self) -> None:
        """As ``kill -9`` does, with all of its processes."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def close(self) -> None:
        self.kill()
        self._names.kill()
        self._names.wait(10)

    def _said(self) -> str:
        return (self._directory / "out.log").read_text(errors="replace")[-2_000:]


class Station:
    """A plain peer of the broker, which waits for each answer. ``OSError`` when the connection breaks."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._peer = Peer("station", "localhost", Login("PLAIN", USER, PASSWORD))
        self._events: list[PeerEvent] = []
        self._links = 0
        self._wait(lambda event: isinstance(event, Opened), 10)

    def __enter__(self) -> Station:
        return self

    def __exit__(self, *error: object) -> None:
        self._peer.close()
        with contextlib.suppress(OSError):
            self._socket.sendall(self._peer.take_output())
        self._socket.close()

    def _pump(self, seconds: float) -> list[PeerEvent]:
        if output := self._peer.take_output():
            self._socket.sendall(output)
        self._socket.settimeout(max(seconds, 0.001))
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return []
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        events = list(self._peer.heard(data, time.monotonic_ns() // 1000))
        for event in events:
            if isinstance(event, Ended | Detached):
                raise ConnectionResetError(event.reason)
        return events

    def _wait(self, wanted: Callable[[PeerEvent], bool], seconds: float) -> PeerEvent:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self._pump(0.2):
                if wanted(event):
                    return event
        raise ConnectionResetError("no answer in time")

    def _attach(self, address: str, *, receives: bool) -> str:
        self._links += 1
        link = f"link-{self._links}-{time.monotonic_ns()}"
        self._peer.attach(link, address, receives=receives, max_bytes=MESSAGE_MAX_BYTES)
        self._wait(lambda event: isinstance(event, Attached if receives else Credited), 10)
        return link

    def send(self, address: str, messages: Sequence[AmqpMessage]) -> Iterator[Outcome | None]:
        """Send messages one after the other; the outcome of each."""
        link = self._attach(address, receives=False)
        for number, message in enumerate(messages):
            self._peer.send(link, number.to_bytes(4), write_message(message))
            decided = self._wait(lambda event: isinstance(event, Decided), 10)
            assert isinstance(decided, Decided)
            yield decided.outcome

    def receive(self, address: str, seconds: float) -> Iterator[AmqpMessage]:
        """Messages of an address, each accepted when the next is asked for, until none came for so long."""
        link = self._attach(address, receives=True)
        until = time.monotonic() + seconds
        credit = 0
        while time.monotonic() < until:
            if not credit:
                self._peer.grant(link, credit := 50)
            for event in self._pump(0.1):
                if isinstance(event, Delivered):
                    credit -= 1
                    until = time.monotonic() + seconds
                    yield read_message(event.payload)
                    self._peer.settle(link, event.delivery, ACCEPTED)
        self._pump(0.05)


def send_all(port: int, address: str, messages: Sequence[AmqpMessage], pause_s: float = 0.0) -> None:
    """Send every message until it is accepted, over breaks of the broker."""
    left = list(messages)
    deadline = time.monotonic() + START_S
    while left:
        assert time.monotonic() < deadline, f"{len(left)} messages are not accepted"
        try:
            with Station(port) as station:
                for outcome in station.send(address, list(left)):
                    if isinstance(outcome, Accepted):
                        left.pop(0)
                        time.sleep(pause_s)
        except OSError:
            time.sleep(0.2)


@pytest.fixture(scope="module")
def rabbit(
    tmp_path_factory: pytest.TempPathFactory, debian_program: Callable[[str, str], str]
) -> Iterator[Rabbit]:
    """A broker that takes AMQP 1.0; the test is skipped where it cannot be installed."""
    debian_program("rabbitmqctl", "rabbitmq-server")
    if shutil.which("epmd") is None or not SERVER.exists():
        pytest.skip("RabbitMQ is not where the Debian package rabbitmq-server puts it")
    made = Rabbit(tmp_path_factory.mktemp("rabbit"), debian_program("openssl", "openssl"))
    try:
        made.start()
        yield made
    finally:
        made.close()
