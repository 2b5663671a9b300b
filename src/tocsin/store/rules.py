"""The names, subjects, records and keys that a store accepts, and how subjects match: one set of rules for every store.

A **subject** is dot-separated tokens. A **pattern** is a subject in which ``*`` stands for one token and a last
``>`` for one or more. Every check raises ``Refused`` with what was wrong; nothing is repaired silently. The bounds are
tighter than the server's, so that what one store takes, every store takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tocsin.errors import Refused
from tocsin.ports import (
    BATCH_MAX,
    KEYS_MAX,
    PATTERNS_MAX,
    PAYLOAD_MAX_BYTES,
    READ_MAX,
    SUBJECT_MAX_BYTES,
    TOPIC_MAX_BYTES,
    LogSpec,
    Record,
    TableSpec,
)

ID_MAX_BYTES: Final = 256  # a record's id is a header line, kept with the record and in the server's memory
KEY_MAX_BYTES: Final = 3 * TOPIC_MAX_BYTES + 64  # within a subject, with the table's name before it
# An append's payloads together: what a server buffers for a batch it may refuse.
BATCH_MAX_BYTES: Final = 8 << 20
TTL_MAX_S: Final = 10 * 365 * 86_400
# The bytes of a record with an id in a JetStream file beside subject, id, payload.
ENTRY_OVERHEAD_BYTES: Final = 62

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_KEY = re.compile(r"[A-Za-z0-9_\-/=]+(?:\.[A-Za-z0-9_\-/=]+)*\Z")
_KEY_PREFIX = re.compile(r"[A-Za-z0-9_\-/=.]*\Z")
_RESERVED = ("$", "_INBOX.")  # the server's own subjects


def check_name(operation: str, name: str) -> None:
    """A log or table name: it becomes a file name and a subject token."""
    if not _NAME.match(name):
        raise Refused(operation, f"the name {name!r} is not 1 to 64 of A–Z a–z 0–9 _ -")


def check_pattern(operation: str, pattern: str) -> None:
    """A subject in which wildcards are allowed."""
    if not pattern or len(pattern.encode()) > SUBJECT_MAX_BYTES:
        raise Refused(operation, f"a subject has 1 to {SUBJECT_MAX_BYTES} bytes, not {len(pattern.encode())}")
    if pattern.startswith(_RESERVED):
        raise Refused(operation, f"the subject {pattern!r} begins like one of the server's own")
    if " " in pattern or not pattern.isprintable():
        raise Refused(operation, f"the subject {pattern!r} has a space or a control character")
    tokens = pattern.split(".")
    for i, token in enumerate(tokens):
        if not token:
            raise Refused(operation, f"the subject {pattern!r} has an empty token")
        wild = "*" in token or ">" in token
        if wild and len(token) > 1:
            raise Refused(operation, f"in the subject {pattern!r} a wildcard is not a token of its own")
        if token == ">" and i < len(tokens) - 1:
            raise Refused(operation, f"in the subject {pattern!r} the wildcard > is not the last token")


def check_subject(operation: str, subject: str) -> None:
    """A subject without wildcards."""
    check_pattern(operation, subject)
    if is_wild(subject):
        raise Refused(operation, f"the subject {subject!r} has a wildcard, and one exact subject is needed")


def is_wild(pattern: str) -> bool:
    return "*" in pattern or ">" in pattern


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject without wildcards matches the pattern."""
    return covers(pattern, subject)


def covers(wide: str, narrow: str) -> bool:
    """Whether every subject that matches ``narrow`` matches ``wide`` too."""
    if wide == narrow or wide == ">":
        return True
    wide_tokens = wide.split(".")
    narrow_tokens = narrow.split(".")
    for i, token in enumerate(wide_tokens):
        if token == ">":
            return len(narrow_tokens) > i
        if i >= len(narrow_tokens) or narrow_tokens[i] == ">":
            return False
        if token != "*" and token != narrow_tokens[i]:
            return False
    return len(wide_tokens) == len(narrow_tokens)


def overlap(one: str, other: str) -> bool:
    """Whether some subject matches both patterns."""
    one_tokens = one.split(".")
    other_tokens = other.split(".")
    for mine, theirs in zip(one_tokens, other_tokens, strict=False):
        if mine == ">" or theirs == ">":
            return True
        if mine != "*" and theirs != "*" and mine != theirs:
            return False
    return len(one_tokens) == len(other_tokens)


def check_log(spec: LogSpec) -> None:
    operation = f"open log {spec.name!r}"
    check_name(operation, spec.name)
    if not spec.subjects:
        raise Refused(operation, "a log needs at least one subject")
    for i, subject in enumerate(spec.subjects):
        check_pattern(operation, subject)
        if subject in ("*", ">") or subject.startswith(("*.", "_")):
            raise Refused(
                operation, f"the subject {subject!r} does not begin with a fixed token of the log's own"
            )
        for earlier in spec.subjects[:i]:
            if overlap(earlier, subject):
                raise Refused(operation, f"its subjects {earlier!r} and {subject!r} overlap")
    for label, value in (
        ("max_age_s", spec.max_age_s),
        ("max_bytes", spec.max_bytes),
        ("max_per_subject", spec.max_per_subject),
        ("dedupe_window_s", spec.dedupe_window_s),
    ):
        if value is not None and not value > 0:
            raise Refused(operation, f"{label} = {value!r} is not above 0")
    for label, seconds in (("max_age_s", spec.max_age_s), ("dedupe_window_s", spec.dedupe_window_s)):
        if seconds is not None and seconds < 0.1:
            raise Refused(operation, f"{label} = {seconds!r} is below 0.1, the shortest that servers keep")
    if spec.max_age_s is not None and spec.dedupe_window_s > spec.max_age_s:
        raise Refused(
            operation, f"dedupe_window_s = {spec.dedupe_window_s!r} is above max_age_s = {spec.max_age_s!r}"
        )


