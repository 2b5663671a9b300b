"""MQTT topics as subjects and keys of the store, and filters as subject patterns.

Levels become tokens. Characters that a token cannot hold are written as ``=`` and two hexadecimal digits for each byte
of their UTF-8; an empty level is ``=`` alone. Different topics get different subjects, and a filter's patterns match
exactly the subjects of the topics that it matches (``a/#`` matches ``a`` as well, hence two of them). The same text
serves as a key of a table.

The log has **metadata** of streams as well, to which messages refer, under subjects that no pattern of messages
matches.

**Critical** messages (``model.priority``) have subjects of their own, so that they can be read without the others; in
the log all are in one order. Which of the two a message is, its subject says: for good, and to everybody.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tocsin.ports import TOPIC_MAX_BYTES, LogSpec

MESSAGES: Final = "m"  # the token behind the network's name, of every message's subject …
CRITICAL_MESSAGES: Final = "c"  # … unless it is critical
EITHER: Final = "*"  # in patterns: both
# Every topic of TOPIC_MAX_BYTES has one, within the store's bounds on keys and subjects.
SUBJECT_MAX_BYTES: Final = 3 * TOPIC_MAX_BYTES + 1
WILLS: Final = "will"  # the token of notes about wills, which is no reference
_SAID: Final = "_said"  # behind the network's name, which has no underscore
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_MEMO: Final = 4_096


@lru_cache(_MEMO)
def tokens_of(topic: str) -> str:
    """A topic in the alphabet of subjects and keys, without a prefix."""
    return ".".join(map(_token, topic.split("/")))


def _token(level: str) -> str:
    if not level:
        return "="
    return "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in level.encode())


def topic_of(tokens: str) -> str:
    """The topic that ``tokens_of`` wrote so."""
    return "/".join(map(_level, tokens.split(".")))


def _level(token: str) -> str:
    if "=" not in token:
        return token
    plain, *coded = token.split("=")
    parts = [plain.encode(), *(bytes.fromhex(each[:2]) + each[2:].encode() for each in coded)]
    return b"".join(parts).decode("utf-8", "replace")


def subject_of(topic: str, network: str, *, critical: bool = False) -> str:
    """Where a message of this topic is kept."""
    return f"{network}.{CRITICAL_MESSAGES if critical else MESSAGES}.{tokens_of(topic)}"


def said_subject(reference: bytes, network: str) -> str:
    """Where metadata are kept to which messages refer."""
    return f"{network}{_SAID}.{reference.hex()}"


def will_subject(network: str) -> str:
    """Where it is noted that a will is in the log. To who does not know such notes they are metadata of no message."""
    return f"{network}{_SAID}.{WILLS}"


def said_of(network: str) -> str:
    """The pattern of all metadata, and of notes about wills."""
    return f"{network}{_SAID}.>"


def said_reference(subject: str) -> bytes | None:
    """The reference of an entry that has metadata; None if the entry is a message."""
    network, _, token = subject.partition(".")
    if not network.endswith(_SAID):
        return None
    try:
        return bytes.fromhex(token)
    except ValueError:
        return b""


def is_critical(subject: str) -> bool:
    """Whether an entry of the message log is a critical message."""
    return subject.split(".", 2)[1] == CRITICAL_MESSAGES


def kind_of(critical: bool | None) -> str:
    """The patterns for critical messages, for the others, or (None) for both."""
    return EITHER if critical is None else CRITICAL_MESSAGES if critical else MESSAGES


def all_of(network: str, kind: str = EITHER) -> str:
    """The pattern of all messages."""
    return f"{network}.{kind}.>"


def messages_log(network: str, keep_s: float | None, keep_bytes: int | None) -> LogSpec:
    """The network's message log and its retention; every process opens it with the same."""
    subjects = (all_of(network, MESSAGES), all_of(network, CRITICAL_MESSAGES), said_of(network))
    return LogSpec(f"{network}-messages", subjects, max_age_s=keep_s, max_bytes=keep_bytes)


def fits(topic: str) -> bool:
    """Whether a topic has a subject and a key within the store's bounds."""
    return len(tokens_of(topic)) <= SUBJECT_MAX_BYTES


def patterns_of(topic_filter: str, network: str, kind: str = EITHER) -> tuple[str, ...]:
    """The subject patterns that together match what the filter matches: of critical messages, the others, or both."""
    prefix = f"{network}.{kind}"
    levels = topic_filter.split("/")
    if levels[-1] == "#":
        parents = [prefix, *("*" if level == "+" else _token(level) for level in levels[:-1])]
        below = ".".join((*parents, ">"))
        return (below,) if len(levels) == 1 else (".".join(parents), below)
    return (".".join((prefix, *("*" if level == "+" else _token(level) for level in levels))),)
