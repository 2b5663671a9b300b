"""A stream as one file, and back: JetStream's own snapshots, which keep every position and time.

The server sends a stream in chunks, as many ahead as it has room for, and waits for each to be acknowledged; so neither
side holds more than that. The server defines the content of a file. Consumers are left out: ours are created again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from tocsin.errors import StoreUnavailable
from tocsin.store.jetstream.store import JetStreamStore
from tocsin.store.jetstream.stream import persist
from tocsin.store.jetstream.verdict import judge, read_answer
from tocsin.store.nats.connection import Connection, Mailbox, NotSent, Unanswered
from tocsin.store.nats.protocol import Incoming, frame

CHUNK_BYTES: Final = 128 << 10  # below every server's bound on a payload
CHUNK_S: Final = 30.0  # for one chunk: a busy disk, not a dead one
KNOWN_S: Final = 10.0  # until a server of a cluster knows where chunks go
FINISH_S: Final = 600.0  # for the server to read a whole stream back
NAMES_MAX: Final = 1_024  # streams in one answer
_DONE: Final = ("", "204")  # how the last chunk says that it is the last

Progress = Callable[[int], None]  # told how many bytes there are so far


class Saved(msgspec.Struct, frozen=True):
    """A stream in a file."""

    stream: str
    file: str  # within the backup
    bytes: int
    sha256: str
    first: int  # position of the oldest message …
    last: int  # … and of the newest that there ever was
    messages: int
    config: dict[str, Any]  # as the server has it
    state: dict[str, Any]


async def stream_names(store: JetStreamStore, network: str) -> list[str]:
    """The streams of a network, in order of their names."""
    names = await all_names(store)
    return [name for name in names if name.removeprefix("KV_").startswith(f"{network}-")]


async def all_names(store: JetStreamStore) -> list[str]:
    """All streams that there are, in order of their names."""
    operation = "list the streams"
    names: list[str] = []
    while True:
        answer = await _ask(store.connection, operation, "$JS.API.STREAM.NAMES", {"offset": len(names)})
        some = answer.get("streams") or []
        names += some
        if not some or len(names) >= int(answer["total"]) or len(names) >= NAMES_MAX:
            break
    return sorted(names)


async def save(
    store: JetStreamStore, stream: str, path: Path, file: str, progress: Progress = lambda size: None
) -> Saved:
    """Write a stream to a file, as it is at one moment."""
    operation, connection = f"save stream {stream!r}", store.connection
    await store.stream(
        stream
    )  # a cluster that has just started has no leader yet; ask the leader once there is one
    digest, size = hashlib.sha256(), 0
    chunks: asyncio.Queue[Incoming] = asyncio.Queue()  # the server bounds what is not acknowledged
    with path.open("xb") as out:
        try:
            async with (
                _listening(connection, chunks.put_nowait) as subject,
                asyncio.timeout(None) as patience,
            ):
                asked = {
                    "deliver_subject": subject,
                    "no_consumers": True,
                    "chunk_size": CHUNK_BYTES,
                }
                answer = await _ask(
                    connection, operation, f"$JS.API.STREAM.SNAPSHOT.{stream}", asked, once=True
                )
                loop = asyncio.get_running_loop()
                while True:
                    patience.reschedule(loop.time() + CHUNK_S)
                    chunk = await chunks.get()
                    if not chunk.payload:
                        break
                    out.write(chunk.payload)
                    digest.update(chunk.payload)
                    size += len(chunk.payload)
                    progress(size)
                    if chunk.reply:
                        await connection.send(frame(chunk.reply, "", b"", b""))
        except TimeoutError:
            raise StoreUnavailable(operation, f"nothing came for {CHUNK_S:g} s") from None
        except NotSent as error:
            raise StoreUnavailable(operation, str(error)) from None
        if chunk.status not in _DONE:
            raise StoreUnavailable(operation, f"the server gave up: {chunk.headers.get('Description', '')}")
    state = answer["state"]
    return Saved(
        stream=stream,
        file=file,
        bytes=size,
        sha256=digest.hexdigest(),
        first=int(state["first_seq"]),
        last=int(state["last_seq"]),
        messages=int(state["messages"]),
        config=answer["config"],
        state=state,
    )


@contextlib.asynccontextmanager
async def _listening(connection: Connection, take: Callable[[Incoming], None]) -> AsyncIterator[str]:
    """A subject of our own, with a subscription to it alone: a server waits two seconds for that before it begins."""
    with Mailbox(connection) as unique:
        listener = await connection.listen(f"{unique.address}.chunks", "", take)
        try:
            yield listener.subject
        finally:
            await listener.stop()


async def load(
    store: JetStreamStore,
    saved: Saved,
    path: Path,
    *,
    replicas: int,
    progress: Progress = lambda size: None,
) -> None:
    """Make a stream of a file, where there is none of that name."""
    operation, connection = f"restore stream {saved.stream!r}", store.connection
    config = {**saved.config, "num_replicas": replicas}
    answer = await _ask(
        connection,
        operation,
        f"$JS.API.STREAM.RESTORE.{saved.stream}",
        {"config": config, "state": saved.state},
    )
    target, size = str(answer["deliver_subject"]), 0
    try:
        with path.open("rb") as source:
            while chunk := source.read(CHUNK_BYTES):
                said = await _hand_over(connection, target, chunk)
                if said.payload:  # the server is content with nothing to say
                    _, problem = read_answer(operation, said.payload)
                    if problem is not None:
                        raise judge(operation, problem)
                size += len(chunk)
                progress(size)
        said = await connection.ask(target, b"", FINISH_S)
    except (Unanswered, NotSent) as error:
        raise StoreUnavailable(operation, str(error)) from None
    answer, problem = read_answer(operation, said.payload)
    if problem is not None:
        raise judge(operation, problem)
    last = int(answer["state"]["last_seq"])
    if last != saved.last:
        raise StoreUnavailable(operation, f"it ends at {last}, and {saved.last} was saved")


async def remove(store: JetStreamStore, stream: str) -> None:
    """Undo ``load``."""
    await _ask(store.connection, f"remove stream {stream!r}", f"$JS.API.STREAM.DELETE.{stream}", {})


async def cell(store: JetStreamStore, table: str, key: str) -> bytes | None:
    """The value of a table's key, read without opening the table, which could change its bounds."""
    found = await (await store.stream(f"KV_{table}")).last_for(f"read {key!r}", f"$KV.{table}.{key}")
    return None if found is None or not found.payload else found.payload


