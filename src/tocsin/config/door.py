"""The settings of the coordinators' door: where clients that know one address find their broker."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tocsin.config.broker import LOOPBACK, joined
from tocsin.config.section import Section

PUBLIC_MAX = 8
DOOR_SCHEMES = {"port": "mqtt", "tls_port": "mqtts"}
Proxy = Literal["auto", "always", "never"]
Announce = Literal["auto", "always", "never"]


class Door(Section, frozen=True, kw_only=True):
    """The coordinators' door: one address at which any client finds its broker, by MQTT or HTTP."""

    host: Annotated[str, Meta(description="Address on which every coordinator listens for clients.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="Port for MQTT, and for HTTP look-ups. All coordinators of one machine share it. "
            "-1: no door; 0: choose a free one.",
        ),
    ] = 1882
    tls_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="Port for the same over TLS, with the certificate of `tls`. -1: none; 0: choose a free one.",
        ),
    ] = -1
    advertise: Annotated[
        str,
        Meta(
            max_length=253,
            description="Name or address at which clients reach the door. Empty: the address on which it listens, or "
            "this machine's loopback address if that is every address.",
        ),
    ] = ""
    public: Annotated[
        tuple[str, ...],
        Meta(
            max_length=PUBLIC_MAX,
            description="Where clients reach the network's doors if that is not `advertise` and the ports, such as "
            "those of several machines: `mqtt://host:port` or `mqtts://host:port`. Brokers tell their clients.",
        ),
    ] = ()
    proxy: Annotated[
        Proxy,
        Meta(
            description="Whose bytes the door passes on to the broker: `auto` those of clients that cannot be "
            "redirected (MQTT 3.1.1) or do not follow; `always` everybody's; `never` nobody's."
        ),
    ] = "auto"
    cluster: Annotated[
        str,
        Meta(
            max_length=63,
            description="Cluster whose brokers come first for clients that name none. Empty: none comes first.",
        ),
    ] = ""
    connections_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Clients that one coordinator's door passes on at once, each with two connections. More are "
            "refused; clients that can be redirected, and look-ups, are not. `limits.half_open_max` bounds "
            "connections that have no broker yet.",
        ),
    ] = 9_000  # so that 20 000 open files are enough

    mdns: Annotated[
        Announce,
        Meta(
            description="Announce the door in the local network (`_mqtt._tcp` and `_tocsin._tcp`), with the extra "
            "`tocsin[mdns]`. `auto`: if the extra is installed and the door is not on a loopback address."
        ),
    ] = "auto"

    def ports(self) -> dict[str, int]:
        """The ports on which it listens, by the setting that says so; 0 is still to be chosen."""
        named = {name: getattr(self, name) for name in DOOR_SCHEMES}
        return {name: port for name, port in named.items() if port >= 0}

    def entrances(self) -> tuple[tuple[str, str], ...]:
        """Where clients find doors: scheme and host:port, once the ports are chosen."""
        if self.public:
            return tuple(
                (scheme, address) for scheme, _, address in (url.partition("://") for url in self.public)
            )
        host = self.advertise or LOOPBACK.get(self.host, self.host)
        return tuple((DOOR_SCHEMES[name], joined(host, port)) for name, port in self.ports().items())

    def names(self) -> frozenset[str]:
        """Every host:port that clients of this machine and others may know a door by."""
        local = ("localhost", "127.0.0.1", "::1") if self.host in (*LOOPBACK, *LOOPBACK.values()) else ()
        here = (joined(host, port) for host in (self.host, *local) for port in self.ports().values())
        return frozenset((*(address for _, address in self.entrances()), *here))

    def addresses(self, scheme: str) -> tuple[str, ...]:
        """The doors for clients of one scheme."""
        return tuple(address for each, address in self.entrances() if each == scheme)
