"""All designs, one after the other, each on every store that makes a difference to it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tocsin.store.servers.testing import LocalServers
from tocsin_demo.worker import Worker
from tocsin_labs.cqbs.coordinator import Coordinated, account
from tocsin_labs.cqbs.designs.work import Job
from tocsin_labs.cqbs.plan import Design, Designs
from tocsin_labs.figures import Spread
from tocsin_labs.stage import Stage

WORK: Final = "tocsin_labs.cqbs.designs.work"


class Designed(msgspec.Struct, frozen=True):
    """One design, on a store of so many servers."""

    design: Design
    servers: int
    found: Coordinated
    cpu_ms: float  # of all brokers and coordinators, for one change
    behind: Spread | None  # milliseconds from when something was told until it was on disk

    @property
    def name(self) -> str:
        return name_of(self.design, self.servers)


def name_of(design: Design, servers: int) -> str:
    """How rows, files and pictures call it."""
    return design if design == "broadcast" else f"{design}-{servers}"


async def run(plan: Designs, seed: int, stage: Stage, found: list[Designed]) -> None:
    """Add what was found of each."""
    todo = [(design, servers) for servers in plan.servers for design in plan.designs]
    todo = [each for each in todo if each[0] != "broadcast" or each[1] == plan.servers[0]]
    for number, (design, servers) in enumerate(todo):
        if stage.is_cut:
            break
        stage.tell(f"designs: {name_of(design, servers)}", number / len(todo))
        with tempfile.TemporaryDirectory(prefix="tocsin-lab-") as directory:
            found.append(await _one(plan, seed, stage, design, servers, Path(directory)))


async def _one(
    plan: Designs, seed: int, stage: Stage, design: Design, servers: int, directory: Path
) -> Designed:
    raw = stage.out / f"design-{name_of(design, servers)}.csv"
    with LocalServers(directory, servers=servers) as store:
        job = Job(
            design=design,
            urls=store.urls,
            token=store.token,
            servers=servers,
            plan=plan.load,
            seed=seed,
            raw=str(raw),
        )
        worker = await Worker.start(WORK, "design", job)
        try:
            async with stage.ends(worker):
                done = await worker.until("done")
        finally:
            await worker.close()
    return Designed(
        design=design,
        servers=servers,
        found=account(plan.load, done, raw, None, job.coordinators, servers, partial=stage.is_cut),
        cpu_ms=done.found["cpu_s"] * 1_000 / max(1, done.count),
        behind=Spread.of(done.found["behind_ms"]),
    )
