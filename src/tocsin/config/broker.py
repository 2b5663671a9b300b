"""The settings of one broker, and the brokers of a network that names none."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tocsin.config.section import NAME, Section

Role = Literal["edge", "routing", "standby"]

# Fields of a broker that are ports, with the scheme of clients' addresses there; then that of links, which has none.
SCHEMES = {"port": "mqtt", "tls_port": "mqtts", "ws_port": "ws", "wss_port": "wss"}
LINK_LISTENER = "link_port"
METRICS_LISTENER = "metrics_port"  # HTTP, for collectors
LISTENERS = (*SCHEMES, LINK_LISTENER, METRICS_LISTENER)
LOOPBACK = {
    "0.0.0.0": "127.0.0.1",
    "::": "::1",
}  # where one that listens on every address is found on this machine
_OWN_HOST = "Empty: `host`."
AUTO = "auto"  # in ``advertise``: the address from which this machine reaches the store


class Broker(Section, frozen=True, kw_only=True):
    """One broker process."""

    id: Annotated[
        str,
        Meta(pattern=NAME, description="Unique name: lower-case letters, digits and hyphens, at most 63."),
    ]
    cluster: Annotated[
        str,
        Meta(pattern=NAME, description="Cluster (LAN, subnet or region) that it belongs to; same alphabet."),
    ]
    role: Annotated[
        Role,
        Meta(
            description="`edge` serves clients; `routing` also carries messages between clusters; `standby` waits to "
            "take the place of a broker that is lost."
        ),
    ] = "edge"
    tier: Annotated[
        str,
        Meta(
            pattern=f"^$|{NAME}",
            description="Tier of a routing broker: all routing brokers of a tier carry messages for the same clusters, "
            "and share them. Empty: its cluster.",
        ),
    ] = ""
    may_stand_by: Annotated[
        bool,
        Meta(
            description="Whether the leader may recruit this edge broker: it is emptied and stands by while standbys "
            "of its cluster are in use (`recovery.standbys_wanted`)."
        ),
    ] = False
    host: Annotated[str, Meta(description="Address on which it listens for MQTT.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=-1, le=65_535, description="Port for MQTT. -1: none; 0: choose a free one.")
    ] = 0
    tls_port: Annotated[
        int,
        Meta(ge=-1, le=65_535, description="Port for MQTT over TLS. -1: none; 0: choose a free one."),
    ] = -1
    ws_port: Annotated[
        int,
        Meta(ge=-1, le=65_535, description="Port for MQTT over WebSocket. -1: none; 0: choose a free one."),
    ] = -1
    wss_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="Port for MQTT over WebSocket and TLS. -1: none; 0: choose a free one.",
        ),
    ] = -1
    link_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="Port for links of other brokers, with TLS in which both sides show certificates of the "
            "network's own authority. 0: choose a free one.",
        ),
    ] = 0
    tls_host: Annotated[
        str, Meta(max_length=253, description=f"Address on which it listens for MQTT over TLS. {_OWN_HOST}")
    ] = ""
    ws_host: Annotated[
        str,
        Meta(max_length=253, description=f"Address on which it listens for MQTT over WebSocket. {_OWN_HOST}"),
    ] = ""
    wss_host: Annotated[
        str,
        Meta(
            max_length=253,
            description=f"Address on which it listens for MQTT over WebSocket and TLS. {_OWN_HOST}",
        ),
    ] = ""
    link_host: Annotated[
        str,
        Meta(
            max_length=253,
            description=f"Address on which it listens for links, and at which other brokers reach it. {_OWN_HOST}",
        ),
    ] = ""
    outward: Annotated[
        bool,
        Meta(
            description="Brokers of other clusters cannot dial it, because of NAT or a firewall. It dials the routing "
            "brokers of other clusters, and they reach it over these connections."
        ),
    ] = False
    metrics_host: Annotated[
        str,
        Meta(max_length=253, description="Address on which its figures can be fetched; anybody there may."),
    ] = "127.0.0.1"
    metrics_port: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description="Port of its figures for Prometheus, at `/metrics`. -1: none; 0: choose a free one.",
        ),
    ] = -1
    advertise: Annotated[
        str,
        Meta(
            max_length=253,
            description="Name or address at which clients reach it, and other brokers unless `link_host` is one. "
            "Empty: the address on which it listens, or this machine's loopback address if that is every address. "
            "`auto`: the address from which this machine reaches the store, also when it changes.",
        ),
    ] = ""
    public: Annotated[
        tuple[str, ...],
        Meta(
            max_length=len(SCHEMES),
            description="Where clients reach it if that is not `advertise` and the port (mapped ports, a proxy): "
            "`mqtt://host:port`, `mqtts://`, `ws://` or `wss://`. Told to clients that another broker sends away.",
        ),
    ] = ()

    def host_of(self, listener: str) -> str:
        """The address on which one of its ports is."""
        own: str = "" if listener == "port" else getattr(self, listener.replace("_port", "_host"))
        return own or self.host

    def reachable_at(self, listener: str = "port") -> str:
        """Where clients find one of its ports; on this machine, if only the broker itself can tell (`auto`)."""
        host = self.host_of(listener)
        advertised = "" if self.advertise == AUTO else self.advertise
        return advertised or LOOPBACK.get(host, host)

    def links_at(self) -> str:
        """Where other brokers find it."""
        own = bool(self.link_host) and self.link_host not in LOOPBACK
        return self.link_host if own else self.reachable_at(LINK_LISTENER)

    def entrances(self) -> dict[str, str]:
        """Where clients find it: host:port by scheme, once its ports are chosen."""
        own = {
            scheme: joined(self.reachable_at(name), port)
            for name, scheme in SCHEMES.items()
            if (port := getattr(self, name)) >= 0
        }
        return own | {scheme: address for scheme, _, address in (url.partition("://") for url in self.public)}

    def ports(self) -> dict[str, int]:
        """The ports on which it listens, by the setting that says so; 0 is still to be chosen."""
        named = {name: getattr(self, name) for name in LISTENERS}
        return {name: port for name, port in named.items() if port >= 0}


def joined(host: str, port: int) -> str:
    """An address as host:port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


DEFAULT_BROKERS = (
    Broker(id="north-1", cluster="north", role="edge", port=1883),
    Broker(id="north-2", cluster="north", role="edge", port=1884),
    Broker(id="north-hub", cluster="north", role="routing", port=1885),
    Broker(id="south-1", cluster="south", role="edge", port=1886),
    Broker(id="south-2", cluster="south", role="edge", port=1887),
    Broker(id="south-hub", cluster="south", role="routing", port=1888),
)
