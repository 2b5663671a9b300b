"""Which broker a client command talks to: named by address, by id, or the first one of the network that runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tocsin.config import DEFAULT_BROKERS
from tocsin.errors import OperatorError
from tocsin.runtime.directory import read_network

BrokerOption = Annotated[
    str,
    typer.Option(
        "--broker", "-b", metavar="ID", help="A broker of the network that runs here, by its id: north-1."
    ),
]
AddressOption = Annotated[
    str, typer.Option("--at", metavar="HOST:PORT", help="The broker's address, wherever it runs.")
]
StateOption = Annotated[
    Path, typer.Option("--state", metavar="DIR", help="The state directory of the network that runs here.")
]
DEFAULT_STATE = Path(".tocsin")


def find_broker(broker: str, address: str, state: Path) -> tuple[str, int]:
    """The host and port to connect to; ``OperatorError`` if there is no such broker."""
    if address:
        return _parsed(address)
    network = read_network(state)
    if network is None:
        known = {each.id: (each.host, each.port) for each in DEFAULT_BROKERS}
    else:
        known = {each.id: (each.host, each.port) for each in network.brokers}
    if not broker:
        return next(iter(known.values()))
    if broker not in known:
        raise OperatorError(f"there is no broker {broker!r} here", f"Name one of {', '.join(known)}")
    return known[broker]


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise OperatorError(f"{address!r} is not an address", "Write it as host:port, such as 127.0.0.1:1883")
    return host.strip("[]"), int(port)
