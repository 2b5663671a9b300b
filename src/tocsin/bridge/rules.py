"""Rules of a bridge: which messages go where.

| rule | written | means |
| --- | --- | --- |
| in | ``orders=plant/orders`` | messages of the AMQP address ``orders`` are published to the topic |
| | ``orders=plant/{subject}`` | the same, to a topic that each message names |
| out | ``plant/#=telemetry`` | messages of the topic filter go to the AMQP address ``telemetry`` |
| | ``query:Room = "410"=room`` | those of all streams that satisfy the query |
| | ``channel:Near/alice=alice`` | those of a channel with its values |

The last ``=`` of the text separates the two sides. A topic may have places that a message fills: ``{subject}`` is its
subject, ``{property:NAME}`` one of its application properties.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

import msgspec

from tocsin.core.filters import read_filter
from tocsin.errors import OperatorError, QueryInvalid, WireError
from tocsin.query import encode_filter, parse
from tocsin.wire.mqtt.topics import CHANNEL_PREFIX, QUERY_PREFIX, STREAMS_PREFIX, check_topic

RULES_MAX: Final = 64  # each has a session at the AMQP peer, and an outward one a session of the network
ADDRESS_MAX_BYTES: Final = 1_024
QUERY, CHANNEL = "query:", "channel:"
SUBJECT, PROPERTY = "subject", "property:"
_PLACE: Final = re.compile(r"\{([^{}]*)\}")


class InRule(msgspec.Struct, frozen=True):
    """Messages of an AMQP address are published to a topic."""

    address: str
    topic: str  # perhaps with places

    @property
    def link(self) -> str:
        """The name of its AMQP link: the same in every process that has the rule."""
        return f"in-{_digest(self.address, self.topic)}"

    def __str__(self) -> str:
        return f"{self.address} → {self.topic}"


class OutRule(msgspec.Struct, frozen=True):
    """Messages of a subscription go to an AMQP address."""

    subscription: str  # the filter that brokers are asked for
    address: str
    said: str = ""  # the left side as the operator wrote it

    @property
    def link(self) -> str:
        """The name of its AMQP link and of its session: the same in every process that has the rule."""
        return f"out-{_digest(self.subscription, self.address)}"

    def __str__(self) -> str:
        return f"{self.said or self.subscription} → {self.address}"


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


def read_in(text: str) -> InRule:
    """An inward rule of the command line. Raises ``OperatorError``."""
    address, topic = _sides(text, "--in", "ADDRESS=TOPIC, such as orders=plant/orders")
    return made_in(address, topic, f"--in {text!r}")


def read_out(text: str) -> OutRule:
    """An outward rule of the command line. Raises ``OperatorError``."""
    source, address = _sides(text, "--out", "FILTER=ADDRESS, such as 'plant/#=telemetry'")
    return made_out(source, address, f"--out {text!r}")


def _sides(text: str, option: str, form: str) -> tuple[str, str]:
    left, separator, right = (part.strip() for part in text.rpartition("="))
    if not separator or not left or not right:
        raise OperatorError(f"{option} {text!r} is not a rule", f"Write {form}")
    return left, right


def made_in(address: str, topic: str, where: str) -> InRule:
    """An inward rule, checked. Raises ``OperatorError``; ``where`` says which one is wrong."""
    _check_address(address, where)
    for place in _PLACE.findall(topic):
        if place != SUBJECT and not (place.startswith(PROPERTY) and len(place) > len(PROPERTY)):
            raise OperatorError(
                f"{where}: there is no {{{place}}} to fill a topic with", "Use {subject} or {property:NAME}"
            )
    example = _PLACE.sub("x", topic)
    try:
        check_topic(example)
    except WireError as error:
        raise OperatorError(f"{where}: {error}", "Give a topic to publish to, without + and #") from None
    if example.startswith("$") or topic.startswith("{"):
        raise OperatorError(
            f"{where}: a message could go to a topic of the network itself, which begin with $",
            "Begin the topic with a level of your own, such as plant/{subject}",
        )
    return InRule(address, topic)


def made_out(source: str, address: str, where: str) -> OutRule:
    """An outward rule, checked. Raises ``OperatorError``; ``where`` says which one is wrong."""
    _check_address(address, where)
    subscription = source
    try:
        if source.startswith(QUERY):
            predicate = source.removeprefix(QUERY).strip()
            parse(predicate)
            subscription = QUERY_PREFIX + encode_filter(predicate)
        elif source.startswith(CHANNEL):
            subscription = CHANNEL_PREFIX + source.removeprefix(CHANNEL).strip()
        read_filter(subscription)
    except (WireError, QueryInvalid) as error:
        raise OperatorError(
            f"{where}: {error}", "Give a topic filter, query:PREDICATE or channel:NAME/VALUE"
        ) from None
    if subscription.startswith(STREAMS_PREFIX):
        raise OperatorError(
            f"{where}: a listing of streams has no messages to carry", "Use query: with the same predicate"
        )
    return OutRule(subscription, address, source)


def _check_address(address: str, where: str) -> None:
    if not address or len(address.encode(errors="replace")) > ADDRESS_MAX_BYTES or "\0" in address:
        raise OperatorError(
            f"{where}: an AMQP address has 1 to {ADDRESS_MAX_BYTES} bytes",
            "Name a queue or a topic of the peer",
        )


def check_rules(ins: tuple[InRule, ...], outs: tuple[OutRule, ...]) -> None:
    """Raise ``OperatorError`` if the rules cannot be used together."""
    if not ins and not outs:
        raise OperatorError(
            "the bridge has no rules",
            "Add --in ADDRESS=TOPIC or --out FILTER=ADDRESS, or a settings file with -c",
        )
    if len(ins) + len(outs) > RULES_MAX:
        raise OperatorError(
            f"{len(ins) + len(outs)} rules are more than the {RULES_MAX} of one bridge",
            "Start several bridges with different names",
        )
    links = [each.link for each in ins] + [each.link for each in outs]
    rules: tuple[InRule | OutRule, ...] = (*ins, *outs)
    for rule in rules:
        if links.count(rule.link) > 1:
            raise OperatorError(f"the rule {rule} is there twice", "Leave one of them out")


def fill(topic: str, subject: str | None, properties: dict[str, str]) -> str:
    """The topic of a message. ``ValueError`` says what the message lacks."""

    def value(found: re.Match[str]) -> str:
        place = found.group(1)
        text = subject if place == SUBJECT else properties.get(place.removeprefix(PROPERTY))
        if not text:
            raise ValueError(f"it has no {place.replace(':', ' ')}, which the topic {topic} needs")
        return text

    return _PLACE.sub(value, topic)
