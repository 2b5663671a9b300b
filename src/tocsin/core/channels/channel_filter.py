"""Subscriptions to channels: ``$channel/Name/value/value`` and ``$channel/Name?parameter=value&parameter=value``.

    request = read_channel_filter("$channel/EmergenciesNearMe/alice")       raises FilterInvalid
    bound = bind(request, channel)                                   same; names the channel's signature
    bound.values, bound.topic

The form is told by what follows the name: a slash, and then a level for each parameter, in their order; or a question
mark, and then each parameter by its name, in any order. Names of channels and parameters are taken whatever the case of
their letters. In values ``%2F %2B %23 %25 %26`` stand for ``/ + # % &``, in either case; a ``%`` before anything
else is itself.

Several texts can ask for the same: rules of access are about ``bound.topic``, of which there is one for each backend
subscription.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from tocsin.core.channels.parameter_values import ValueInvalid, read_value, written
from tocsin.model.catalogue import PARAMETERS_MAX, Channel, is_name
from tocsin.model.results import Value, k_of
from tocsin.wire.mqtt.topics import CHANNEL_PREFIX, FilterInvalid

_MEANT: Final = {"%2F": "/", "%2B": "+", "%23": "#", "%25": "%", "%26": "&"}
_ESCAPE: Final = re.compile("%(?:2[356BF])", re.IGNORECASE)
_WRITTEN: Final = str.maketrans({meant: escape for escape, meant in _MEANT.items()})


class ChannelFilter(msgspec.Struct, frozen=True):
    """A subscription to a channel, before it is checked against a definition."""

    name: str  # as the client wrote it
    channel: str  # its name, as it was written
    values: tuple[str, ...] = ()  # in the order of the parameters
    named: tuple[tuple[str, str], ...] | None = None  # or (name, value), if it is written with names


class Bound(msgspec.Struct, frozen=True):
    """A request that fits its channel: the backend subscription ``k``."""

    channel: str  # the name as it was defined
    values: tuple[Value, ...]
    k: str = (
        ""  # follows from the two: a digest, which is asked for ten times for each subscription of a session
    )

    def __post_init__(self) -> None:
        force_setattr(self, "k", k_of(self.channel, self.values))

    @property
    def topic(self) -> str:
        """Its canonical topic."""
        return write_channel_filter(self.channel, tuple(map(written, self.values)))


def read_channel_filter(topic: str) -> ChannelFilter:
    """The request that the name of a subscription states. Raises ``FilterInvalid``."""
    rest = topic.removeprefix(CHANNEL_PREFIX)
    for wildcard, escape in (("+", "%2B"), ("#", "%23")):
        if wildcard in rest:
            at = len(CHANNEL_PREFIX) + rest.index(wildcard)
            problem = (
                f"a channel takes no wildcards; {wildcard} at position {at} is written {escape} in a value"
            )
            raise ChannelUnfit(topic, problem)
    ends = [at for at in (rest.find("/"), rest.find("?")) if at >= 0]
    name, mark, behind = _cut(rest, min(ends, default=len(rest)))
    if not is_name(name):
        problem = (
            f"{name!r} is no name of a channel; write $channel/Name/value, or $channel/Name?parameter=value"
        )
        raise ChannelUnfit(topic, problem)
    if mark == "?":
        return ChannelFilter(topic, name, named=_named(topic, behind))
    levels = behind.split("/") if mark else []
    if len(levels) > PARAMETERS_MAX:
        raise ChannelUnfit(topic, f"a channel has at most {PARAMETERS_MAX} parameters")
    return ChannelFilter(topic, name, tuple(map(_decoded, levels)))


def _cut(text: str, at: int) -> tuple[str, str, str]:
    return text[:at], text[at : at + 1], text[at + 1 :]


def _named(topic: str, text: str) -> tuple[tuple[str, str], ...]:
    pairs = text.split("&") if text else []
    if len(pairs) > PARAMETERS_MAX:
        raise ChannelUnfit(topic, f"a channel has at most {PARAMETERS_MAX} parameters")
    found: list[tuple[str, str]] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ChannelUnfit(topic, f"{pair!r} is no parameter; write name=value, and %26 for & in a value")
        found.append((name, _decoded(value)))
    return tuple(found)


def _decoded(text: str) -> str:
    return _ESCAPE.sub(lambda escape: _MEANT[escape[0].upper()], text)


def write_channel_filter(
    channel: str, values: tuple[str, ...] = (), named: Mapping[str, str] | None = None
) -> str:
    """The name of a subscription that ``read_channel_filter`` understands so."""
    if named is not None:
        pairs = (f"{name}={value.translate(_WRITTEN)}" for name, value in named.items())
        return f"{CHANNEL_PREFIX}{channel}?{'&'.join(pairs)}"
    return CHANNEL_PREFIX + "/".join((channel, *(each.translate(_WRITTEN) for each in values)))


def bind(request: ChannelFilter, channel: Channel) -> Bound:
    """Hold a request to the signature of its channel. Raises ``FilterInvalid``, which names the signature."""
    texts = request.values if request.named is None else _in_order(request, request.named, channel)
    if len(texts) != len(channel.parameters):
        raise _unfit(
            request,
            channel,
            f"it has {_count(len(texts))}, and the channel takes {_count(len(channel.parameters))}",
        )
    values: list[Value] = []
    for parameter, text in zip(channel.parameters, texts, strict=True):
        try:
            values.append(read_value(parameter.type, text))
        except ValueInvalid as error:
            raise _unfit(request, channel, f"{parameter.name} = {text[:40]!r}: {error}") from None
    return Bound(channel.name, tuple(values))


def _in_order(
    request: ChannelFilter, named: tuple[tuple[str, str], ...], channel: Channel
) -> tuple[str, ...]:
    given: dict[str, str] = {}
    known = {each.name.lower() for each in channel.parameters}
    for name, text in named:
        if name.lower() not in known:
            raise _unfit(request, channel, f"there is no parameter {name[:40]!r}")
        if name.lower() in given:
            raise _unfit(request, channel, f"the parameter {name} is given twice")
        given[name.lower()] = text
    missing = [each.name for each in channel.parameters if each.name.lower() not in given]
    if missing:
        raise _unfit(request, channel, f"the parameter {missing[0]} is missing")
    return tuple(given[each.name.lower()] for each in channel.parameters)


def _count(values: int) -> str:
    return "1 value" if values == 1 else f"{values} values"


def _unfit(request: ChannelFilter, channel: Channel, problem: str) -> FilterInvalid:
    return ChannelUnfit(request.name, f"{problem}; it is {channel.signature}")


class ChannelUnfit(FilterInvalid):
    """A request that does not fit; its problem begins with what matters, since reasons are cut short."""

    def __init__(self, topic: str, problem: str) -> None:
        super().__init__(topic, problem)
        self.problem = problem


class UnknownChannel(FilterInvalid):
    """No channel of that name is defined."""

    def __init__(self, topic: str, channel: str) -> None:
        super().__init__(topic, "there is no such channel")
        self.channel = channel
        self.problem = f"there is no channel {channel!r}; SHOW CHANNELS lists those that there are"
