"""The chronicle of brokers, from a command log in memory."""

from __future__ import annotations

from tocsin.core.coordination.names import StoreNames
from tocsin.model.network import BrokerInfo, Role
from tocsin.ports import Record
from tocsin.store.memory.store import MemoryServer, MemoryStore
from tocsin.wire.internal.commands import (
    Command,
    Interests,
    Joined,
    Lost,
    Planned,
    Promoted,
    Said,
    encode_batch,
    encode_command,
)
from tocsin_labs.chronicle import Chronicle

DEADLINE_S = 10.0
PLACES = StoreNames("lab")


def joined(port: int) -> Said:
    info = BrokerInfo("a", "north", Role.EDGE, "127.0.0.1", port)
    return Said("a", 1, 1, (Joined(info), Interests(("x",))))


async def test_the_chronicle_records_broker_events_in_order_with_the_joiners_port() -> None:
    store = MemoryStore(MemoryServer())
    log = await store.log(PLACES.commands)
    chronicle = Chronicle(store, "lab")

    async def say(number: int, *commands: Command) -> None:
        batch = encode_batch(
            epoch=1,
            at_us=number,
            previous=0,
            commands=tuple(map(encode_command, commands)),
            notices=(),
        )
        await log.append([Record(PLACES.commands_subject, batch, str(number))])

    async with chronicle.followed():
        await say(1, joined(1_000), Planned((("a", "b", None),)))
        await say(2, Lost("a", 1), Promoted("a", "spare"))
        await say(3, joined(2_000), Said("a", 1, 3, (Interests(("y",)),)))
        assert await chronicle.until(lambda: len(chronicle.entries) == 5, DEADLINE_S)
    kinds = [(entry.kind, entry.broker, entry.port) for entry in chronicle.entries]
    assert kinds == [
        ("joined", "a", 1_000),
        ("planned", "", 0),
        ("lost", "a", 0),
        ("promoted", "a", 0),
        ("joined", "a", 2_000),
    ]
    assert chronicle.backups == {"a": ("b", None)}
    began = chronicle.entries[0].at_s
    assert chronicle.first("joined", "a", began) == began
    assert chronicle.first("joined", "a", began, 2_000) == chronicle.entries[4].at_s
    assert chronicle.first("lost", "b", began) is None
    assert chronicle.first("lost", "a", chronicle.entries[2].at_s + 1) is None
    assert chronicle.last("joined", "a") == chronicle.entries[4]
    assert chronicle.last("promoted", "b") is None


async def test_a_wait_for_an_event_that_never_comes_ends_at_the_deadline() -> None:
    chronicle = Chronicle(MemoryStore(MemoryServer()), "lab")
    assert not await chronicle.until(lambda: False, 0.01)
    assert await chronicle.until(lambda: True, 0.01)
