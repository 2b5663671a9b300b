"""A broker's summary of what it holds, for the planner of backups: asked for over the bus, page by page.

A standby holds nothing. It is asked for the score of its machine, and to measure the way to some brokers: those that
had to do with a broker whose place it may take. So is an edge broker that may be recruited.

Subscriptions are named by hashes: a plan only compares them. Two that share one by chance count as one, which makes a
plan worse by one subscription.

Rates are what a broker measures (``core.forwarding.rates``): those of its busiest subscriptions by name, and a mean of
the others. A broker of an earlier release says none.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from tocsin.model.network import BrokerInfo
from tocsin.model.versions import Packed

PAGE: Final = 20_000  # subscriptions; some 240 kB
UNMEASURED: Final = "not measured yet"  # of a peer: it is about to be


class Ask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Give me this page; of the same ``summary`` as the pages before, or (0) of a new one."""

    page: int = 0
    summary: int = 0
    peers: tuple[BrokerInfo, ...] = ()  # to measure the way to, unless that is known already
    standby: bool = False  # answer with the score of a standby, and without what you hold


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """One page of it."""

    summary: int
    pages: int
    held: dict[int, int]  # subscription → how many clients have it
    capacity: float = 0.0  # how many (client, subscription) pairs the broker can carry; 0: no bound
    resources: float | None = None  # the score of its machine, 0 to 1; None: it does not know
    problems: tuple[str, ...] = ()  # the unknown parts, as text
    terms: dict[str, tuple[float, float]] = {}  # what the score is made of: value and weight by name
    delays: dict[str, int] = {}  # round trips to the brokers that it has links to, in microseconds
    # Peers that it was asked to measure: the round trip in µs, and the bandwidth in kbit/s (0: not known) …
    probes: dict[str, tuple[int, int]] = {}
    unprobed: dict[str, str] = {}  # … and the reason why not
    weights: dict[str, float] = {}  # of all terms, as they are configured; with those that peers decide
    need_mbit: float = 0.0  # bandwidth that suffices
    configuration: str = ""  # the preset of its settings; empty: it is of an earlier release …
    changed: dict[
        str, tuple[float, float]
    ] = {}  # … and the settings that it changed: as `static` has them, and as they are
    # Bytes a second that each client of a subscription of this page is sent. None: the broker does not measure …
    rates: dict[int, float] | None = None
    rest: float = 0.0  # … and each client of any other, in the mean of all pages
    capacity_bytes_per_s: float = 0.0  # the same bound as ``capacity``, as data; 0: none is stated as such


ASK: Final = Packed("a question for a summary", msgspec.msgpack.Decoder(Ask), spoken=True)
SUMMARY: Final = Packed("a summary", msgspec.msgpack.Decoder(Summary), spoken=True)


def subject(network: str, broker: str) -> str:
    """Where a broker is asked."""
    return f"{network}.summary.{broker}"


def name_of(subscription: str) -> int:
    return int.from_bytes(blake2b(subscription.encode(), digest_size=8).digest()) >> 1


def encode(message: Ask | Summary) -> bytes:
    return (ASK if isinstance(message, Ask) else SUMMARY).write(message)


def decode_ask(data: bytes) -> Ask:
    return ASK.read(data)


def decode_summary(data: bytes) -> Summary:
    return SUMMARY.read(data)
