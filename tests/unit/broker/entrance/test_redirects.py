"""Clients that say where they are at home: what they are told, and where they are sent."""

from __future__ import annotations

from tocsin.broker.entrance.redirects import Redirects
from tocsin.core.coordination.participant.signals import GuestCame, GuestWent
from tocsin.core.machine import Event
from tocsin.core.session.signals import Accepted, Authenticate
from tocsin.model.network import BrokerInfo, Entrance, Role, Scheme
from tocsin.wire.mqtt.connect import V5

MQTT = Scheme.MQTT


def broker(name: str) -> BrokerInfo:
    return BrokerInfo(name, "north", Role.EDGE, "127.0.0.1", 1, (Entrance(MQTT, f"{name}:1883"),))


class Told:
    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.places: dict[str, BrokerInfo] = {}
        self.others = ["a:1", "b:2"]
        self.redirects = Redirects(
            broker("here"), self.posted.append, lambda scheme: self.others, self.places.get
        )

    def came(self, *properties: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        accepted = Accepted(
            client_id="c",
            version=V5,
            clean_start=True,
            keep_alive_s=0,
            session_expiry_s=0,
            username=None,
            user_properties=properties,
            send_max_bytes=None,
            receive_max=10,
            topic_alias_max=0,
            will_delay_s=0,
        )
        return self.redirects.came(accepted, MQTT)

    def sent_on(self, *properties: tuple[str, str]) -> str | None:
        asked = Authenticate(client_id="c", username=None, password=None, user_properties=properties)
        return self.redirects.sent_on(asked, MQTT)


def test_a_client_that_names_its_home_is_told_where_it_could_go() -> None:
    told = Told()
    assert told.came(("home", "there")) == (
        ("home.v", "1"),
        ("broker", "here"),
        ("server", "a:1"),
        ("server", "b:2"),
    )
    assert [type(each) for each in told.posted] == [GuestCame]
    told.others = ["c:3"]
    assert [(client, packet.payload) for client, packet in told.redirects.news()] == [("c", b"c:3")]
    told.redirects.went("c")
    told.redirects.went("c")
    assert [type(each) for each in told.posted] == [GuestCame, GuestWent]
    assert list(told.redirects.news()) == []


def test_a_home_property_of_a_newer_version_is_ignored_and_answered() -> None:
    told = Told()
    newer = (("home", "gone"), ("home.v", "2"))
    assert told.came(*newer) == (("home.v", "1"),)
    assert told.posted == []
    told.places["gone"] = broker("other")
    assert told.sent_on(*newer) is None
    assert told.sent_on(("home", "gone"), ("home.v", "1")) == "other:1883"


def test_who_says_nothing_or_too_much_is_told_nothing() -> None:
    told = Told()
    assert told.came() == told.came(("home", "")) == told.came(("home", "x" * 1_000)) == ()
    assert told.posted == []


def test_a_client_of_a_lost_home_is_redirected_unless_it_stays() -> None:
    told = Told()
    home = ("home", "gone")
    assert told.sent_on(home) is None
    told.places["gone"] = broker("other")
    assert told.sent_on(home) == "other:1883"
    assert told.sent_on(home, ("stay", "yes")) is None
    assert told.sent_on() is None
    told.places["gone"] = broker("here")
    assert told.sent_on(home) is None
