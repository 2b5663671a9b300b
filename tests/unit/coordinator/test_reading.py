"""A state is read from the newest snapshot and the log behind it, or from the log alone."""

from __future__ import annotations

import pytest

from tocsin.coordinator.reading import read_state
from tocsin.core.coordination.leader.snapshot_writer import KEY, MANIFEST, Manifest
from tocsin.core.coordination.names import StoreNames
from tocsin.core.coordination.state.snapshot import take
from tocsin.core.coordination.state.state import State
from tocsin.errors import OperatorError
from tocsin.model.network import BrokerInfo, Role
from tocsin.ports import Record
from tocsin.store.memory.store import MemoryStore
from tocsin.wire.internal.commands import (
    Elected,
    Joined,
    Limits,
    Logged,
    Said,
    decode_batch,
    encode_batch,
    encode_command,
)

NAMES = StoreNames("t")


class Log:
    """A command log, as a leader writes it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.state = State()
        self.position = 0

    async def append(self, *commands: Logged) -> None:
        log = await self.store.log(NAMES.commands)
        raw = encode_batch(
            epoch=1,
            at_us=self.position,
            previous=self.position,
            commands=tuple(map(encode_command, commands)),
            notices=(),
        )
        (self.position,) = await log.append((Record(NAMES.commands_subject, raw, f"c{self.position}"),))
        self.state.follow(decode_batch(raw))

    async def join(self, name: str) -> None:
        info = BrokerInfo(name, "cloud", Role.ROUTING, "127.0.0.1", 1)
        await self.append(Said(name, 1, 1, (Joined(info),)))

    async def snapshot(self) -> None:
        log = await self.store.log(NAMES.snapshots)
        pieces = take(self.state)
        subject = NAMES.snapshot_subject("s")
        first, *_ = await log.append(
            tuple(Record(subject, each, f"s{place}") for place, each in enumerate(pieces))
        )
        manifest = Manifest(self.position, 1, subject, len(pieces), first)
        await (await self.store.table(NAMES.table)).put(KEY, MANIFEST.write(manifest))


async def test_a_state_is_read_from_a_log_alone() -> None:
    log = Log()
    await log.append(Elected("c", Limits(), 1))
    await log.join("hub-1")
    assert take(await read_state(log.store, NAMES)) == take(log.state)


async def test_a_state_is_read_from_a_snapshot_and_what_follows() -> None:
    log = Log()
    await log.append(Elected("c", Limits(), 1))
    await log.join("hub-1")
    await log.snapshot()
    await (await log.store.log(NAMES.commands)).trim(before=log.position + 1)
    await log.join("hub-2")
    found = await read_state(log.store, NAMES)
    assert set(found.members) == {"hub-1", "hub-2"} and take(found) == take(log.state)


async def test_a_log_with_a_gap_is_refused_in_words() -> None:
    log = Log()
    await log.append(Elected("c", Limits(), 1))
    await log.join("hub-1")
    await (await log.store.log(NAMES.commands)).trim(before=log.position)
    with pytest.raises(OperatorError, match="cannot be read"):
        await read_state(log.store, NAMES)
