"""A client that is told no address tries a broker of the default settings, then the coordinators' door."""

from __future__ import annotations

import inspect

import pytest

from tocsin.client import AsyncClient, Client
from tocsin.client.address import DEFAULT_SERVERS, read_servers
from tocsin.config import DEFAULT_BROKERS, Settings


@pytest.mark.parametrize("kind", [AsyncClient, Client])
def test_both_clients_go_to_a_broker_then_to_the_door(kind: type) -> None:
    assert inspect.signature(kind).parameters["servers"].default == DEFAULT_SERVERS


def test_the_default_addresses_are_those_of_the_default_settings() -> None:
    broker, door = read_servers(DEFAULT_SERVERS)
    assert (broker.host, broker.port) == (DEFAULT_BROKERS[0].host, DEFAULT_BROKERS[0].port)
    assert door.port == Settings().door.port
    assert door.host == Settings().door.host
