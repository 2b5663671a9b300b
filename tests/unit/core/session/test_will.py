"""What becomes of a will."""

from __future__ import annotations

import pytest
from mqtt5 import PublishPacket, QoS, Will

from tocsin.core.session.signals import DelayWill, Publish
from tocsin.core.session.will import due, will_message


def test_a_will_becomes_a_message_with_all_that_it_says() -> None:
    will = Will(
        "t",
        payload=b"p",
        qos=QoS.AT_LEAST_ONCE,
        retain=True,
        payload_format_indicator=1,
        message_expiry_interval=9,
        content_type="c",
        response_topic="r",
        correlation_data=b"d",
        will_delay_interval=5,
        user_properties=[("k", "v")],
    )
    assert will_message(will) == PublishPacket(
        "t",
        b"p",
        qos=QoS.AT_LEAST_ONCE,
        retain=True,
        packet_id=1,
        payload_format_indicator=1,
        message_expiry_interval=9,
        content_type="c",
        response_topic="r",
        correlation_data=b"d",
        user_properties=[("k", "v")],
    )
    assert will_message(Will("t")) == PublishPacket("t", b"")


@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "waits_s"), [(0, 0, 0), (0, 9, 0), (9, 0, 0), (5, 9, 5), (9, 5, 5)]
)
def test_a_will_is_due_when_its_delay_or_the_session_is_over(
    delay_s: int, expiry_s: int, waits_s: int
) -> None:
    effect = due(Will("t", will_delay_interval=delay_s), expiry_s)
    message = PublishPacket("t", b"")
    if waits_s:
        assert effect == DelayWill(packet=message, delay_s=waits_s)
    else:
        assert effect == Publish(packet=message, topic="t", will=True)
