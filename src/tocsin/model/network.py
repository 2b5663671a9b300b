"""The network's nouns: brokers, their roles and clusters, and the routes between them."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What a broker is for."""

    EDGE = "edge"  # serves the clients of its cluster
    ROUTING = "routing"  # carries traffic into its cluster; at most one on any path
    STANDBY = "standby"  # idle until it is promoted into a failed broker's place


class BrokerInfo(msgspec.Struct, frozen=True):
    """A broker as the others know it."""

    id: str
    cluster: str
    role: Role
    host: str  # where clients and links reach it
    port: int


class Scope(StrEnum):
    """Which messages a route is for."""

    ORIGIN = "origin"  # published by this broker's own clients
    TRANSIT = "transit"  # arrived over a link from another cluster


class Route(msgspec.Struct, frozen=True):
    """Send messages whose topic matches ``filter`` on to ``peer``."""

    scope: Scope
    peer: str
    filter: str


class RoutesVersion(msgspec.Struct, frozen=True):
    """Which routes a broker has: numbered by, and meaningful only to, one incarnation of the coordinator."""

    incarnation: int = 0
    number: int = 0
