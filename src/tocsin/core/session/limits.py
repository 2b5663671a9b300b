"""The limits of one client's session: settings that every part of this room reads."""

from __future__ import annotations

import msgspec

from tocsin.ports import PACKET_MAX_BYTES, TOPIC_MAX_BYTES


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one client's session. Times are in microseconds unless named otherwise."""

    connect_deadline_us: int = 10_000_000  # from the connection to the CONNACK
    packet_max_bytes: int = PACKET_MAX_BYTES  # so that every packet can be stored
    subscriptions_max: int = 1_000
    subscriptions_max_bytes: int = 256 << 10  # of their names, with what is stored beside each
    topic_max_bytes: int = TOPIC_MAX_BYTES  # so that every topic can be stored
    topic_max_levels: int = 32
    client_id_max_bytes: int = 256
    keep_alive_max_s: int = 3_600  # a longer or no keep-alive is shortened to this one (MQTT 5); 0: never
    early_max_bytes: int = 1 << 20  # of packets that come before the client is authenticated
    # Whether subscription identifiers are advertised and accepted; the shell must then send them.
    subscription_ids: bool = True
    session_expiry_max_s: int = 604_800  # seven days; who asks for longer, or for ever, gets this
    # Messages at QoS 1 and 2 that an MQTT 5 client may send before the first is answered.
    receive_max: int = 100
    # Received packet ids of QoS 2 that are remembered; where they are stored, ``core.delivery.record_ids`` bounds their
    # bytes.
    inbound_max: int = 10_000
    topic_alias_max: int = 16  # topics that an MQTT 5 client may publish to by a number
    shared: bool = True  # whether shared subscriptions are advertised and granted; the shell must then share
