"""The broker, the transport and the user of a client command.

The broker is named by address (``host:port``, or a URL with the scheme ``mqtt``, ``mqtts``, ``ws`` or ``wss``), by its
id, or it is the first one of the network that runs here. If nobody is named and that one is away, the coordinators'
door says where else to go. Options about certificates mean TLS.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from tocsin.cli.options import made_by
from tocsin.client import AsyncClient
from tocsin.client.address import DEFAULT_DOOR, SECURE, Server, read_address
from tocsin.config import DEFAULT_BROKERS
from tocsin.errors import OperatorError
from tocsin.runtime.network import mdns
from tocsin.runtime.network.directory import BrokerAddress, read_network
from tocsin.runtime.security.tls import client_context

BrokerOption = Annotated[
    str,
    typer.Option(
        "--broker", "-b", metavar="ID", help="Id of a broker of the network on this machine, such as north-1."
    ),
]
AddressOption = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="HOST:PORT",
        help="Address of a broker anywhere, or a URL: mqtts://host:port, ws://…, wss://…; "
        "`mdns`: the network that answers in the local network.",
    ),
]
StateOption = Annotated[
    Path, typer.Option("--state", metavar="DIR", help="State directory of the network on this machine.")
]
UserOption = Annotated[str, typer.Option("--user", "-u", metavar="NAME", help="User name.")]
PasswordOption = Annotated[
    str,
    typer.Option(
        "--password",
        metavar="TEXT",
        help="Password. Other users of this machine can see it in the process list; leave it out, and it is taken "
        "from TOCSIN_PASSWORD or asked for.",
    ),
]
AuthoritiesOption = Annotated[
    str,
    typer.Option(
        "--cafile",
        metavar="FILE",
        help="PEM file with the authorities to trust, instead of the system's.",
    ),
]
CertificateOption = Annotated[
    str,
    typer.Option("--cert", metavar="FILE", help="PEM file with your client certificate."),
]
KeyOption = Annotated[
    str,
    typer.Option("--key", metavar="FILE", help="PEM file with its key, if the key is in a file of its own."),
]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure", help="Do not check the broker's certificate; open to interception."),
]
DEFAULT_STATE = Path(".tocsin")
MDNS: Final = "mdns"
PASSWORD_VARIABLE: Final = "TOCSIN_PASSWORD"


def caller(
    broker: BrokerOption = "",
    address: AddressOption = "",
    state: StateOption = DEFAULT_STATE,
    user: UserOption = "",
    password: PasswordOption = "",
    authorities: AuthoritiesOption = "",
    certificate: CertificateOption = "",
    key: KeyOption = "",
    insecure: InsecureOption = False,
) -> AsyncClient:
    """A client as the options describe it, not connected yet; ``OperatorError`` if they cannot be used."""
    secure = bool(authorities or certificate or key or insecure)
    if address == MDNS:
        server, *others = announced(secure)
    else:
        server = find_broker(broker, address, state, secure=secure)
        others = [] if broker or address else find_doors(state, server)
    context = None
    if server.secure:
        context = client_context(authorities=authorities, certificate=certificate, key=key, insecure=insecure)
    return AsyncClient(
        [server, *others],
        username=user or None,
        password=password_of(user, password),
        tls=context,
        redial=False,
    )


calls = made_by(caller, "client")  # of commands that talk to a broker


def find_broker(broker: str, address: str, state: Path, *, secure: bool = False) -> Server:
    """Where to connect to, over TLS if ``secure``; ``OperatorError`` if there is no such broker, or no such way."""
    if address:
        return _parsed(address, secure)
    network = read_network(state)
    if network is None:
        known = {each.id: BrokerAddress.of(each) for each in DEFAULT_BROKERS}
    else:
        known = {each.id: each for each in network.brokers}
    if broker and broker not in known:
        raise OperatorError(f"there is no broker {broker!r} here", f"Name one of {', '.join(known)}")
    chosen = known[broker] if broker else next(iter(known.values()))
    entrances = {
        scheme: entrance
        for scheme, entrance in chosen.entrances().items()
        if not secure or scheme in SECURE.values()
    }
    if not entrances:
        raise OperatorError(
            f"broker {chosen.id} has no port for {'TLS' if secure else 'clients'}",
            "Leave the options about certificates out, or set its tls_port" if secure else "Name another one",
        )
    scheme = next(each for each in ("mqtt", "mqtts", "ws", "wss") if each in entrances)
    return Server(*entrances[scheme], scheme)


def announced(secure: bool) -> list[Server]:
    """The doors that coordinators announce in the local network. Raises ``OperatorError``."""
    found = [Server(host, port, scheme) for scheme, host, port in asyncio.run(mdns.find())]
    fitting = [each for each in found if each.secure == secure]
    if not fitting:
        raise OperatorError(
            f"no network with a door{' for TLS' if secure else ''} answers here",
            "Name an address with --at, or set door.host and door.mdns where the network runs",
        )
    return fitting


def find_doors(state: Path, like: Server) -> list[Server]:
    """The coordinators' doors for who speaks as one does to this server: they know where else to go."""
    network = read_network(state)
    if network is None:
        found: tuple[str, ...] = (DEFAULT_DOOR,)
    else:
        entrances = network.door.entrances if network.door is not None else ()
        found = tuple(f"{scheme}://{address}" for scheme, address in entrances)
    doors = [read_address(each) for each in found]
    return [each for each in doors if each.scheme == like.scheme]


def _parsed(address: str, secure: bool) -> Server:
    server = read_address(address, "mqtts" if secure else "mqtt")
    if secure and not server.secure:
        raise OperatorError(
            f"{address} is not over TLS, so that certificates are of no use",
            f"Write {SECURE[server.scheme]}:// or leave the options about certificates out",
        )
    return server


def password_of(user: str, given: str) -> bytes | None:
    """The password of a user: given, of the environment, or asked for. Raises ``OperatorError``."""
    if not user:
        if given:
            raise OperatorError("a password without a user is of no use", "Add --user NAME")
        return None
    text = given or os.environ.get(PASSWORD_VARIABLE)
    if text is None:
        if not sys.stdin.isatty():
            raise OperatorError(
                f"there is no terminal to ask for the password of {user}", f"Set {PASSWORD_VARIABLE}"
            )
        text = str(typer.prompt(f"password of {user}", hide_input=True, err=True))
    return text.encode()
