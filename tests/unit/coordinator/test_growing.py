"""The operator's command for a tier of another size."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tocsin.coordinator.growing import AGAIN_S, Grower
from tocsin.core.coordination.leader.growth import Wanted


class Scale:
    """A command that writes what it was asked for."""

    def __init__(self, path: Path, program: str = 'echo "$1 $2 $3" >>"$0"') -> None:
        self.path = path / "asked"
        self.at_s = 0.0
        words = ("sh", "-c", program, str(self.path), "{tier}", "n={members}", "stop={stop}")
        self.grower = Grower(words, clock=lambda: self.at_s)

    async def heed(self, wanted: Wanted) -> list[str]:
        self.grower.heed({"cloud": wanted})
        if self.grower._running is not None:
            await self.grower._running
        return self.path.read_text().splitlines() if self.path.exists() else []


async def test_the_command_is_told_tier_number_and_member(tmp_path: Path) -> None:
    scale = Scale(tmp_path)
    assert await scale.heed(Wanted(2, 2)) == []
    assert await scale.heed(Wanted(3, 2)) == ["cloud n=3 stop="]
    assert await scale.heed(Wanted(3, 3)) == ["cloud n=3 stop="]
    assert (await scale.heed(Wanted(2, 2, ("c-1",))))[-1] == "cloud n=2 stop=c-1"


async def test_the_command_is_repeated_while_members_are_missing(tmp_path: Path) -> None:
    scale = Scale(tmp_path)
    assert len(await scale.heed(Wanted(3, 2))) == 1
    assert len(await scale.heed(Wanted(3, 2))) == 1
    scale.at_s += AGAIN_S
    assert len(await scale.heed(Wanted(3, 2))) == 2


@pytest.mark.parametrize("program", ["echo no >&2; exit 3", "exit 0"])
async def test_a_command_that_fails_is_only_reported(tmp_path: Path, program: str) -> None:
    scale = Scale(tmp_path, program)
    assert await scale.heed(Wanted(3, 2)) == []
    await scale.grower.close()


async def test_a_program_that_is_not_there_is_only_reported(tmp_path: Path) -> None:
    grower = Grower((str(tmp_path / "nothing"),))
    grower.heed({"cloud": Wanted(3, 2)})
    assert grower._running is not None
    await grower._running
    await grower.close()


async def test_closing_ends_a_run(tmp_path: Path) -> None:
    grower = Grower(("sleep", "60"))
    grower.heed({"cloud": Wanted(3, 2)})
    grower.heed({"cloud": Wanted(4, 2)})
    await asyncio.sleep(0)
    await grower.close()


async def test_without_a_command_nothing_is_run() -> None:
    grower = Grower(())
    grower.heed({"cloud": Wanted(3, 2)})
    assert grower._running is None
    await grower.close()
