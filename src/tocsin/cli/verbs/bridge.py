"""``tocsin bridge``: connect a network with AMQP brokers and with DDS."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import typer

from tocsin.bridge.main import Plan, serve
from tocsin.bridge.rules import read_in, read_out
from tocsin.bridge.settings import Amqp, BridgeSettings, check, endpoint_of, read_settings, rules_of
from tocsin.cli.bridge_client import make_client
from tocsin.cli.target import (
    DEFAULT_STATE,
    AddressOption,
    AuthoritiesOption,
    BrokerOption,
    CertificateOption,
    InsecureOption,
    KeyOption,
    PasswordOption,
    StateOption,
    UserOption,
)
from tocsin.cli.verbs.bridge_dds import dds
from tocsin.config import Log, Settings
from tocsin.errors import OperatorError
from tocsin.runtime.process import run
from tocsin.runtime.security.tls import client_context

PASSWORD_VARIABLE: Final = "TOCSIN_AMQP_PASSWORD"
FILE_MAX_BYTES: Final = 1 << 20

app = typer.Typer(help="Connect a network with AMQP brokers and with DDS.", no_args_is_help=True)


@app.callback()
def bridge() -> None:
    """Connect a network with AMQP brokers and with DDS."""


app.command()(dds)


@app.command()
def amqp(
    ins: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            metavar="ADDRESS=TOPIC",
            help="Publish the messages of an AMQP address to a topic; {subject} and {property:NAME} in the topic "
            "are filled from each message. Repeatable.",
        ),
    ] = None,
    outs: Annotated[
        list[str] | None,
        typer.Option(
            "--out",
            metavar="FILTER=ADDRESS",
            help="Send the messages of a topic filter, of query:PREDICATE or of channel:NAME/VALUE to an AMQP "
            "address. Repeatable.",
        ),
    ] = None,
    url: Annotated[
        str,
        typer.Option(
            "--amqp",
            metavar="URL",
            help="The AMQP 1.0 broker or router: amqp://host:5672, amqps://host:5671.",
        ),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            "-c", "--config", metavar="FILE", help="Settings file; options override it, rules add to it."
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name of this bridge: its sessions have it, and loops are found by it. Two bridges of a network "
            "need two names.",
        ),
    ] = "",
    dead: Annotated[
        str,
        typer.Option("--dead", metavar="TOPIC", help="Topic of dead messages; by default bridge/NAME/dead."),
    ] = "",
    amqp_user: Annotated[
        str,
        typer.Option(
            "--amqp-user", metavar="NAME", help=f"AMQP user; its password is in {PASSWORD_VARIABLE}."
        ),
    ] = "",
    sasl: Annotated[
        Literal["auto", "plain", "external", "anonymous"] | None,
        typer.Option(
            "--sasl",
            help="How to log in to the AMQP peer. auto: plain with a user, external with a certificate, "
            "else anonymous.",
        ),
    ] = None,
    amqp_cafile: Annotated[
        str,
        typer.Option(
            "--amqp-cafile", metavar="FILE", help="PEM file with the authorities to trust for AMQP."
        ),
    ] = "",
    amqp_cert: Annotated[
        str,
        typer.Option("--amqp-cert", metavar="FILE", help="PEM file with the client certificate for AMQP."),
    ] = "",
    amqp_key: Annotated[str, typer.Option("--amqp-key", metavar="FILE", help="PEM file with its key.")] = "",
    window: Annotated[
        int | None, typer.Option("--window", min=1, max=10_000, help="Messages in flight, for each rule.")
    ] = None,
    tries: Annotated[
        int | None,
        typer.Option("--tries", min=0, help="Tries before a message is dead; 0 means without a bound."),
    ] = None,
    broker: BrokerOption = "",
    address: AddressOption = "",
    state: StateOption = DEFAULT_STATE,
    user: UserOption = "",
    password: PasswordOption = "",
    authorities: AuthoritiesOption = "",
    certificate: CertificateOption = "",
    key: KeyOption = "",
    insecure: InsecureOption = False,
) -> None:
    """Carry messages between an AMQP 1.0 broker or router and the network, until SIGTERM or Ctrl-C.

    An AMQP message is accepted only when the network has it on disk, and a message of the network is acknowledged only
    when the AMQP peer has accepted it. So nothing is lost when the bridge, a broker or the AMQP peer is killed; a
    message may then come twice, with the same message-id.

        tocsin bridge amqp --amqp amqp://127.0.0.1:5672 --in 'orders=plant/orders' --out 'plant/alarms/#=alarms'

        tocsin bridge amqp -c bridge.toml

        tocsin bridge amqp --amqp amqps://amqp.example.org --amqp-user tocsin --out 'query:Room = "410"=room-410'
    """
    settings, where = _read(config)
    settings = _override(settings, name=name, dead=dead)
    settings = msgspec.structs.replace(
        settings,
        amqp=_override(
            settings.amqp,
            url=url,
            user=amqp_user,
            sasl=sasl,
            cafile=amqp_cafile,
            certificate=amqp_cert,
            key=amqp_key,
        ),
        limits=_checked(_override(settings.limits, window=window, tries=tries)),
        tocsin=_override(
            settings.tocsin,
            at=(address,) if address else None,
            user=user,
            password=password,
            cafile=authorities,
            certificate=certificate,
            key=key,
            insecure=insecure,
        ),
    )
    inward, outward = rules_of(settings, where)
    inward += tuple(map(read_in, ins or ()))
    outward += tuple(map(read_out, outs or ()))
    check(_checked(settings), inward, outward)
    endpoint = endpoint_of(settings.amqp, os.environ.get(PASSWORD_VARIABLE, ""))
    plan = Plan(
        settings.name,
        settings.dead_topic,
        settings.limits,
        inward,
        outward,
        endpoint,
        _amqp_tls(settings.amqp) if endpoint.secure else None,
        settings.amqp.durable_links,
        make_client(settings.tocsin, broker, state),
    )
    process = Settings(state=str(state), log=Log())
    raise typer.Exit(run(f"bridge-{settings.name}", process, functools.partial(serve, plan)))


def _read(config: Path | None) -> tuple[BridgeSettings, str]:
    if config is None:
        return BridgeSettings(), "settings"
    try:
        with config.open("rb") as file:
            text = file.read(FILE_MAX_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(
            f"the settings file {config} cannot be read: {error}", "Give a readable file with -c FILE"
        ) from None
    if len(text) > FILE_MAX_BYTES:
        raise OperatorError(
            f"the settings file {config} is larger than {FILE_MAX_BYTES >> 20} MiB", "Shorten it"
        )
    return read_settings(text, str(config)), str(config)


def _override(section: Any, **options: Any) -> Any:
    """A section with the options that were given: None, and what is empty, was not."""
    given = {name: value for name, value in options.items() if value not in (None, "") and value is not False}
    return msgspec.structs.replace(section, **given)


def _checked(section: Any) -> Any:
    """A section whose options are within the bounds of the file's. Raises ``OperatorError``."""
    try:
        return msgspec.convert(msgspec.to_builtins(section), type(section))
    except msgspec.ValidationError as error:
        raise OperatorError(f"an option has a value that cannot be: {error}", "See --help") from None


def _amqp_tls(amqp: Amqp) -> Any:
    try:
        return client_context(
            authorities=amqp.cafile, certificate=amqp.certificate, key=amqp.key, insecure=amqp.insecure
        )
    except OperatorError as error:
        raise OperatorError(f"for the AMQP peer: {error.problem}", error.remedy) from None