def check_table(spec: TableSpec) -> None:
    operation = f"open table {spec.name!r}"
    check_name(operation, spec.name)
    if spec.max_bytes is not None and spec.max_bytes <= 0:
        raise Refused(operation, f"max_bytes = {spec.max_bytes!r} is not above 0")


def check_batch(operation: str, records: Sequence[Record], expected: int | None) -> None:
    """The size of an append; ``check_record`` looks at each record."""
    if len(records) > BATCH_MAX:
        raise Refused(operation, f"{len(records)} records in one append are over {BATCH_MAX}")
    if expected is not None and expected < 0:
        raise Refused(operation, f"expected = {expected} is not a position")
    if sum([len(record.payload) for record in records]) > BATCH_MAX_BYTES:
        raise Refused(operation, f"the payloads of one append are over {BATCH_MAX_BYTES} bytes together")


def check_record(operation: str, record: Record) -> None:
    """Everything about a record but its subject, whose check is cached by those who see many."""
    record_id = record.id
    if not 0 < len(record_id) <= ID_MAX_BYTES or not record_id.isascii() or not record_id.isprintable():
        raise Refused(
            operation, f"the record id {record_id!r:.80} is not 1 to {ID_MAX_BYTES} printable ASCII"
        )
    if record_id[0] == " " or record_id[-1] == " ":
        raise Refused(operation, f"the record id {record_id!r:.80} begins or ends with a space")
    if len(record.payload) > PAYLOAD_MAX_BYTES:
        raise Refused(operation, f"a payload of {len(record.payload)} bytes is over {PAYLOAD_MAX_BYTES}")


def check_taken(operation: str, spec: LogSpec, subject: str) -> None:
    """A record's subject: valid, and of this log."""
    check_subject(operation, subject)
    if not any(matches(pattern, subject) for pattern in spec.subjects):
        raise Refused(operation, f"the subject {subject!r} is not one of {', '.join(spec.subjects)}")


def check_read(operation: str, subject: str, start: int, limit: int) -> None:
    check_pattern(operation, subject)
    if start < 0:
        raise Refused(operation, f"start = {start} is not a position")
    if not 1 <= limit <= READ_MAX:
        raise Refused(operation, f"limit = {limit} is not 1 to {READ_MAX}")


def check_select(operation: str, patterns: Sequence[str], start: int) -> None:
    if not 1 <= len(patterns) <= PATTERNS_MAX:
        raise Refused(operation, f"{len(patterns)} patterns are not 1 to {PATTERNS_MAX}")
    for pattern in patterns:
        check_read(operation, pattern, start, 1)


def check_trim(
    operation: str,
    before: int | None,
    subject: str | None,
    older_than_s: float | None,
    keep_bytes: int | None,
) -> None:
    if subject is not None:
        check_pattern(operation, subject)
    if before is None and subject is None and older_than_s is None and keep_bytes is None:
        raise Refused(
            operation, "nothing says what to forget; give before, subject, older_than_s or keep_bytes"
        )
    for label, value in (("before", before), ("older_than_s", older_than_s), ("keep_bytes", keep_bytes)):
        if value is not None and value < 0:
            raise Refused(operation, f"{label} = {value} is below 0")


def check_key(operation: str, key: str) -> None:
    if len(key) > KEY_MAX_BYTES or not _KEY.match(key):
        raise Refused(
            operation,
            f"the key {key!r:.80} is not dot-separated tokens of A–Z a–z 0–9 _ - / = "
            f"(at most {KEY_MAX_BYTES} bytes)",
        )


def check_many(operation: str, keys: Sequence[str]) -> None:
    if len(keys) > KEYS_MAX:
        raise Refused(operation, f"{len(keys)} keys are read at once; at most {KEYS_MAX} may be")
    for key in keys:
        check_key(operation, key)


def check_prefix(operation: str, prefix: str) -> None:
    if len(prefix) > KEY_MAX_BYTES or not _KEY_PREFIX.match(prefix):
        raise Refused(operation, f"no key can begin with {prefix!r:.80}")


def check_value(operation: str, value: bytes) -> None:
    if len(value) > PAYLOAD_MAX_BYTES:
        raise Refused(operation, f"a value of {len(value)} bytes is over {PAYLOAD_MAX_BYTES}")


def check_revision(operation: str, revision: int) -> None:
    if revision < 0:
        raise Refused(operation, f"revision = {revision} is not a revision")


def ttl_seconds(operation: str, ttl_s: float | None) -> int | None:
    """A time to live as the whole seconds that servers keep."""
    if ttl_s is None:
        return None
    if ttl_s != int(ttl_s) or not 1 <= ttl_s <= TTL_MAX_S:
        raise Refused(operation, f"ttl_s = {ttl_s!r} is not whole seconds from 1 to {TTL_MAX_S}")
    return int(ttl_s)


def entry_bytes(subject: str, record_id: str, payload: bytes) -> int:
    """The bytes of a record against ``max_bytes`` and ``keep_bytes``: nearly its cost in the server's file."""
    return ENTRY_OVERHEAD_BYTES + len(subject) + len(record_id) + len(payload)
