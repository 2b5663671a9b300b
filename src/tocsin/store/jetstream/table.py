"""``ports.Table`` on a JetStream stream that keeps one message per subject.

The stream is laid out as NATS key-value buckets are (``KV_name``, ``$KV.name.key``), so that their tools can look
at it. A revision is the position of the key's message. A deletion, or an expiry that the server sees to, leaves a
*marker* in the key's place: a message that says the key is absent. Markers have a time to live of their own.

**Writes happen once.** Every write carries an id of its own, so that a repeated attempt is recognised. A repeated
compare-and-set may be refused because the first attempt did happen: then the key's message bears this write's id.

The first attempts of many writes go together (``store.jetstream.writes``).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Final

from tocsin.errors import Conflict
from tocsin.ports import READ_MAX, Begun, Cell, Change, TableSpec, Usage
from tocsin.store import rules
from tocsin.store.jetstream.follower import Follower
from tocsin.store.jetstream.stream import MARK, JetStream, Stored, is_mark, marks_of, persist
from tocsin.store.jetstream.verdict import WRONG_LAST_SEQUENCE, Passing, judge, read_answer
from tocsin.store.jetstream.writes import Writes

# How long an absent key is remembered; a watch that was away tells by a reset anyway.
MARKER_TTL_S: Final = 3_600
MARKERS_MAX: Final = 1_000  # a read that is followed by a write over what it found is not long ago
_DELETION: Final = b"KV-Operation: PURGE\r\n"  # the kind of marker that leaves none behind when it expires


def stream_config(spec: TableSpec, name: str, replicas: int) -> dict[str, Any]:
    """The stream of a table; ``docs/reference/store.md`` says why each setting is as it is."""
    return {
        "name": name,
        "subjects": [f"$KV.{spec.name}.>"],
        "storage": "file",
        "num_replicas": replicas,
        "retention": "limits",
        "discard": "new",
        "max_bytes": -1 if spec.max_bytes is None else spec.max_bytes,
        "max_msgs_per_subject": 1,
        "duplicate_window": int(120e9),
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_atomic": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": int(MARKER_TTL_S * 1e9),
    }


class JetStreamTable:
    """One table."""

    def __init__(self, stream: JetStream, spec: TableSpec) -> None:
        self._stream = stream
        self._spec = spec
        self._connection = stream.connection
        self._prefix = f"$KV.{spec.name}."
        self._writes = Writes(stream, f"write to table {spec.name!r}")
        self._ids = secrets.token_hex(12)  # what the ids of our writes begin with: nobody else's do
        self._written = 0
        self._markers: dict[
            str, int
        ] = {}  # positions of markers that reads found, by subject; the oldest first

    async def get(self, key: str, *, fresh: bool = False) -> Cell | None:
        operation = f"get from table {self._spec.name!r}"
        rules.check_key(operation, key)
        found = await self._newest(operation, self._prefix + key, fresh=fresh)
        return None if found is None or self._is_absent(found) else self._cell(found)

    async def get_many(self, keys: Sequence[str], *, fresh: bool = False) -> dict[str, Cell]:
        operation = f"get many from table {self._spec.name!r}"
        rules.check_many(operation, keys)
        subjects = [self._prefix + key for key in keys]
        marks = self._prefix + MARK if fresh else None
        found = await self._stream.last_for_many(operation, subjects, marks)
        cells = (self._cell(each) for each in found if not self._is_absent(each))
        return {cell.key: cell for cell in cells}

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        operation = f"put {key!r} in table {self._spec.name!r}"
        return await self._write(operation, key, value, None, self._value_lines(operation, key, value, ttl_s))

    async def compare_and_set(
        self, key: str, value: bytes, *, revision: int, ttl_s: float | None = None
    ) -> int:
        operation = f"compare and set {key!r} in table {self._spec.name!r}"
        rules.check_revision(operation, revision)
        lines = self._value_lines(operation, key, value, ttl_s)
        return await self._write(operation, key, value, revision, lines)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        operation = f"delete {key!r} from table {self._spec.name!r}"
        rules.check_key(operation, key)
        if revision is not None:
            rules.check_revision(operation, revision)
        found = await self._stream.last_for(operation, self._prefix + key)
        if found is None or _is_marker(found):  # then nothing is written, so that it has to be true
            found = await self._newest(operation, self._prefix + key, fresh=True)
        actual = 0 if found is None or _is_marker(found) else found.position
        if revision is not None and revision != actual:
            raise Conflict(operation, revision, actual)
        if actual:
            lines = _DELETION + b"Nats-TTL: %ds\r\n" % MARKER_TTL_S
            await self._write(operation, key, b"", revision, lines)

    async def keys(self, prefix: str = "", *, fresh: bool = False) -> tuple[str, ...]:
        operation = f"keys of table {self._spec.name!r}"
        rules.check_prefix(operation, prefix)
        pattern = self._pattern(prefix)
        marks = marks_of(pattern, (pattern,))
        present: set[str] = set()
        start, ended = 0, False
        while not ended:  # a key written during the scan moves behind the end: go on to the current end
            if fresh:
                found = await self._stream.fresh_slice(operation, pattern, start, READ_MAX, marks)
            else:
                found = await self._stream.slice(operation, pattern, start, READ_MAX)
            for message in found.messages:
                key = message.subject[len(self._prefix) :]
                if is_mark(key):
                    continue
                if _is_marker(message):
                    present.discard(key)
                elif key.startswith(prefix):
                    present.add(key)
            start, ended = found.next, found.next > found.newest
        return tuple(sorted(present))

    async def watch(self, prefix: str = "") -> AsyncIterator[Change]:
        operation = f"watch table {self._spec.name!r}"
        rules.check_prefix(operation, prefix)
        follower = Follower(self._stream, operation, (self._pattern(prefix),), 0, rewind=True)
        told: set[str] | None = None  # while the state is being told: the keys told so far
        revision = 0  # the newest that was told
        async with aclosing(follower.messages()) as messages:
            async for message in messages:
                if isinstance(message, Begun):
                    told = set()
                    revision = message.end
                    yield Change("reset")
                elif isinstance(message, Stored):
                    revision = message.position
                    key = message.subject[len(self._prefix) :]
                    if not key.startswith(prefix) or is_mark(key):
                        pass
                    elif not _is_marker(message):
                        if told is not None:
                            told.add(key)
                        yield Change("put", key, message.payload, revision)
                    elif told is None or key in told:
                        yield Change("delete", key, b"", revision)
                if told is not None and follower.pending == 0:
                    told = None
                    yield Change("ready", revision=revision)

    async def usage(self) -> Usage:
        return await self._stream.usage(f"look at table {self._spec.name!r}")

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    def _value_lines(self, operation: str, key: str, value: bytes, ttl_s: float | None) -> bytes:
        rules.check_key(operation, key)
        rules.check_value(operation, value)
        self._connection.check_size(operation, len(value))
        seconds = rules.ttl_seconds(operation, ttl_s)
        return b"" if seconds is None else b"Nats-TTL: %ds\r\n" % seconds

    async def _write(self, operation: str, key: str, value: bytes, revision: int | None, lines: bytes) -> int:
        """Publish the key's next message; with ``revision``, only over that revision (0: over nothing, or a
        marker)."""
        subject = self._prefix + key
        self._written += 1
        write_id = f"{self._ids}.{self._written}"
        lines += b"Nats-Msg-Id: %b\r\n" % write_id.encode()
        over = revision  # the position that the server must find: a marker's, where the key is absent
        if revision == 0:
            over = self._markers.pop(subject, 0)
        attempts = 0

        async def attempt(timeout_s: float) -> int:
            nonlocal over, attempts
            attempts += 1
            while True:
                expectation = b"" if over is None else b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % over
                if attempts == 1:
                    publish = self._writes.publish(subject, value, lines + expectation, timeout_s)
                    position, error = await publish
                else:
                    reply = await self._connection.ask(subject, value, timeout_s, lines + expectation)
                    answer, error = read_answer(operation, reply.payload)
                    position = int(answer.get("seq", 0))
                if error is None:
                    return position
                wrong = over is not None and error.err_code in WRONG_LAST_SEQUENCE
                if not wrong and not error.full:
                    raise judge(operation, error)
                found = await self._newest(operation, subject, fresh=wrong and attempts > 1)
                if found is not None and found.headers.get("Nats-Msg-Id") == write_id:
                    return found.position  # an attempt whose answer was lost did happen
                if not wrong:
                    raise judge(operation, error)
                absent = found is None or _is_marker(found)
                if revision != 0 or not absent:
                    raise Conflict(operation, revision or 0, 0 if found is None or absent else found.position)
                position = 0 if found is None else found.position
                if position == over:
                    raise Passing(operation, "the server is deciding on another write")
                over = position

        return await persist(self._connection, operation, self._stream.deadline_s, attempt, writes=True)

    async def _newest(self, operation: str, subject: str, *, fresh: bool) -> Stored | None:
        if fresh:
            return await self._stream.fresh_last_for(operation, subject, self._prefix + MARK)
        return await self._stream.last_for(operation, subject)

    def _is_absent(self, message: Stored) -> bool:
        """Whether a message that was read is a marker; it is remembered for a write over it."""
        if not _is_marker(message):
            return False
        if len(self._markers) >= MARKERS_MAX:
            del self._markers[next(iter(self._markers))]
        self._markers[message.subject] = message.position
        return True

    def _cell(self, message: Stored) -> Cell:
        return Cell(message.subject[len(self._prefix) :], message.payload, message.position)

    def _pattern(self, prefix: str) -> str:
        """The narrowest pattern that takes in every key that begins so: whole tokens of it, and anything behind."""
        return f"{self._prefix}{prefix[: prefix.rfind('.') + 1]}>"


def _is_marker(message: Stored) -> bool:
    return "KV-Operation" in message.headers or "Nats-Marker-Reason" in message.headers
