"""What tests of faults share: traps that are set while processes run, a wire that can go deaf, a lasting subscriber."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tocsin.runtime.faults import kill_points as points

DEADLINE_S = 150.0


def wait_for(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {deadline_s:g} s"
        time.sleep(0.02)


class Traps:
    """Points at which processes are killed or stopped, each when it is armed, once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True)

    def variables(self, *chosen: str) -> dict[str, str]:
        """The variables that set traps at these points, none of them armed."""
        found = {}
        for variable in points.VARIABLES:
            for point in chosen:
                self._marker(variable, point).touch()
            found[variable] = ";".join(f"{point}:1:{self._marker(variable, point)}" for point in chosen)
        return found

    def _marker(self, variable: str, point: str) -> Path:
        return self._directory / f"{variable}-{point.replace(' ', '-')}"

    def arm(self, variable: str, point: str) -> None:
        self._marker(variable, point).unlink()

    def sprung(self, variable: str, point: str) -> int:
        """Wait until a process is caught; its id."""
        marker = self._marker(variable, point)
        wait_for(lambda: marker.exists() and marker.read_text(), f"{variable} {point}")
        return int(marker.read_text())


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Wire:
    """Between clients and a server on loopback; while it is ``deaf``, nothing that the server says arrives.

    While it is blocked, there are no connections.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self.deaf = False
        self._blocked = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.getsockname()
        return host, port

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self._blocked:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(self._server, timeout=5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                with self._lock:
                    self._open |= {client, server}
                for pair in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, said_by_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not (said_by_server and self.deaf):
                    target.sendall(data)
        self._end(source, target)

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with self._lock:
                self._open.discard(each)
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def cut(self) -> None:
        """End every connection, and hear again."""
        with self._lock:
            sockets = list(self._open)
        self._end(*sockets)
        self.deaf = False

    def block(self) -> None:
        self._blocked = True
        self.cut()

    def unblock(self) -> None:
        self._blocked = False

    def close(self) -> None:
        self._listening.close()
        self.cut()


class Subscriber:
    """An MQTT 5 client with a session that lasts. What it got: value by result id, each as often as it came."""

    def __init__(self, address: tuple[str, int], name: str, *, key: str = "n") -> None:
        self._address = address
        self._name = name
        self._key = key
        self.values: dict[str, Any] = {}  # by the id of the result
        self.order: list[Any] = []  # values as they came the first time
        self.came: Counter[str] = Counter()
        self.client: paho.Client | None = None
        self._granted = threading.Event()

    def come(self) -> None:
        """Connect, again and again while that is not possible, and subscribe."""
        self._granted.clear()
        client = self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"lasting {self._name}",
            protocol=paho.MQTTv5,
        )
        client.reconnect_delay_set(1, 1)
        client.on_message = self._on_message
        client.on_connect = self._on_connect
        client.on_subscribe = lambda *arguments: self._granted.set()
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 3_600
        client.connect_async(*self._address, clean_start=False, properties=properties, keepalive=10)
        client.loop_start()
        assert self._granted.wait(DEADLINE_S), f"{self._name} is not granted"

    def _on_connect(self, client: paho.Client, *details: Any) -> None:
        client.subscribe(self._name, options=SubscribeOptions(qos=1))

    def _on_message(self, client: paho.Client, data: Any, message: paho.MQTTMessage) -> None:
        said = dict(message.properties.UserProperty)  # type: ignore[union-attr]
        value = json.loads(message.payload)[self._key]
        self.came[said["id"]] += 1
        if said["id"] not in self.values:
            self.values[said["id"]] = value
            self.order.append(value)

    def leave(self) -> None:
        if self.client is not None:
            self.client.disconnect()
            self.client.loop_stop()
            self.client = None

    def got(self, expected: Counter[Any], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Everything arrives, under one id each: nothing is missing, and nothing is there twice."""
        wait_for(lambda: len(self.values) >= expected.total(), f"{what}: {len(self.values)}", deadline_s)
        assert Counter(self.values.values()) == expected, what
