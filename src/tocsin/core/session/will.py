"""A client's will: whether it can be kept, the message that it becomes, and when that is due.

A will is due when the connection ends in any other way than by a DISCONNECT that says that all is well: at once, or,
if the session outlives the connection, after the will delay, at the latest when the session ends (MQTT 5, 3.1.3.2.2).
A redirected client is not dead: its will waits for MOVE_S, and is dropped when the client arrives.
"""

from __future__ import annotations

from mqtt5 import PublishPacket, QoS, Will

from tocsin.core.machine import Effect
from tocsin.core.session.signals import DelayWill, Publish

MOVE_S = 10  # for a client that is sent to another server to arrive there
_NO_PACKET_ID = 1  # a packet with a QoS must have an id; a will's is never sent, so that any will do


def will_message(will: Will) -> PublishPacket:
    """The PUBLISH that a will becomes."""
    return PublishPacket(
        will.topic,
        will.payload or b"",
        qos=will.qos,
        retain=will.retain,
        packet_id=None if will.qos == QoS.AT_MOST_ONCE else _NO_PACKET_ID,
        payload_format_indicator=will.payload_format_indicator,
        message_expiry_interval=will.message_expiry_interval,
        content_type=will.content_type,
        response_topic=will.response_topic,
        correlation_data=will.correlation_data,
        user_properties=will.user_properties,
    )


def due(will: Will, session_expiry_s: int, *, moving: bool = False) -> Effect:
    """The fate of a will when the connection ends and the session lasts for that long."""
    delay_s = min(will.will_delay_interval, session_expiry_s)
    message = will_message(will)
    if moving:
        return DelayWill(packet=message, delay_s=max(delay_s, MOVE_S), moving=True)
    if delay_s:
        return DelayWill(packet=message, delay_s=delay_s)
    return Publish(packet=message, topic=will.topic, will=True)
