"""The settings of a bridge: a file in TOML, which options of the command line override.

    name = "plant"                       # of this bridge: the names of its sessions, and what loops are found by
    dead = "bridge/plant/dead"           # the topic of dead messages

    [tocsin]
    at = ["mqtts://north.example.org:8883"]
    user = "bridge"

    [amqp]
    url = "amqps://amqp.example.org"
    user = "tocsin"

    [[in]]
    address = "orders"
    topic = "plant/orders"

    [[out]]
    filter = "plant/#"                   # or query = '…', or channel = "Name/value"
    address = "telemetry"

    [limits]
    window = 100

Passwords are better in the environment: TOCSIN_PASSWORD and TOCSIN_AMQP_PASSWORD.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta

from tocsin.bridge.limits import Limits
from tocsin.bridge.peer import Login
from tocsin.bridge.rules import CHANNEL, QUERY, InRule, OutRule, check_rules, made_in, made_out
from tocsin.errors import OperatorError, WireError
from tocsin.wire.mqtt.topics import check_topic

PORTS: Final = {"amqp": 5672, "amqps": 5671}
NAME: Final = r"^[a-z0-9][a-z0-9-]{0,31}$"
FORM: Final = "Write it as amqp://host:5672, or amqps://host:5671 for TLS"

Sasl = Literal["auto", "plain", "external", "anonymous"]


class InSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[in]]``."""

    address: str
    topic: str


class OutSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[out]]``; it has one of the first three."""

    filter: str = ""
    query: str = ""
    channel: str = ""
    address: str


class Tocsin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the network is."""

    at: tuple[str, ...] = ()
    user: str = ""
    password: str = ""
    cafile: str = ""
    certificate: str = ""
    key: str = ""
    insecure: bool = False


class Amqp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the AMQP peer is."""

    url: str = "amqp://127.0.0.1:5672"
    hostname: str = (
        ""  # that the peer is asked for, where it differs from the URL's; "vhost:NAME" for RabbitMQ
    )
    user: str = ""
    password: str = ""
    sasl: Sasl = "auto"  # by the password or the certificate that there is
    cleartext: bool = False  # PLAIN without TLS to another machine
    durable_links: bool = True
    cafile: str = ""
    certificate: str = ""
    key: str = ""
    insecure: bool = False


class BridgeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a bridge can be told."""

    name: Annotated[str, Meta(pattern=NAME)] = "amqp"
    dead: str = ""  # empty: bridge/NAME/dead
    tocsin: Tocsin = Tocsin()
    amqp: Amqp = Amqp()
    limits: Limits = Limits()
    ins: Annotated[tuple[InSection, ...], Meta(max_length=1_000)] = msgspec.field(default=(), name="in")
    outs: Annotated[tuple[OutSection, ...], Meta(max_length=1_000)] = msgspec.field(default=(), name="out")

    @property
    def dead_topic(self) -> str:
        return self.dead or f"bridge/{self.name}/dead"


class Endpoint(msgspec.Struct, frozen=True):
    """An AMQP peer: where it is, and how it is asked."""

    host: str
    port: int
    secure: bool
    hostname: str
    login: Login

    def __str__(self) -> str:
        return f"{'amqps' if self.secure else 'amqp'}://{self.host}:{self.port}"


def read_settings(text: str, where: str) -> BridgeSettings:
    """The settings of a file. Raises ``OperatorError``."""
    try:
        return msgspec.toml.decode(text, type=BridgeSettings)
    except msgspec.DecodeError as error:
        raise OperatorError(f"{where}: {error}", "See docs/how-to/bridge-amqp.md for all settings") from None


