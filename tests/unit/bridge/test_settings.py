"""The settings of a bridge: every bad value is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tocsin.bridge.limits import Limits
from tocsin.bridge.peer import Login
from tocsin.bridge.rules import InRule
from tocsin.bridge.settings import Amqp, BridgeSettings, check, endpoint_of, read_settings, rules_of
from tocsin.errors import OperatorError

FILE = """
name = "plant"
[tocsin]
at = ["mqtts://north.example.org:8883"]
user = "bridge"
[amqp]
url = "amqps://amqp.example.org"
[[in]]
address = "orders"
topic = "plant/{subject}"
[[out]]
filter = "plant/#"
address = "telemetry"
[[out]]
query = 'Location/Room = "410"'
address = "room"
[[out]]
channel = "Near/alice"
address = "alice"
[limits]
window = 7
"""


def test_a_file_says_all_there_is_to_say() -> None:
    settings = read_settings(FILE, "bridge.toml")
    ins, outs = rules_of(settings, "bridge.toml")
    check(settings, ins, outs)
    assert (settings.name, settings.dead_topic, settings.limits.window) == ("plant", "bridge/plant/dead", 7)
    assert ins == (InRule("orders", "plant/{subject}"),)
    assert [each.subscription for each in outs] == [
        "plant/#",
        '$query/Location/Room = "410"',
        "$channel/Near/alice",
    ]


def test_the_file_of_the_how_to_is_taken_and_has_the_defaults() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "bridge-amqp.md").read_text()
    file = page.partition("## A settings file")[2].split("```")[1]
    settings = read_settings(file, "bridge-amqp.md")
    check(settings, *rules_of(settings, "bridge-amqp.md"))
    assert settings.limits == Limits()
    assert settings.dead_topic == BridgeSettings(name="plant").dead_topic
    defaults = Amqp()
    for name in ("sasl", "hostname", "cleartext", "durable_links"):
        assert getattr(settings.amqp, name) == getattr(defaults, name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = 5", "name"),
        ('name = "Plant 1"', "name"),
        ("windows = 5", "windows"),
        ("[limits]\nwindow = 0", "window"),
        ("[limits]\nmessage_max_bytes = 100", "message_max_bytes"),
        ("[limits]\nvolatile_qos = 2", "volatile_qos"),
        ('[amqp]\nsasl = "gssapi"', "sasl"),
        ("[[in]]\naddress = 'x'", "topic"),
        ("name = ", "bridge.toml"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(OperatorError) as refused:
        read_settings(text, "bridge.toml")
    assert words in str(refused.value) and "bridge.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[out]]\naddress = 'x'", "[[out]] 1 says not what"),
        ("[[out]]\naddress = 'x'\nfilter = 'a'\nquery = 'b = 1'", "says 2 what"),
        ("[[out]]\naddress = 'x'\nfilter = 'a/#/b'", "[[out]] 1"),
        ("[[in]]\naddress = 'x'\ntopic = 'a/#'", "[[in]] 1"),
    ],
)
def test_a_bad_rule_is_refused_with_its_number(text: str, words: str) -> None:
    with pytest.raises(OperatorError) as refused:
        rules_of(read_settings(text, "bridge.toml"), "bridge.toml")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (BridgeSettings(limits=Limits(window_bytes=2_000)), "window_bytes"),
        (BridgeSettings(dead="a/#"), "dead"),
        (BridgeSettings(dead="$SYS/dead"), "$"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: BridgeSettings, words: str) -> None:
    with pytest.raises(OperatorError) as refused:
        check(settings, (InRule("a", "b"),), ())
    assert words in str(refused.value)


def test_an_address_gives_host_port_and_user() -> None:
    place = endpoint_of(Amqp(url="amqps://al%40x:s%3Acret@amqp.example.org"), "")
    assert (place.host, place.port, place.secure) == ("amqp.example.org", 5671, True)
    assert place.login == Login("PLAIN", "al@x", "s:cret")
    assert str(place) == "amqps://amqp.example.org:5671"
    place = endpoint_of(Amqp(url="[::1]:5673"), "")
    assert (place.host, place.port, place.login.mechanism) == ("::1", 5673, "ANONYMOUS")
    place = endpoint_of(Amqp(url="amqps://h", certificate="c.pem", hostname="vhost:x"), "")
    assert (place.login.mechanism, place.hostname) == ("EXTERNAL", "vhost:x")
    assert endpoint_of(Amqp(user="a", password="file"), "environment").login.password == "environment"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "http://x"}, "amqp://host"),
        ({"url": "amqp://x:y"}, "amqp://host"),
        ({"url": "amqp://x/queue"}, "amqp://host"),
        ({"url": "amqp://"}, "amqp://host"),
        ({"url": "amqp://x", "cafile": "ca.pem"}, "amqps://"),
        ({"user": "alice"}, "TOCSIN_AMQP_PASSWORD"),
        ({"sasl": "plain"}, "user"),
        ({"sasl": "external"}, "certificate"),
        ({"url": "amqp://a:b@broker.example.org"}, "clear text"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OperatorError) as refused:
        endpoint_of(Amqp(**given), "")
    assert words in str(refused.value)


def test_a_password_is_not_repeated_in_an_error() -> None:
    with pytest.raises(OperatorError) as refused:
        endpoint_of(Amqp(url="http://alice:secret@x"), "")
    assert "secret" not in str(refused.value)
    with pytest.raises(OperatorError) as refused:
        endpoint_of(Amqp(url="amqp://alice:secret@x:port"), "")
    assert "secret" not in str(refused.value)


def test_clear_text_is_allowed_at_home_and_where_the_operator_says_so() -> None:
    for url in ("amqp://a:b@127.0.0.1", "amqp://a:b@localhost", "amqp://a:b@[::1]"):
        assert endpoint_of(Amqp(url=url), "").login.mechanism == "PLAIN"
    assert endpoint_of(Amqp(url="amqp://a:b@x", cleartext=True), "").login.mechanism == "PLAIN"
