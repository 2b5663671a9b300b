"""What control traffic is about: the messages that a store's server takes and hands on, by kind.

The server writes each of them down while it traces: its subject and its size, and not the bytes that carry it. So a
message counts with its command and payload, and with the headers of one segment. What the kernel counted beyond that
are acknowledgements of TCP and records of TLS; several messages in one segment make it less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from tocsin_labs.sockets import SEGMENT_BYTES

LINKS: Final = "links"  # that brokers have to each other: the kernel's count
REST: Final = "acknowledgements and records"
OTHER: Final = "other messages"

# By the beginning of a subject, with NAME for the network's; the first that fits.
_KINDS: Final[tuple[tuple[str, str], ...]] = (
    (r"NAME\.to\.coordinator", "heartbeats and reports"),
    (r"NAME\.to\.broker", "answers to heartbeats"),
    (r"NAME\.replication", "replication"),
    (r"\$KV\.NAME-coordination\.core\.leader", "the leader's lease"),
    (r"\$KV\.NAME-coordination\.status", "the coordinator's status"),
    (r"\$JS\.API\.DIRECT", "reads"),
    (r"\$JS\.API\.CONSUMER", "followed logs and tables"),
    (r"\$JS\.API", "questions about logs and tables"),
    (r"_INBOX", "answers of the store"),
    (r"\$KV", "other cells"),
)
_LINE: Final = re.compile(r" (<<-|->>) \[(H?(?:PUB|MSG)|PING|PONG)([^\]]*)\]")
_PINGS: Final = "pings of the store's connections"
_FOLLOWED: Final = "followed logs and tables"
_END: Final = 2  # CR and LF


class Kind(msgspec.Struct, frozen=True):
    """Messages of one kind."""

    name: str
    messages: float  # a second
    kb: float  # a second, with the headers of one segment each


def read(lines: Iterable[str], network: str, seconds: float) -> list[Kind]:
    """The messages of a trace that lasted so long, by kind; most bytes first."""
    patterns = [(re.compile(each.replace("NAME", re.escape(network))), name) for each, name in _KINDS]
    found: dict[str, tuple[int, int]] = {}
    for line in lines:
        match = _LINE.search(line)
        if match is None:
            continue
        command, words = match[2], match[3].split()
        size = len(command) + len(match[3]) + _END
        if command in ("PING", "PONG"):
            name = _PINGS
        else:
            subject, payload = words[0], int(words[-1])
            size += payload + _END
            name = next((kind for pattern, kind in patterns if pattern.match(subject)), OTHER)
            if command == "HMSG" and subject.startswith("_INBOX") and subject.count(".") == 2:
                name = _FOLLOWED  # to the address of a feed; answers have a number behind it
        count, total = found.get(name, (0, 0))
        found[name] = count + 1, total + size + SEGMENT_BYTES
    kinds = (Kind(name, count / seconds, total / 1_000 / seconds) for name, (count, total) in found.items())
    return sorted(kinds, key=lambda each: -each.kb)


def broken_down(traced: Iterable[Kind], links: Kind, total_kb: float) -> list[Kind]:
    """All kinds: those of the trace, links, and what is left of a total."""
    kinds = [*traced, links]
    left = total_kb - sum(each.kb for each in kinds)
    return [*kinds, Kind(REST, 0.0, left)]