async def forget(store: JetStreamStore, table: str, keys: str) -> None:
    """Have a table never have had these keys, a pattern: while nobody watches it."""
    request = {"filter": f"$KV.{table}.{keys}"}
    await _ask(store.connection, f"forget {keys!r}", f"$JS.API.STREAM.PURGE.KV_{table}", request)


async def _hand_over(connection: Connection, target: str, chunk: bytes) -> Incoming:
    """One chunk of a stream. In a cluster it takes a moment until our server knows where it goes; ``NotSent``."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + KNOWN_S
    while True:
        try:
            return await connection.ask(target, chunk, CHUNK_S)
        except NotSent:
            if loop.time() > end_s:
                raise
            await asyncio.sleep(0.05)


async def _ask(
    connection: Connection, operation: str, subject: str, request: object, *, once: bool = False
) -> dict[str, Any]:
    """An answer of JetStream's API. ``once``: asked again, it would be done twice."""
    payload = msgspec.json.encode(request)

    async def attempt(timeout_s: float) -> dict[str, Any]:
        reply = await connection.ask(subject, payload, CHUNK_S if once else timeout_s)
        answer, problem = read_answer(operation, reply.payload)
        if problem is not None:
            raise judge(operation, problem)
        return answer

    if not once:
        return await persist(connection, operation, CHUNK_S, attempt)
    try:
        return await attempt(CHUNK_S)
    except (Unanswered, NotSent) as error:
        raise StoreUnavailable(operation, str(error)) from None
