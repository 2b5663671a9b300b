"""Where the settings say that clients find a broker."""

from __future__ import annotations

from tocsin.config import Broker


def test_clients_find_a_broker_where_it_listens() -> None:
    broker = Broker(id="a", cluster="c", host="0.0.0.0", advertise="a.example", port=1883, wss_port=8443)
    assert broker.entrances() == {"mqtt": "a.example:1883", "wss": "a.example:8443"}
    assert Broker(id="a", cluster="c", host="::1", port=1).entrances() == {"mqtt": "[::1]:1"}


def test_what_is_said_to_be_public_counts_instead() -> None:
    public = ("mqtt://b.example:11883", "mqtts://[2001:db8::1]:443")
    broker = Broker(id="a", cluster="c", port=1883, ws_port=80, public=public)
    assert broker.entrances() == {
        "mqtt": "b.example:11883",
        "ws": "127.0.0.1:80",
        "mqtts": "[2001:db8::1]:443",
    }