def rules_of(settings: BridgeSettings, where: str) -> tuple[tuple[InRule, ...], tuple[OutRule, ...]]:
    """The rules of a file. Raises ``OperatorError``."""
    ins = tuple(
        made_in(each.address, each.topic, f"{where}: [[in]] {number}")
        for number, each in enumerate(settings.ins, 1)
    )
    outs = []
    for number, each in enumerate(settings.outs, 1):
        place = f"{where}: [[out]] {number}"
        sources = [
            each.filter,
            each.query and QUERY + each.query,
            each.channel and CHANNEL + each.channel,
        ]
        given = [source for source in sources if source]
        if len(given) != 1:
            raise OperatorError(
                f"{place} says {len(given) or 'not'} what to carry", "Give one of filter, query and channel"
            )
        outs.append(made_out(given[0], each.address, place))
    return ins, tuple(outs)


def check(settings: BridgeSettings, ins: tuple[InRule, ...], outs: tuple[OutRule, ...]) -> None:
    """Raise ``OperatorError`` if the parts do not fit together."""
    check_rules(ins, outs)
    limits = settings.limits
    if limits.window_bytes < limits.message_max_bytes:
        raise OperatorError(
            f"limits.window_bytes = {limits.window_bytes} has no room for one message of "
            f"limits.message_max_bytes = {limits.message_max_bytes}",
            "Make the first larger, or the second smaller",
        )
    try:
        check_topic(settings.dead_topic)
    except WireError as error:
        raise OperatorError(f"dead: {error}", "Give a topic to publish dead messages to") from None
    if settings.dead_topic.startswith("$"):
        raise OperatorError(
            f"dead = {settings.dead_topic!r} is a topic of the network itself",
            "Give one that does not begin with $",
        )


def endpoint_of(amqp: Amqp, password: str) -> Endpoint:
    """The AMQP peer that the settings name; ``password`` is of the environment. Raises ``OperatorError``."""
    try:
        parts = urlsplit(amqp.url if "://" in amqp.url else f"amqp://{amqp.url}")
        port = parts.port
    except ValueError as error:
        raise OperatorError(
            f"{_hidden(amqp.url)!r} is not an address of an AMQP peer: {error}", FORM
        ) from None
    if parts.scheme not in PORTS or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise OperatorError(f"{_hidden(amqp.url)!r} is not an address of an AMQP peer", FORM)
    secure = parts.scheme == "amqps"
    if (amqp.cafile or amqp.certificate or amqp.key or amqp.insecure) and not secure:
        raise OperatorError(
            f"amqp://{parts.hostname} is not over TLS, so that certificates are of no use", "Write amqps://"
        )
    user = amqp.user or unquote(parts.username or "")
    secret = password or amqp.password or unquote(parts.password or "")
    login = _login(amqp, user, secret)
    if login.mechanism == "PLAIN" and not secure and not amqp.cleartext and not _local(parts.hostname):
        raise OperatorError(
            f"the password of {user} would go to {parts.hostname} in clear text",
            "Use amqps://, or allow it with amqp.cleartext = true",
        )
    return Endpoint(
        parts.hostname, port or PORTS[parts.scheme], secure, amqp.hostname or parts.hostname, login
    )


def _login(amqp: Amqp, user: str, password: str) -> Login:
    mechanism = amqp.sasl
    if mechanism == "auto":
        mechanism = "plain" if user else "external" if amqp.certificate else "anonymous"
    if mechanism == "plain" and not (user and password):
        raise OperatorError(
            "SASL PLAIN needs a user and a password",
            "Set amqp.user (or --amqp-user) and TOCSIN_AMQP_PASSWORD, or choose --sasl anonymous",
        )
    if mechanism == "external" and not amqp.certificate:
        raise OperatorError(
            "SASL EXTERNAL needs a client certificate", "Set amqp.certificate (or --amqp-cert), with amqps://"
        )
    if mechanism == "plain":
        return Login("PLAIN", user, password)
    return Login(mechanism.upper())


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hidden(url: str) -> str:
    """An address without what may be a password."""
    return f"***@{url.rpartition('@')[2]}" if "@" in url else url
