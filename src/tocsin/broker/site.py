"""The site of a broker: the addresses of its machine, and sockets that listen there.

The addresses follow from the broker's table in the settings. Three things in it can come to mean something else while
the broker runs: a host's name, which may resolve to another address; ``advertise = "auto"``, the address from which
this machine reaches the store; and the table itself, where a broker that was started by hand reads the settings file
again after a change. A site of which none of this is true never changes (``is_fixed``).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from tocsin.broker.entrance.listener import listening_socket
from tocsin.broker.identity import info_of
from tocsin.config import Broker, Settings
from tocsin.config.broker import AUTO, METRICS_LISTENER
from tocsin.core.coordination.participant.readdressing import Addresses, At
from tocsin.errors import OperatorError

DISCARD: Final = 9  # a port that nothing is sent to: the kernel is only asked for the way there

Sockets = Mapping[str, socket.socket]  # by the names of their settings


class Site(Protocol):
    """Where a broker is. ``addresses`` are those that it has taken."""

    addresses: Addresses

    @property
    def is_fixed(self) -> bool:
        """Whether its addresses never change."""
        ...

    async def look(self) -> Addresses:
        """The addresses that it should have now; ``OperatorError`` if they cannot be found out."""
        ...

    def begin(self) -> Sockets:
        """Sockets that listen at its addresses, for a broker that begins."""
        ...

    def listen(self, at: Mapping[str, At]) -> Sockets:
        """Sockets that listen there; ``OperatorError`` if one cannot, and then none does."""
        ...


class Configured:
    """A site as the settings describe it. ``reread`` gives the settings anew, or None if they are what they were."""

    def __init__(
        self, settings: Settings, configured: Broker, reread: Callable[[], Settings | None] | None = None
    ) -> None:
        """Listens at once, so that ports that are to be chosen are."""
        self._store = settings.nats.addresses()
        self._configured = configured
        self._reread = reread
        self._first = self.listen(self._listening(configured))
        self._ports = {name: each.getsockname()[1] for name, each in self._first.items()}
        self.addresses = self._addresses()

    @property
    def is_fixed(self) -> bool:
        hosts = {self._configured.host_of(name) for name in self._ports}
        literal = all(map(_is_address, hosts))
        return literal and self._configured.advertise != AUTO and self._reread is None

    async def look(self) -> Addresses:
        return await asyncio.to_thread(self._addresses)  # names may take a while

    def listen(self, at: Mapping[str, At]) -> Sockets:
        with ExitStack() as opened:
            sockets = {
                name: opened.enter_context(listening_socket(host, port, self._configured.id))
                for name, (host, port) in at.items()
            }
            opened.pop_all()
        return sockets

    def begin(self) -> Sockets:
        """The sockets of the first broker here; new ones for the next, a standby that takes a place."""
        first, self._first = self._first, {}
        return first or self.listen(self.addresses.listening)

    def _addresses(self) -> Addresses:
        settings = None if self._reread is None else self._reread()
        if settings is not None:
            self._configured = settings.broker(self._configured.id) or self._configured
        chosen = msgspec.structs.replace(self._configured, **self._chosen())
        if chosen.advertise == AUTO:
            chosen = msgspec.structs.replace(chosen, advertise=_way_out(self._store))
        return Addresses(self._listening(chosen), info_of(chosen))

    def _chosen(self) -> dict[str, int]:
        """The ports that were chosen here, where the settings leave the choice to us."""
        return {name: port for name, port in self._ports.items() if not getattr(self._configured, name)}

    def _listening(self, configured: Broker) -> dict[str, At]:
        return {
            name: (_resolved(configured.host_of(name)), port)
            for name, port in configured.ports().items()
            if name != METRICS_LISTENER
        }


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _resolved(host: str) -> str:
    """The address of a host; of several always the same one, the first IPv4 address in their order."""
    if _is_address(host):
        return host
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OperatorError(
            f"{host!r} does not resolve: {error.strerror or error}", "Give a name that does"
        ) from None
    return min((family != socket.AF_INET, str(at[0])) for family, _, _, _, at in found)[1]


def _way_out(servers: tuple[str, ...]) -> str:
    """The address from which this machine reaches the first server that there is a way to."""
    for server in servers:
        parts = urlsplit(server)
        try:
            found = socket.getaddrinfo(parts.hostname, DISCARD, type=socket.SOCK_DGRAM)
            family, kind, protocol, _, at = found[0]
            with socket.socket(family, kind, protocol) as asked:
                asked.connect(at)  # sends nothing
                return str(asked.getsockname()[0])
        except OSError:
            continue
    raise OperatorError(f"this machine has no way to {', '.join(servers)}", "Connect it to the network")
