"""Addresses of brokers, as URLs.

    mqtt://host   mqtt://user:secret@host:1883   mqtts://host:8883   ws://host:8080/mqtt   wss://[::1]/mqtt   host:1883

Without a scheme it is ``mqtt`` and the port must be said. A user's name and password are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote

import msgspec

from tocsin.errors import AddressInvalid

PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}  # where a URL says none
DEFAULT_SERVER: Final = "mqtt://127.0.0.1:1883"  # the first broker of a network with the default settings
DEFAULT_DOOR: Final = "mqtt://127.0.0.1:1882"  # its coordinators' door, which knows where else to go
DEFAULT_SERVERS: Final = (DEFAULT_SERVER, DEFAULT_DOOR)
SECURE: Final = {"mqtt": "mqtts", "ws": "wss"}  # the same over TLS


class Server(msgspec.Struct, frozen=True):
    """A broker, and the way to speak to it."""

    host: str
    port: int
    scheme: str = "mqtt"
    username: str | None = None
    password: str | None = None

    @property
    def secure(self) -> bool:
        return self.scheme in SECURE.values()

    @property
    def web(self) -> bool:
        return self.scheme in ("ws", "wss")

    def __repr__(self) -> str:
        return f"Server({self.scheme}://{self.host}:{self.port})"  # and no password in a log


def read_address(text: str, default: str = "mqtt") -> Server:
    """Parse an address, with the scheme ``default`` if it has none. Raises ``AddressInvalid``."""
    scheme, separator, rest = text.partition("://") if "://" in text else (default, "", text)
    user, at, place = rest.rpartition("@")
    host, port = _host_and_port(place.removesuffix("/").removesuffix("/mqtt"))
    if separator and not port:
        port = str(PORTS.get(scheme, ""))
    good = host and not set("/@ ") & set(host) and port.isdecimal() and 0 < int(port) < 65_536
    if scheme not in PORTS or not good:
        shown = f"{scheme}{separator}…@{place}" if at else text
        raise AddressInvalid(f"{shown!r} is not an address")
    name, colon, secret = user.partition(":")
    return Server(
        host, int(port), scheme, unquote(name) if at else None, unquote(secret) if at and colon else None
    )


def read_servers(servers: str | Sequence[str | Server]) -> list[Server]:
    """One address, or several. Raises ``AddressInvalid``."""
    given = [servers] if isinstance(servers, str) else list(servers)
    if not given:
        raise AddressInvalid("there is no server to connect to")
    return [each if isinstance(each, Server) else read_address(each) for each in given]


def read_user(
    servers: Iterable[Server], username: str | None, password: str | bytes | None
) -> tuple[str | None, bytes | None]:
    """The user and password of a client: as given, or from its servers' addresses. Raises ``AddressInvalid``."""
    if username is None:
        said = {(server.username, server.password) for server in servers}
        if len(said) > 1:
            raise AddressInvalid("the servers' addresses name different users; a client is one of them")
        username, password = said.pop()
    return username, password.encode() if isinstance(password, str) else password


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = text.partition(":")
    return host, port
