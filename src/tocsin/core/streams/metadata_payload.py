"""Metadata as clients write it: a JSON object on ``$meta/<topic>``, or user properties of a message.

    read_payload(payload)           {"Room": "410", "old": null} → set Room, take old away; None: forget everything
    read_properties(properties)     ("meta.Room", "410") → set Room; an empty value takes it away; None: no change
                                    ("offer.deadline", "100ms") → set ``$offer``, with all that the message offers

Values in properties are strings, but for ``meta.$permanent``. ``$v`` (``meta.$v``) is the version of the format; who
leaves it out means 1. Both raise ``DescriptionInvalid`` with a sentence for who sent it; the bounds are those of
``model.stream``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.core.quality.judging import OFFER, OFFER_PREFIX
from tocsin.core.quality.texts import QualityInvalid, offer_of, offer_text, properties_of, read_offer
from tocsin.errors import WireError
from tocsin.model.stream import PERMANENT, Diff, Value, diff_problem
from tocsin.model.versions import UNREADABLE, Stated

PROPERTY_PREFIX: Final = "meta."
VERSION: Final = "$v"  # the key of the version: no key of a stream
META: Final = Stated("what a client says of a stream")
_TRUTH: Final = {"true": True, "false": False}

_decoder: msgspec.json.Decoder[dict[str, Value | None] | None] = msgspec.json.Decoder(
    dict[str, Value | None] | None
)


class DescriptionInvalid(WireError):
    """The metadata that a client stated cannot be accepted."""

    reason_code = 0x99  # payload format invalid


def read_payload(payload: bytes) -> Diff | None:
    if not payload:
        return None
    try:
        diff = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DescriptionInvalid(
            f"the payload is not a JSON object of strings, numbers, booleans and null: {error}"
        ) from None
    return diff if diff is None else _checked(_versioned(diff))


def read_properties(properties: Sequence[tuple[str, str]]) -> Diff | None:
    said = dict(properties_of(PROPERTY_PREFIX, properties))
    offered = properties_of(OFFER_PREFIX, properties)
    if offered:
        said[OFFER] = _offer(offered)
    if not said:
        return None
    diff: dict[str, Value | None] = {key: value or None for key, value in said.items()}
    if said.get(PERMANENT) in _TRUTH:
        diff[PERMANENT] = _TRUTH[said[PERMANENT]]
    return _checked(_versioned(diff))


def _versioned(diff: dict[str, Value | None]) -> Diff:
    """The metadata without their version, which has to be a known one."""
    if VERSION in diff:
        try:
            META.check(said if (said := diff.pop(VERSION)) is not None else "null")
        except UNREADABLE as error:
            raise DescriptionInvalid(str(error)) from None
    return diff


def _offer(offered: list[tuple[str, str]]) -> str:
    """What a message offers, as text; ``offer.`` alone with an empty value takes it back."""
    if offered == [("", "")]:
        return ""
    try:
        # How strong a publisher is, it says of itself, and not of the stream: others may be there.
        return offer_text(msgspec.structs.replace(offer_of(offered), strength=None))
    except QualityInvalid as error:
        raise DescriptionInvalid(error.problem) from None


def _checked(diff: Diff) -> Diff:
    problem = diff_problem(diff)
    if problem is not None:
        raise DescriptionInvalid(problem)
    offered = diff.get(OFFER)
    if offered is not None:
        try:
            return {**diff, OFFER: offer_text(read_offer(str(offered)))}
        except QualityInvalid as error:
            raise DescriptionInvalid(error.problem) from None
    return diff
