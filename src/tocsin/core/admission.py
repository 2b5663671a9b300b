"""Who may connect to a broker, and as what.

A peer broker's link says that it is the user ``$link`` and proves it with the network's secret. Everybody else is
a client: welcome while there is room, under any client id that is not a link's.
"""

from __future__ import annotations

import hmac
from typing import Final

from tocsin.core.session import Accepted, Authenticate, Authenticated, Rejected

LINK_USER: Final = "$link"
LINK_PREFIX: Final = "$link/"  # of a link's client id; the rest is its broker's id
PROPERTY_BROKER: Final = "broker"
PROPERTY_CLUSTER: Final = "cluster"

CLIENT_ID_NOT_VALID = 0x85
BAD_USER_NAME_OR_PASSWORD = 0x86
SERVER_BUSY = 0x89


class Admission:
    """The rule of one broker."""

    def __init__(self, secret: bytes, connections_max: int) -> None:
        self._secret = secret
        self._connections_max = connections_max

    def decide(self, asked: Authenticate, connections: int) -> Authenticated | Rejected:
        """Whether a peer may come in, when so many are in already."""
        if asked.username == LINK_USER:
            proven = hmac.compare_digest(asked.password or b"", self._secret)
            if proven and link_cluster(asked) is not None:
                return Authenticated(cause=asked.cause)
            return Rejected(
                cause=asked.cause, reason_code=BAD_USER_NAME_OR_PASSWORD, reason="not a link of this network"
            )
        if asked.client_id.startswith(LINK_PREFIX):
            reason = f"client ids that begin with {LINK_PREFIX} are for links between brokers"
            return Rejected(cause=asked.cause, reason_code=CLIENT_ID_NOT_VALID, reason=reason)
        if connections >= self._connections_max:
            reason = f"this broker serves no more than {self._connections_max} clients"
            return Rejected(cause=asked.cause, reason_code=SERVER_BUSY, reason=reason)
        return Authenticated(cause=asked.cause)


def link_cluster(peer: Authenticate | Accepted) -> str | None:
    """The cluster that a link comes from; None if the peer is no link."""
    if peer.username != LINK_USER:
        return None
    return dict(peer.user_properties).get(PROPERTY_CLUSTER)
