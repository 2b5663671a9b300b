"""``tocsin bridge dds``: mirror the DDS endpoints of a local network across the broker network."""

from __future__ import annotations

import functools
import importlib.util
import re
from typing import Annotated, Final, Literal

import typer

from tocsin.bridge.dds.mapping import Names
from tocsin.bridge.settings import NAME, Tocsin
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
from tocsin.config import Log, Settings
from tocsin.errors import OperatorError, ProgramMissing
from tocsin.runtime.process import run
from tocsin.wire.mqtt.topics import TopicInvalid, check_topic

PATTERNS_MAX: Final = 256


def dds(
    domain: Annotated[
        int, typer.Option("--domain", min=0, max=232, help="DDS domain of the local network.")
    ] = 0,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="PATTERN",
            help="DDS topics to mirror, with * and ?; all by default. Repeatable.",
        ),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(
            "--deny", metavar="PATTERN", help="DDS topics to leave out, before --allow. Repeatable."
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TOPIC", help="MQTT topic above the DDS topics.")
    ] = "dds",
    payload: Annotated[
        Literal["cdr", "json"],
        typer.Option(
            "--payload",
            help="cdr: samples as they are; json: for MQTT clients that are to read them. Both are understood.",
        ),
    ] = "cdr",
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="Name of this bridge; each bridge of a network has its own."
        ),
    ] = "dds",
    network: Annotated[
        str,
        typer.Option(
            "--network",
            metavar="NAME",
            help="Name of the network: of its bridges in one domain, one works and the others stand by.",
        ),
    ] = "tocsin",
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
    """Mirror the DDS endpoints of a local network, until SIGTERM or Ctrl-C.

    The bridge finds the endpoints of its domain by itself. What is written to a DDS topic is published to PREFIX/TOPIC;
    what is published there is written for those who read it in this domain. Run one bridge in each local network.

        tocsin bridge dds --domain 0 --at mqtt://127.0.0.1:1883

        tocsin bridge dds --allow 'rt/*' --deny 'rt/rosout' --payload json --name hall-2
    """
    for label, text in (("--name", name), ("--network", network)):
        if not re.match(NAME, text):
            raise OperatorError(
                f"{label} is {text!r}",
                "Use up to 32 lower-case letters, digits and hyphens, a letter or digit first",
            )
    try:
        check_topic(prefix)
    except TopicInvalid as error:
        raise OperatorError(
            f"--prefix is no topic: {error}", "Give a topic without wildcards, such as dds"
        ) from None
    if prefix.startswith("$") or prefix.endswith("/"):
        raise OperatorError(
            f"--prefix is {prefix!r}", "Give a topic that neither begins with $ nor ends with /"
        )
    patterns = tuple(allow or ("*",)), tuple(deny or ())
    if sum(map(len, patterns)) > PATTERNS_MAX:
        raise OperatorError("there are too many patterns", f"Give {PATTERNS_MAX} at most")
    if importlib.util.find_spec("cyclonedds") is None:
        raise ProgramMissing("cyclonedds (a Python package)", "Install the extra: pip install 'tocsin[dds]'")
    from tocsin.bridge.dds.main import Plan, serve  # it imports what only the extra brings

    where = Tocsin(
        at=(address,) if address else (),
        user=user,
        password=password,
        cafile=authorities,
        certificate=certificate,
        key=key,
        insecure=insecure,
    )
    plan = Plan(name, network, domain, Names(prefix, *patterns), payload, make_client(where, broker, state))
    process = Settings(state=str(state), log=Log())
    raise typer.Exit(run(f"bridge-{name}", process, functools.partial(serve, plan)))
