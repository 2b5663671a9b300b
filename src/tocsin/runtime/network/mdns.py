"""The coordinators' doors in the local network, by multicast DNS: announced by coordinators, found by clients.

    _mqtt._tcp.local.     any MQTT client that looks for a server
    _tocsin._tcp.local.   ours: the text record has the network's name and the scheme

Needs the extra ``tocsin[mdns]`` (zeroconf). Nothing else here imports it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import socket
from typing import TYPE_CHECKING, Final

import structlog

from tocsin.config import Door
from tocsin.core.access.admission import is_loopback
from tocsin.errors import OperatorError

if TYPE_CHECKING:
    from zeroconf import ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

MQTT: Final = "_mqtt._tcp.local."
OURS: Final = "_tocsin._tcp.local."
FIND_S: Final = 3.0  # for answers: devices answer within a second
FOUND_MAX: Final = 32  # doors: anybody in the local network may announce some
EVERY: Final = ("0.0.0.0", "::", "")
PORTS: Final = (("port", "mqtt"), ("tls_port", "mqtts"))


def is_wanted(door: Door) -> bool:
    """Whether a door is announced. ``OperatorError`` if it should be, and the extra is missing."""
    if door.mdns == "never" or not door.ports():
        return False
    if door.mdns == "auto" and (is_loopback(door.host) or not is_installed()):
        return False
    check_installed()
    return True


def is_installed() -> bool:
    return importlib.util.find_spec("zeroconf") is not None


def check_installed() -> None:
    if not is_installed():
        raise OperatorError(
            "multicast DNS needs the package zeroconf", "Install it: pip install 'tocsin[mdns]'"
        )


class Announcement:
    """One coordinator's door, announced while it is open."""

    def __init__(self, network: str, coordinator: str, door: Door) -> None:
        self._network = network
        self._coordinator = coordinator
        self._door = door
        self._zeroconf: AsyncZeroconf | None = None
        self._log = structlog.get_logger()

    async def open(self) -> None:
        """Announce; a network without multicast costs a line in the log."""
        from zeroconf import Error
        from zeroconf.asyncio import AsyncZeroconf

        host = self._door.host
        try:
            every = host in EVERY
            self._zeroconf = AsyncZeroconf() if every else AsyncZeroconf(interfaces=[host])
            await asyncio.gather(*(_register(self._zeroconf, info) for info in self._services()))
        except (OSError, ValueError, Error) as error:  # such as a host that is a name, and no address
            self._log.warning("the door is not announced in the local network", problem=str(error))

    async def close(self) -> None:
        if self._zeroconf is not None:
            await self._zeroconf.async_unregister_all_services()
            await self._zeroconf.async_close()
            self._zeroconf = None

    def _services(self) -> list[AsyncServiceInfo]:
        from zeroconf.asyncio import AsyncServiceInfo

        found = []
        for name, scheme in PORTS:
            port = self._door.ports().get(name)
            if port is None:
                continue
            label = f"{self._network} {self._coordinator} {scheme}"
            for kind in (MQTT, OURS) if scheme == "mqtt" else (OURS,):
                found.append(
                    AsyncServiceInfo(
                        kind,
                        f"{label}.{kind}",
                        addresses=_addresses(self._door.host),
                        port=port,
                        properties={"network": self._network, "scheme": scheme, "v": "1"},
                        server=f"{self._coordinator}-{self._network}.local.",
                    )
                )
        return found


async def _register(zeroconf: AsyncZeroconf, info: AsyncServiceInfo) -> None:
    """Look whether the name is free, then announce it."""
    announcing = await zeroconf.async_register_service(info, allow_name_change=True)
    await announcing


def _addresses(host: str) -> list[bytes]:
    """The addresses of a host, packed; of every address those of this machine's interfaces."""
    if host not in EVERY:
        return [ipaddress.ip_address(host).packed]
    import ifaddr  # comes with zeroconf

    each = [ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if ip.is_IPv4]
    return [socket.inet_aton(str(ip.ip)) for ip in each if not is_loopback(str(ip.ip))]


class FoundDoor(tuple[str, str, int]):
    """Scheme, host and port of a door."""


async def find(
    network: str = "", *, interface: str = "", deadline_s: float = FIND_S, enough: int = 1
) -> list[FoundDoor]:
    """The doors that answer in the local network, of one network or of any; no more are awaited when ``enough`` did."""
    check_installed()
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

    names: asyncio.Queue[str] = asyncio.Queue(FOUND_MAX)

    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if not names.full():
            names.put_nowait(name)

    found: dict[FoundDoor, None] = {}
    searching = AsyncZeroconf(interfaces=[interface]) if interface else AsyncZeroconf()
    browser = AsyncServiceBrowser(searching.zeroconf, OURS, handlers=[changed])
    try:
        async with asyncio.timeout(deadline_s):
            while len(found) < enough:
                info = AsyncServiceInfo(OURS, await names.get())
                if await info.async_request(searching.zeroconf, round(deadline_s * 1_000)):
                    found.update(dict.fromkeys(_doors(info, network)))
    except TimeoutError:
        pass
    finally:
        await browser.async_cancel()
        await searching.async_close()
    return list(found)


def _doors(info: AsyncServiceInfo, network: str) -> list[FoundDoor]:
    said = info.decoded_properties
    if (network and said.get("network") != network) or said.get("scheme") not in ("mqtt", "mqtts"):
        return []
    scheme, port = str(said["scheme"]), info.port or 0
    return [FoundDoor((scheme, address, port)) for address in info.parsed_addresses() if port]
