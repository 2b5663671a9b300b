"""Callers: what a client says of itself at the coordinator's door.

An MQTT client says it in its CONNECT. User properties are those of ``core.survival.homes``, and two more, both
optional: PROPERTY_NEAR names the cluster that the client is near to, PROPERTY_WANTS (repeated) the topic filters that
it is going to subscribe to. A client without MQTT says the same in an HTTP request (``coordinator.door.lookup``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec
from mqtt5 import ConnectPacket

from tocsin.core.survival.homes import (
    GUEST,
    HOME_MAX_CHARS,
    PROPERTY_HOME,
    PROPERTY_STAY,
    PROPERTY_VERSION,
)
from tocsin.model.network import Scheme
from tocsin.model.versions import UNREADABLE
from tocsin.wire.mqtt.connect import V5, Version

PROPERTY_NEAR: Final = "near"  # client → door: the cluster that it is near to
PROPERTY_WANTS: Final = "wants"  # also: a topic filter that it is going to subscribe to; repeated
WANTS_MAX: Final = 16  # that are looked at: each costs a look-up at every broker
NAME_MAX_CHARS: Final = 256  # of a client id, a cluster or a filter that is remembered or looked up


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A client that asks for its broker."""

    client: str = ""  # its client id; empty: the broker will give it one
    source: str = ""  # its address, as connections are counted by
    scheme: Scheme = Scheme.MQTT  # by which it came, and by which it is sent on
    version: Version = V5
    home: str = ""  # the id or an address of the broker that it calls its home
    near: str = ""  # a cluster
    wants: tuple[str, ...] = ()  # topic filters
    follows: bool = False  # it states its home, as clients do that follow redirects
    stays: bool = False  # it could not reach where it was sent


def caller_of(packet: ConnectPacket, version: Version, scheme: Scheme, source: str) -> Caller:
    """The caller that a CONNECT introduces. A newer version of what it says of its home is passed over."""
    client = packet.client_id if len(packet.client_id) <= NAME_MAX_CHARS else ""
    caller = Caller(client=client, source=source, scheme=scheme, version=version)
    if version != V5:
        return caller
    said = dict(packet.user_properties)
    try:
        GUEST.check(said.get(PROPERTY_VERSION))
    except UNREADABLE:
        return caller
    home = said.get(PROPERTY_HOME, "")
    return msgspec.structs.replace(
        caller,
        home=home if len(home) <= HOME_MAX_CHARS else "",
        near=said.get(PROPERTY_NEAR, "")[:NAME_MAX_CHARS],
        wants=wanted(value for name, value in packet.user_properties if name == PROPERTY_WANTS),
        follows=PROPERTY_HOME in said,
        stays=PROPERTY_STAY in said,
    )


def wanted(filters: Iterable[str]) -> tuple[str, ...]:
    """The filters that are looked at, of those that a client names."""
    return tuple(islice((each for each in filters if len(each) <= NAME_MAX_CHARS), WANTS_MAX))
