"""What keeps a socket from listening is said as it is."""

from __future__ import annotations

import pytest

from tocsin.errors import AddressElsewhere, PortTaken
from tocsin.runtime.machines.listening import listen_on


def test_an_address_of_another_machine_is_not_called_taken() -> None:
    with pytest.raises(AddressElsewhere, match="does not have that address"):
        listen_on("192.0.2.1", 1_883, "broker north-1", "port")  # an address for documentation


def test_a_port_that_somebody_has_is_taken() -> None:
    with (
        listen_on("127.0.0.1", 0, "broker north-1", "port") as first,
        pytest.raises(PortTaken, match="the port is taken"),
    ):
        listen_on("127.0.0.1", first.getsockname()[1], "broker north-2", "port")
