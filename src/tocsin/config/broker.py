"""The settings of one broker, and the brokers of a network that names none."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tocsin.config.section import NAME, Section

Role = Literal["edge", "routing", "standby"]

LISTENERS = ("port", "tls_port", "ws_port", "wss_port")  # fields of a broker that are ports
SCHEMES = dict(zip(LISTENERS, ("mqtt", "mqtts", "ws", "wss"), strict=True))  # of the addresses of each


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
    host: Annotated[str, Meta(description="Address on which it listens for MQTT.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Port for MQTT. 0: choose a free one.")] = 0
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
    advertise: Annotated[
        str,
        Meta(
            max_length=253,
            description="Name or address at which clients and other brokers reach it. Empty: its `host`, "
            "or this machine's loopback address if that is every address.",
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

    def reachable_at(self) -> str:
        """Where others find it."""
        return self.advertise or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)

    def entrances(self) -> dict[str, str]:
        """Where clients find it: host:port by scheme, once its ports are chosen."""
        found = self.reachable_at()
        host = f"[{found}]" if ":" in found else found
        own = {SCHEMES[name]: f"{host}:{port}" for name, port in self.ports().items()}
        return own | {scheme: address for scheme, _, address in (url.partition("://") for url in self.public)}

    def ports(self) -> dict[str, int]:
        """The ports on which it listens, by the setting that says so; 0 is still to be chosen."""
        named = {name: getattr(self, name) for name in LISTENERS}
        return {name: port for name, port in named.items() if port >= 0}


DEFAULT_BROKERS = (
    Broker(id="north-1", cluster="north", role="edge", port=1883),
    Broker(id="north-2", cluster="north", role="edge", port=1884),
    Broker(id="north-hub", cluster="north", role="routing", port=1885),
    Broker(id="south-1", cluster="south", role="edge", port=1886),
    Broker(id="south-2", cluster="south", role="edge", port=1887),
    Broker(id="south-hub", cluster="south", role="routing", port=1888),
)
