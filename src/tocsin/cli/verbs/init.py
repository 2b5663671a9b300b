"""``tocsin init``: a settings file to begin with, and the network's own authority."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tocsin.cli.setting_options import DEFAULT_FILE, read
from tocsin.errors import OperatorError
from tocsin.runtime.network.plan import ensure_certificates
from tocsin.runtime.security.credentials import certificates_directory

SETTINGS = """\
# Settings of a Tocsin network. `tocsin config show` says what is in effect, `tocsin config reference` what there is.

network = {network}
state = {state}  # logs, data, and certs/: keys of this network; keep a copy of that

# [nats]
# servers = 3                # the store survives the loss of one of its processes

# [access]
# users = "/etc/tocsin/users"        # made with: tocsin user add NAME
# rules = "/etc/tocsin/rules.toml"   # who may do what; without it, everybody everything
# anonymous = "never"                # default: clients on this machine need no name

# [tls]                              # for clients; the links between brokers have certificates already
# certificate = "/etc/tocsin/broker.pem"
# key = "/etc/tocsin/broker.key"

# Two clusters: an edge broker for clients and a routing broker in each. Links need no setting.

[[brokers]]
id = "north-1"
cluster = "north"
host = "127.0.0.1"           # "0.0.0.0": every address of this machine
port = 1883
# tls_port = 8883

[[brokers]]
id = "north-hub"
cluster = "north"
role = "routing"
port = 1884

[[brokers]]
id = "south-1"
cluster = "south"
port = 1885

[[brokers]]
id = "south-hub"
cluster = "south"
role = "routing"
port = 1886
"""


def init(
    config: Annotated[
        Path,
        typer.Option("-c", "--config", metavar="FILE", help="The settings file to write."),
    ] = DEFAULT_FILE,
    state: Annotated[str, typer.Option("--state", metavar="DIR", help="State directory.")] = ".tocsin",
    network: Annotated[
        str, typer.Option("--network", metavar="NAME", help="Name of the network.")
    ] = "tocsin",
) -> None:
    """Write a first settings file, and make the network's certificate authority in the state directory.

    Nothing is overwritten. An authority that is there already, of a network that ran before, is kept.

        tocsin init

        tocsin init -c /etc/tocsin.toml --state /var/lib/tocsin --network alerts
    """
    if config.exists():
        raise OperatorError(
            f"{config} is there already, and is not overwritten", "Name another file with -c FILE, or edit it"
        )
    text = SETTINGS.format(network=_toml(network), state=_toml(state))
    _write(config, text)
    try:
        settings = read(config, None).settings  # a bad name is refused here, in the words of the settings
        Path(settings.state).mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = ensure_certificates(settings)
    except OperatorError:
        config.unlink()
        raise
    except OSError as error:
        config.unlink()
        raise OperatorError(
            f"the state directory {state} cannot be made: {error.strerror}", "Give another one with --state"
        ) from None
    given = "" if config == DEFAULT_FILE else f" -c {config}"
    typer.echo(f"settings    {config}: brokers, ports, users; read it through")
    typer.echo(f"authority   {certificates_directory(settings.state)}: keep a copy, and let nobody read it")
    typer.echo(f"            {len(authority.certificates())} certificates, for the network's own processes")
    typer.echo(f"next        tocsin doctor{given}, then tocsin up{given}")


def _toml(text: str) -> str:
    """A basic string of TOML."""
    escaped = "".join(f"\\u{ord(each):04x}" if each < " " or each in '"\\\x7f' else each for each in text)
    return f'"{escaped}"'


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
            file.write(text)
    except OSError as error:
        raise OperatorError(
            f"{path} cannot be written: {error.strerror}", "Name another file with -c FILE"
        ) from None
