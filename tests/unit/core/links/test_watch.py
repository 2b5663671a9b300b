"""A watch: clients are alarmed when the network counts their broker as lost, and for as long as it does."""

from __future__ import annotations

import pytest
from mqtt5 import ConnAckPacket, PublishPacket

from tocsin.core.links.signals import Heard
from tocsin.core.links.watch import (
    AGAIN_US,
    DEAF_US,
    Alarm,
    CallAgain,
    Called,
    EndCall,
    Hung,
    Joined,
    Watch,
    WatchTimer,
    greeting,
)
from tocsin.core.machine import CancelTimer, Effect, SetTimer, TimerFired
from tocsin.core.survival.watchers import BACK_TOPIC, LOST_TOPIC

AGAIN = SetTimer(name=WatchTimer.AGAIN, delay_us=AGAIN_US)


def called(watch: Watch, said: str | None) -> list[Effect]:
    properties = [] if said is None else [("watch", said)]
    return watch.handle(Called(answer=ConnAckPacket(user_properties=properties)), 0)


def hears(watch: Watch, topic: str, broker: bytes = b"north-1") -> list[Effect]:
    return watch.handle(Heard(packet=PublishPacket(topic, broker)), 0)


def there() -> Watch:
    watch = Watch("north-1")
    assert called(watch, "there") == []
    return watch


def test_a_loss_alarms_clients_at_once_and_again_while_it_lasts() -> None:
    watch = there()
    assert hears(watch, LOST_TOPIC) == [Alarm(), AGAIN]
    assert watch.handle(TimerFired(name=WatchTimer.AGAIN), 0) == [Alarm(), AGAIN]
    assert watch.handle(Joined(), 0) == [Alarm()]
    assert hears(watch, BACK_TOPIC) == [CancelTimer(name=WatchTimer.AGAIN)]
    assert watch.handle(TimerFired(name=WatchTimer.AGAIN), 0) == []
    assert watch.handle(Joined(), 0) == []


def test_a_loss_from_before_the_connection_is_told_with_its_answer() -> None:
    assert called(Watch("north-1"), "lost") == [Alarm(), AGAIN]


@pytest.mark.parametrize(("topic", "broker"), [(LOST_TOPIC, b"north-2"), ("news", b"north-1")])
def test_what_is_not_about_the_broker_alarms_nobody(topic: str, broker: bytes) -> None:
    watch = there()
    assert hears(watch, topic, broker) == []
    assert watch.handle(Joined(), 0) == []


def test_a_server_that_knows_no_watches_is_left_and_asked_again_later() -> None:
    watch = Watch("north-1")
    assert called(watch, None) == [EndCall(), SetTimer(name=WatchTimer.DEAF, delay_us=DEAF_US)]
    assert watch.handle(TimerFired(name=WatchTimer.DEAF), 0) == [CallAgain()]
    assert called(watch, "there") == []


def test_a_broken_watch_knows_nothing_until_it_is_answered_anew() -> None:
    watch = there()
    hears(watch, LOST_TOPIC)
    watch.handle(Hung(), 0)
    assert watch.handle(Joined(), 0) == [] and hears(watch, LOST_TOPIC) == []
    assert called(watch, "lost") == [Alarm(), AGAIN]


def test_a_watch_connection_has_no_session_and_no_will() -> None:
    hello = greeting("c" * 300, "north-1", "ann", b"secret")
    assert hello.clean_start and not hello.session_expiry_interval and hello.will is None
    assert (hello.username, hello.password) == ("ann", b"secret")
    assert len(hello.client_id) < 100 and ("watch", "north-1") in hello.user_properties
