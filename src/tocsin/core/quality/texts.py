"""Offers and requests as text: policies with their values, separated by commas.

    read_offer("deadline=100ms,ownership=exclusive,strength=5")
    read_request("deadline=200ms,separation=1s,where=temp > 30")
    request_text(request)         canonical: the same request always has the same text
    request_of(text)              of a canonical text; remembered

| policy | values | offered | requested |
| --- | --- | --- | --- |
| ``reliability`` | ``best-effort``, ``reliable`` | yes | yes |
| ``durability`` | ``volatile``, ``transient-local``, ``transient``, ``persistent`` | yes | yes |
| ``deadline``, ``budget``, ``lease`` | a duration | yes | yes |
| ``liveliness`` | ``automatic``, ``manual`` | yes | yes |
| ``ownership`` | ``shared``, ``exclusive`` | yes | yes |
| ``partition`` | names, separated by ``|``; ``*`` and ``?`` are wildcards | yes | yes |
| ``history`` | a number of messages, or ``all`` | yes | yes |
| ``lifespan`` | a duration | yes | |
| ``strength`` | 0 to 2³¹ - 1 | yes | |
| ``separation`` | a duration | | yes |
| ``where`` | a predicate over the fields of a JSON payload | | yes |
| ``strict`` | ``yes``, ``no`` | | yes |

A **duration** is a number and a unit: ``us``, ``ms``, ``s``, ``m``, ``h``, ``d``.

The text of a request is one level of a topic filter, so that ``,``, ``/``, ``+``, ``#`` and ``%`` in its values are
written ``%2C``, ``%2F``, ``%2B``, ``%23`` and ``%25``. In user properties (``request.where``) they are themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from tocsin.errors import QueryInvalid, WireError
from tocsin.model.quality import EVERYTHING, Durability, Liveliness, Offer, Ownership, Reliability, Request
from tocsin.query import Query, parse

TEXT_MAX_BYTES: Final = 1_024  # of an offer or a request: both are kept with what they are about
DURATION_MAX_US: Final = 365 * 86_400_000_000
STRENGTH_MAX: Final = (1 << 31) - 1
PARTITIONS_MAX: Final = 16
HISTORY_MAX: Final = 10_000  # messages of a topic; who wants more says ``all``
_REMEMBERED: Final = 4_096  # requests: at most 4 MB of text

_DURATION: Final = re.compile(r"([0-9]{1,15})(us|ms|s|m|h|d)")
_UNITS: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_ESCAPE: Final = re.compile("%(2C|2F|2B|23|25)", re.IGNORECASE)
_WRITTEN: Final = str.maketrans({c: f"%{ord(c):02X}" for c in "%,/+#"})
_YES: Final = {"yes": True, "no": False}

Kind = TypeVar("Kind", bound=IntEnum)
Quality = TypeVar("Quality", Offer, Request)


class QualityInvalid(WireError):
    """An offer or a request that cannot be read."""

    reason_code = 0x99  # payload format invalid

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────


def _word(kind: IntEnum) -> str:
    return kind.name.lower().replace("_", "-")


def _one_of(kinds: type[Kind]) -> Callable[[str], Kind]:
    words = {_word(kind): kind for kind in kinds}

    def read(text: str) -> Kind:
        found = words.get(text)
        if found is None:
            raise ValueError(f"is {', '.join(words)}, not {text!r}")
        return found

    return read


def _duration(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"is a whole number and one of us, ms, s, m, h, d (as 100ms), not {text!r}")
    size = int(found[1]) * _UNITS[found[2]]
    if not 0 < size <= DURATION_MAX_US:
        raise ValueError(f"is more than nothing and at most 365d, not {text!r}")
    return size


def _strength(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= STRENGTH_MAX):
        raise ValueError(f"is a whole number from 0 to {STRENGTH_MAX}, not {text!r}")
    return int(text)


def _history(text: str) -> int:
    if text == "all":
        return EVERYTHING
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= HISTORY_MAX):
        raise ValueError(f"is a whole number from 1 to {HISTORY_MAX}, or all, not {text!r}")
    return int(text)


def _partition(text: str) -> tuple[str, ...]:
    names = tuple(sorted({name.strip() for name in text.split("|")}))
    if not all(names):
        raise ValueError("has an empty name; names are separated by |")
    if len(names) > PARTITIONS_MAX:
        raise ValueError(f"has {len(names)} names; at most {PARTITIONS_MAX} are taken")
    return names


def _where(text: str) -> str:
    try:
        return parse(text).text
    except QueryInvalid as error:
        raise ValueError(f"cannot be read, character {error.at + 1}: {error.problem}") from None


def _yes(text: str) -> bool:
    if text not in _YES:
        raise ValueError(f"is yes or no, not {text!r}")
    return _YES[text]


def _duration_text(size: int) -> str:
    unit = next(unit for unit in ("d", "h", "m", "s", "ms", "us") if size % _UNITS[unit] == 0)
    return f"{size // _UNITS[unit]}{unit}"


_BOTH: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "reliability": ("reliability", _one_of(Reliability)),
    "durability": ("durability", _one_of(Durability)),
    "deadline": ("deadline_us", _duration),
    "budget": ("budget_us", _duration),
    "liveliness": ("liveliness", _one_of(Liveliness)),
    "lease": ("lease_us", _duration),
    "ownership": ("ownership", _one_of(Ownership)),
    "partition": ("partition", _partition),
    "history": ("history", _history),
}
_OFFERED: Final = {**_BOTH, "lifespan": ("lifespan_us", _duration), "strength": ("strength", _strength)}
_REQUESTED: Final = {
    **_BOTH,
    "separation": ("separation_us", _duration),
    "where": ("where", _where),
    "strict": ("strict", _yes),
}


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────


def read_offer(text: str) -> Offer:
    """Raises ``QualityInvalid``."""
    return offer_of(_divided("offer", text))


def read_request(text: str) -> Request:
    """Raises ``QualityInvalid``."""
    return request_from(_divided("request", text))


def offer_of(said: Iterable[tuple[str, str]]) -> Offer:
    """The offer of policies and their values; raises ``QualityInvalid``."""
    offer = Offer(**_read("offer", said, _OFFERED))
    if offer.strength is not None and offer.ownership is not Ownership.EXCLUSIVE:
        raise QualityInvalid("offer: strength is of exclusive ownership; say ownership=exclusive as well")
    _check_lease("offer", offer.liveliness, offer.lease_us)
    _check_history("offer", offer.durability, offer.history)
    _check_size("offer", offer_text(offer))
    return offer


def request_from(said: Iterable[tuple[str, str]]) -> Request:
    """The request of policies and their values; raises ``QualityInvalid``."""
    request = Request(**_read("request", said, _REQUESTED))
    deadline, separation = request.deadline_us, request.separation_us
    if deadline is not None and separation is not None and separation > deadline:
        raise QualityInvalid(
            "request: separation is longer than deadline, so that each deadline would be missed"
        )
    _check_lease("request", request.liveliness, request.lease_us)
    _check_history("request", request.durability, request.history)
    _check_size("request", request_text(request))
    return request


def _check_lease(what: str, liveliness: Liveliness | None, lease_us: int | None) -> None:
    if liveliness is Liveliness.MANUAL and lease_us is None:
        raise QualityInvalid(f"{what}: liveliness=manual needs a lease, as lease=5s")


def _check_history(what: str, durability: Durability | None, history: int | None) -> None:
    if history is not None and not durability:
        raise QualityInvalid(
            f"{what}: history is of what lasts; say durability=transient-local or more as well"
        )


def _check_size(what: str, text: str) -> None:
    size = len(text.encode())
    if size > TEXT_MAX_BYTES:
        raise QualityInvalid(f"{what}: it has {size} bytes; at most {TEXT_MAX_BYTES} are taken")


def _divided(what: str, text: str) -> list[tuple[str, str]]:
    if len(text.encode()) > 3 * TEXT_MAX_BYTES:  # each of its characters may be an escape
        raise QualityInvalid(f"{what}: it is longer than {TEXT_MAX_BYTES} bytes")
    said = []
    for part in text.split(","):
        policy, equals, value = part.partition("=")
        if not equals:
            raise QualityInvalid(f"{what}: {_shown(part)} is no policy with a value, as deadline=100ms")
        said.append((policy.strip(), _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), value.strip())))
    return said


def _read(
    what: str, said: Iterable[tuple[str, str]], policies: Mapping[str, tuple[str, Callable[[str], Any]]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for policy, value in said:
        if policy not in policies:
            raise QualityInvalid(
                f"{what}: there is no policy {_shown(policy)}; there are {', '.join(policies)}"
            )
        field, read = policies[policy]
        if field in found:
            raise QualityInvalid(f"{what}: {policy} is said twice")
        try:
            found[field] = read(value)
        except ValueError as error:
            raise QualityInvalid(f"{what}: {policy} {error}") from None
    if not found:
        raise QualityInvalid(f"{what}: it says nothing; there are {', '.join(policies)}")
    return found


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────


def offer_text(offer: Offer) -> str:
    return _written(offer, _OFFERED)


def request_text(request: Request) -> str:
    """The canonical text, which is one level of a topic filter."""
    return _written(request, _REQUESTED)


def policies_of(offer: Offer | str) -> list[tuple[str, str]]:
    """An offer as policies and their values. Raises ``QualityInvalid``."""
    said = read_offer(offer) if isinstance(offer, str) else offer
    return list(_policies(said, _OFFERED))


def _written(quality: Offer | Request, policies: Mapping[str, tuple[str, Any]]) -> str:
    return ",".join(f"{policy}={value.translate(_WRITTEN)}" for policy, value in _policies(quality, policies))


def _policies(quality: Offer | Request, policies: Mapping[str, tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    for policy, (field, _) in sorted(policies.items()):
        value = getattr(quality, field)
        if not (value is None or value is False or value == ()):
            yield policy, value_text(field, value)


def value_text(field: str, value: Any) -> str:
    """One value, as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, IntEnum):
        return _word(value)
    if isinstance(value, tuple):
        return "|".join(value)
    if field == "history" and value == EVERYTHING:
        return "all"
    return _duration_text(value) if field.endswith("_us") else str(value)


# ── remembered ──────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(_REMEMBERED)
def request_of(text: str) -> Request:
    """The request with this canonical text."""
    return read_request(text)


@lru_cache(_REMEMBERED)
def offer_said(text: str) -> Offer | None:
    """What a stream offers by its metadata; None if that cannot be read: it was said to another version."""
    try:
        return read_offer(text)
    except QualityInvalid:
        return None


@lru_cache(_REMEMBERED)
def with_strength(text: str, strength: int) -> str:
    """What a stream offers, said by a publisher that is so strong."""
    offer = offer_said(text)
    if offer is None or offer.ownership is not Ownership.EXCLUSIVE:
        return text
    return offer_text(replace(offer, strength=strength))


@lru_cache(_REMEMBERED)
def condition_of(where: str) -> Query:
    """The predicate of a request that was read."""
    return parse(where)


def properties_of(prefix: str, properties: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The policies among a packet's user properties: ``request.deadline`` is one."""
    return [(key.removeprefix(prefix), value) for key, value in properties if key.startswith(prefix)]
