"""Whether one message is for a subscription that has a request.

    judge(request, offered, payload, qos) -> Verdict

It follows from the message alone: from what it says itself of its offer, in user properties, or else from what its
stream offered when it was published. So a message that is read from the log later, or by another broker, gets the same
verdict as one that has just come.

``where`` is about the fields of a JSON object. A field of an object inside it is named with a dot (``reading.value``).
Strings, numbers and booleans can be compared; lists, nulls and strings of more than STRING_MAX characters count as
missing: a payload has a megabyte, and there may be thousands of conditions on one topic. A payload that is no JSON
object satisfies nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import msgspec

from tocsin.core.quality.matching import NOTHING, Mismatch, meets, mismatch
from tocsin.core.quality.ownership import Owners
from tocsin.core.quality.texts import (
    QualityInvalid,
    condition_of,
    offer_of,
    offer_said,
    offer_text,
    properties_of,
    request_of,
)
from tocsin.model.publication import Publication
from tocsin.model.quality import Ownership
from tocsin.model.stream import Value

OFFER: Final = "$offer"  # the key of a stream's metadata that has its offer
OFFER_PREFIX: Final = "offer."  # of user properties
STRING_MAX: Final = 4_096  # characters of a field: as much as all metadata of a stream have by default

_decoder: Final = msgspec.json.Decoder()


class Verdict(Enum):
    """What becomes of a message."""

    DELIVER = "deliver"
    LEAVE_OUT = "leave out"  # by its partition, or its fields
    MISMATCH = "mismatch"


def offer_in(metadata: Mapping[str, Value] | None) -> str:
    """The text of what a stream offers; empty: nothing."""
    said = metadata.get(OFFER) if metadata else None
    return said if isinstance(said, str) else ""


def offered_by_message(message: Publication) -> str | None:
    """The text of what a message says itself that its stream offers; None: it says nothing."""
    properties = message.user_properties
    if not properties or not any(key.startswith(OFFER_PREFIX) for key, _ in properties):
        return None
    return _said(properties)


@lru_cache(1_024)
def _said(properties: tuple[tuple[str, str], ...]) -> str:
    try:
        return offer_text(offer_of(properties_of(OFFER_PREFIX, properties)))
    except QualityInvalid:
        return ""


def lifespan_s(offered: str) -> int | None:
    """How long a message of a stream is of use that does not say so itself, in whole seconds; None: for ever."""
    offer = offer_said(offered)
    if offer is None or offer.lifespan_us is None:
        return None
    return -(-offer.lifespan_us // 1_000_000)


class Judge:
    """Judges messages. The fields of the last payload are remembered: most messages have several subscribers."""

    __slots__ = ("_fields", "_payload")

    def __init__(self) -> None:
        self._payload = b""
        self._fields: Mapping[str, Value] = {}

    def judge(self, request: str, offered: str, payload: bytes, qos: int) -> Verdict:
        """By the canonical text of a request, and the text of an offer."""
        verdict = _compared(request, offered, qos)
        if verdict is not Verdict.DELIVER:
            return verdict
        asked = request_of(request)
        if asked.where is not None and not condition_of(asked.where).matches(self._fields_of(payload)):
            return Verdict.LEAVE_OUT
        return Verdict.DELIVER

    def fits(self, request: str, message: Publication) -> bool:
        """Whether a message that says itself what its stream offered is for a subscription."""
        said = offered_by_message(message)
        offered = offer_in(message.keys) if said is None else said
        return self.judge(request, offered, message.payload, message.qos) is Verdict.DELIVER

    def _fields_of(self, payload: bytes) -> Mapping[str, Value]:
        if payload is not self._payload:
            self._payload, self._fields = payload, fields_of(payload)
        return self._fields


def owns(
    owners: Owners,
    request: str,
    message: Publication,
    strength: int,
    now_us: int,
    is_lost: Callable[[str], bool] | None = None,
) -> bool:
    """Whether a message is the owner's, of a subscription that requests exclusive ownership; all others hear everybody.

    ``strength``: of its publisher, if the message does not say it. The patience is the subscriber's deadline, or else
    that of the stream. Without ``is_lost``, as in a log that is read later, a lease without a message is over.
    """
    asked = request_of(request)
    if asked.ownership is not Ownership.EXCLUSIVE or not message.client:
        return True
    said = offered_by_message(message)
    offer = offer_said(offer_in(message.keys) if said is None else said) or NOTHING
    if offer.strength is not None:
        strength = offer.strength
    patience_us = offer.deadline_us if asked.deadline_us is None else asked.deadline_us
    if is_lost is None and offer.lease_us is not None:
        patience_us = min(offer.lease_us, patience_us or offer.lease_us)
    lost = is_lost or (lambda client: False)
    key = (request, message.topic)
    return owners.passes(key, message.client, strength, now_us, patience_us=patience_us, is_lost=lost)


@lru_cache(4_096)
def _compared(request: str, offered: str, qos: int) -> Verdict:
    """The verdict without ``where``: the same for most messages of a stream."""
    asked, offer = request_of(request), (offer_said(offered) if offered else None) or NOTHING
    if not meets(offer, asked):
        return Verdict.LEAVE_OUT
    return Verdict.DELIVER if mismatch(offer, asked, qos) is None else Verdict.MISMATCH


@lru_cache(4_096)
def why(request: str, offered: str, qos: int) -> Mismatch | None:
    """Why a message was not for a subscription."""
    return mismatch((offer_said(offered) if offered else None) or NOTHING, request_of(request), qos)


def fields_of(payload: bytes) -> Mapping[str, Value]:
    """The fields of a JSON object, as predicates see them; none of anything else."""
    if payload.lstrip()[:1] != b"{":
        return {}
    try:
        found = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return _Fields(found)


class _Fields(Mapping[str, Value]):
    """The fields, looked up as they are asked for: a payload may have thousands, and a predicate asks for few."""

    __slots__ = ("_object",)

    def __init__(self, found: dict[str, Any]) -> None:
        self._object = found

    def __getitem__(self, key: str) -> Value:
        found: Any = self._object.get(key)
        if found is None and "." in key:
            found = self._object
            for step in key.split("."):
                found = found.get(step) if isinstance(found, dict) else None
        if not isinstance(found, str | int | float | bool):
            raise KeyError(key)
        if isinstance(found, str) and len(found) > STRING_MAX:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._object)

    def __len__(self) -> int:
        return len(self._object)
