"""The network's nouns: brokers, their roles and clusters, the routes between them, and the addresses of machines."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """The role of a broker."""

    EDGE = "edge"  # serves the clients of its cluster
    ROUTING = "routing"  # carries traffic between clusters, as a member of a tier; at most one on any path
    STANDBY = "standby"  # idle until it is promoted into a failed broker's place


class Scheme(StrEnum):
    """How a client speaks to a broker."""

    MQTT = "mqtt"
    MQTTS = "mqtts"  # over TLS
    WS = "ws"  # over WebSocket
    WSS = "wss"  # over both


class Entrance(msgspec.Struct, frozen=True):
    """Where clients of one scheme come in."""

    scheme: Scheme
    address: str  # host:port, as a server reference has it


class BrokerInfo(msgspec.Struct, frozen=True):
    """A broker as the others know it."""

    id: str
    cluster: str
    role: Role
    host: str  # where links reach it
    port: int
    entrances: tuple[Entrance, ...] = ()  # where clients do, at most one of a scheme
    certified: str = ""  # the name in its certificate, if that is not its id: a standby in another's place …
    lent_by: str = ""  # … and the cluster that the standby is from; empty: an earlier release does not say it
    may_stand_by: bool = False  # an edge broker that may be recruited; a standby that says so was recruited
    tier: str = ""  # of a routing broker: its tier; empty: its cluster
    outward: bool = False  # other clusters cannot dial it

    @property
    def recruited(self) -> bool:
        """Whether it is an edge broker by its settings, and stands by now."""
        return self.may_stand_by and self.role == Role.STANDBY

    def dials(self, other: BrokerInfo) -> bool:
        """Whether it can dial another one; if not, it waits for a connection from there."""
        return not other.outward or self.cluster == other.cluster

    @property
    def certificate_name(self) -> str:
        """The name that it proves over links."""
        return self.certified or self.id


class Scope(StrEnum):
    """Which messages a route is for."""

    ORIGIN = "origin"  # published by this broker's own clients
    TRANSIT = "transit"  # arrived over a link from another cluster


class Route(msgspec.Struct, frozen=True):
    """Send messages whose topic matches ``filter`` on to ``peer``: a broker, or a tier (``core.tiers.slots``)."""

    scope: Scope
    peer: str
    filter: str


# ── messages between machines ────────────────────────────────────────────────────────────────────────────────

Address = str  # "coordinator", "broker/north-1": who a message is for

COORDINATOR: Address = "coordinator"  # whichever leads: it alone hears this


def coordinator_address(name: str) -> Address:
    return f"coordinator/{name}"


def broker_address(broker_id: str) -> Address:
    return f"broker/{broker_id}"


class Message(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Base of all control messages. Tagged by class name, so that one union decodes them all."""
