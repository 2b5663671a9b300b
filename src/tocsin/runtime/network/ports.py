"""Ports: which are free, which are taken, and which are chosen where the settings leave it open.

Chosen ports lie below the range from which the kernel takes ports for outgoing connections, so that none of those can
slip into a port between the choice and the moment when a child listens on it. Nor can another network that is started
at the same time: who chooses a port claims it, for as long as the process lives.
"""

from __future__ import annotations

import errno
import secrets
import socket
import sys
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from tocsin.config import Door, Feeds, Pipeline, Settings
from tocsin.errors import OperatorError, PortTaken
from tocsin.runtime.network.directory import DoorAddress, FeederAddress, NetworkFile

CHOSEN_FROM = 20_000  # above the ports that programs commonly have by name
CHOSEN_BELOW = 32_768  # Linux takes outgoing ports from here on (ip_local_port_range)
ATTEMPTS = 2_000

_claimed: dict[int, socket.socket] = {}  # by this process, until it ends


def settle(settings: Settings, *, auto: bool = False, previous: NetworkFile | None = None) -> Settings:
    """Settings in which every listener has a port that was free just now.

    Ports that are given are checked (``PortTaken``). Ports of 0, with ``auto`` all, are chosen: as they were
    in the ``previous`` life of this network if they are still free. A listener of port -1 stays away, and so do the
    feeder's unless ``pipeline.enabled`` is ``always``.
    """
    kept = {broker.id: broker for broker in previous.brokers} if previous else {}
    used: set[int] = set()
    nats = settings.nats
    if not nats.urls:
        if auto or not nats.port:
            wanted = _port_of(previous)
            port = _choose(nats.host, wanted, used, count=nats.servers)
        else:
            port = nats.port
            for offset in range(nats.servers):
                _check(nats.host, port + offset, "the embedded NATS server", "nats.port")
        used |= set(range(port, port + nats.servers))
        nats = msgspec.structs.replace(nats, port=port)
    brokers = []
    for index, broker in enumerate(settings.brokers):
        ports = {}
        for name, port in broker.ports().items():
            if auto or not port:
                wanted = max(0, getattr(kept.get(broker.id), name, 0))
                port = _choose(broker.host_of(name), wanted, used)
            else:
                _check(broker.host_of(name), port, f"broker {broker.id}", f"brokers[{index}].{name}")
            used.add(port)
            ports[name] = port
        brokers.append(msgspec.structs.replace(broker, **ports))
    door = _settle_door(settings.door, auto, previous.door if previous else None, used)
    feeds, pipeline = settings.feeds, settings.pipeline
    if pipeline.enabled == "always":
        feeds = _settle_feeder(feeds, auto, previous.feeder if previous else None, used)
        feeds = _settle_metrics(feeds, "feeds", "the feeder's metrics", auto, used)
        pipeline = _settle_metrics(pipeline, "pipeline", "the pipeline's metrics", auto, used)
    return msgspec.structs.replace(
        settings, nats=nats, brokers=tuple(brokers), door=door, feeds=feeds, pipeline=pipeline
    )


def _settle_door(door: Door, auto: bool, kept: DoorAddress | None, used: set[int]) -> Door:
    ports = {}
    for name, port in door.ports().items():
        if auto or not port:
            port = _choose(door.host, max(0, getattr(kept, name, 0)), used)
        else:
            _check(door.host, port, "the coordinators' door", f"door.{name}")
        used.add(port)
        ports[name] = port
    return msgspec.structs.replace(door, **ports)


Measured = TypeVar("Measured", Feeds, Pipeline)


def _settle_metrics(measured: Measured, section: str, wanted_by: str, auto: bool, used: set[int]) -> Measured:
    host, port = measured.metrics_host, measured.metrics_port
    if port < 0:
        return measured
    if not auto and port:
        _check(host, port, wanted_by, f"{section}.metrics_port")
    else:
        port = _choose(host, 0, used)
    used.add(port)
    return msgspec.structs.replace(measured, metrics_port=port)


def _settle_feeder(feeds: Feeds, auto: bool, kept: FeederAddress | None, used: set[int]) -> Feeds:
    ports = {}
    for name in ("http_port", "https_port"):
        port: int = getattr(feeds, name)
        if port < 0:
            continue
        if auto or not port:
            port = _choose(feeds.http_host, max(0, getattr(kept, name, 0)), used)
        else:
            _check(feeds.http_host, port, "the feeder", f"feeds.{name}")
        used.add(port)
        ports[name] = port
    return msgspec.structs.replace(feeds, **ports)


def _port_of(previous: NetworkFile | None) -> int:
    """The port of the first embedded server in a previous life; 0 if there was none."""
    if previous is None or not previous.nats:
        return 0
    port = previous.nats[0].rpartition(":")[2]
    return int(port) if port.isdigit() else 0


def _choose(host: str, wanted: int, used: set[int], *, count: int = 1) -> int:
    """``count`` ports in a row; the first of them."""
    for attempt in range(ATTEMPTS):
        span = CHOSEN_BELOW - CHOSEN_FROM - count
        port = wanted if wanted and attempt == 0 else CHOSEN_FROM + secrets.randbelow(span)
        ports = range(port, port + count)
        free = not used.intersection(ports) and all(is_free(host, candidate) for candidate in ports)
        if free and all(map(_claim, ports)):
            return port
    raise OperatorError(
        f"no free port from {CHOSEN_FROM} to {CHOSEN_BELOW - 1} on {host}",
        "Stop what uses them, or set the ports yourself",
    )


def _claim(port: int) -> bool:
    """Whether a port is this process's to choose, which no other network on this machine chooses from now on.

    The claim is a socket with a name that is no file, which the kernel forgets with the process. Where there are no
    such names (not Linux) everybody chooses what is free.
    """
    if port in _claimed or not sys.platform.startswith("linux"):
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0tocsin-port-{port}")
    except OSError:
        claim.close()
        return False
    _claimed[port] = claim
    return True


def _check(host: str, port: int, wanted_by: str, setting: str) -> None:
    error = _bind_error(host, port)
    if error is None:
        return
    if error.errno == errno.EADDRINUSE:
        raise PortTaken(host, port, wanted_by, setting)
    reason = error.strerror or str(error)
    section, _, name = setting.rpartition(".")
    own = {"metrics_port", "tls_port", "ws_port", "wss_port", "link_port"}
    host_key = "http_host" if section == "feeds" else "host"
    if name in own and section != "door":
        host_key = name.replace("_port", "_host")
    raise OperatorError(
        f"{wanted_by} cannot listen on {host}:{port}: {reason[:1].lower()}{reason[1:]}",
        f"Give an address of this machine ({section}.{host_key}) and a port that you may use ({setting})",
    )


def is_free(host: str, port: int) -> bool:
    """Whether one could listen there just now; false also for a port that was refused for another reason."""
    error = _bind_error(host, port)
    if error is not None and error.errno not in (errno.EADDRINUSE, errno.EACCES):
        raise OperatorError(
            f"cannot listen on {host}: {error.strerror or error}", "Give an address of this machine"
        )
    return error is None


def _bind_error(host: str, port: int) -> OSError | None:
    try:
        for family, address in _addresses(host, port):
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections do not count
                probe.bind(address)
    except OSError as error:
        return error
    return None


def _addresses(host: str, port: int) -> Iterable[tuple[socket.AddressFamily, tuple[object, ...]]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in found]
