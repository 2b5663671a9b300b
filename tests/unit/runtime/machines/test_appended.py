"""Which records a log has already."""

from __future__ import annotations

import pytest

from tocsin.ports import Log, LogSpec, Record
from tocsin.runtime.machines.appended import appended
from tocsin.store.memory.store import MemoryServer, MemoryStore


def record(number: int, subject: str = "m.a") -> Record:
    return Record(subject, b"", str(number))


async def filled(*records: Record) -> Log:
    log = await MemoryStore(MemoryServer()).log(LogSpec("log", ("m.>",)))
    await log.append(records)
    return log


@pytest.mark.parametrize("subjects", [1, 3], ids=["by-subject", "together"])
async def test_those_behind_a_position_are_found(subjects: int) -> None:
    log = await filled(*(record(number, f"m.{number % subjects}") for number in range(6)))
    asked = [record(number, f"m.{number % subjects}") for number in (1, 3, 9)]
    assert await appended(log, asked, 0) == ({"1": 2, "3": 4}, 6)
    assert await appended(log, asked, 2) == ({"3": 4}, 6)
    assert await appended(log, asked, 6) == ({}, 6)


async def test_many_entries_of_others_are_not_read_for_a_few_subjects() -> None:
    log = await filled(*(record(number, "m.busy") for number in range(900)), record(900), record(901, "m.b"))
    assert await appended(log, [record(900), record(901, "m.b"), record(7, "m.c")], 1) == (
        {"900": 901, "901": 902},
        902,
    )


async def test_what_was_trimmed_is_not_there() -> None:
    log = await filled(*(record(number) for number in range(4)))
    await log.trim(before=3)
    assert await appended(log, [record(0), record(3)], 0) == ({"3": 4}, 4)
